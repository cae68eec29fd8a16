//! The mount: FUSE requests on one side, the client on the other. No policy, no locks, no state but
//! counters.
//!
//! # What the kernel is told (measured request counts in `docs/semantics.md`)
//! 1. Entries, attributes and the absence of names never time out: this mount knows of every
//!    change, and tells the kernel what to forget when one comes from elsewhere.
//! 2. Opens are refused with `ENOSYS`, so the kernel stops sending them: a warm open, read and
//!    close costs no request. Flushes likewise. Object lifetime then follows lookups and forgets
//!    alone.
//! 3. Permissions are checked by the kernel (`default_permissions`), access control lists included
//!    (`POSIX_ACL`); the umask, which an inherited list overrules, is left to the client
//!    (`DONT_MASK`). Locks stay in the kernel.
//! 4. As root the mount is made on a block device (the store's, or a loop device over its file):
//!    then `sync(2)` and `syncfs(2)` are passed on, and `umount` returns when everything is
//!    durable.
//! 5. Direct writes are answered before the program goes on, asynchronous ones too: of one that is
//!    still on its way the kernel keeps old pages for good that somebody reads meanwhile.
//! 6. Written data goes through at once (no write-back cache): what a commit takes is never older
//!    than the interval.

mod counts;
mod invalidate;
mod serve;
mod watch;

pub use watch::RequestWatcher;

use counts::OpcodeCounters;
use invalidate::KernelInvalidator;
use rustix::io::Errno;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use teal_fuse::{
    BdiKnob, FuseMountOptions, FuseSession, InitConfig, InitFlags, LoopDevice, SessionError,
    UnmountHandle, set_bdi,
};
use teal_posix::FileSystem;
use watch::WatcherSlot;

/// Whether requests come over `io_uring` instead of `/dev/fuse`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UringMode {
    /// Whichever has measured better, which so far is `/dev/fuse` (`docs/bench.md`).
    #[default]
    Auto,
    /// They do, or there is no mount.
    On,
    /// They do not.
    Off,
}

/// How to mount, validated.
#[derive(Debug, Clone)]
pub struct MountSettings {
    /// The store's file or device, which `df` shows.
    pub source: PathBuf,
    /// Whether to mount on a block device where that is possible, so that `sync(2)` and `syncfs(2)`
    /// reach the volume.
    pub syncfs: bool,
    /// No changes.
    pub read_only: bool,
    /// Set-user-id bits do not count.
    pub nosuid: bool,
    /// Device files do not work.
    pub nodev: bool,
    /// Programs do not run.
    pub noexec: bool,
    /// Reading changes no access times.
    pub noatime: bool,
    /// Threads that answer requests; over `io_uring`, of each processor.
    pub threads: NonZeroUsize,
    /// Which way requests come.
    pub uring: UringMode,
    /// Every opening, closing, read and question for a file's attributes comes as a request: the
    /// kernel keeps nothing of files. For recordings of all that programs ask.
    pub observed: bool,
}

/// A mounted volume.
#[derive(Debug)]
pub struct VolumeMount {
    file_system: Arc<FileSystem>,
    session: FuseSession,
    unmount_handle: UnmountHandle,
    threads: NonZeroUsize,
    requests: OpcodeCounters,
    watch: WatcherSlot,
    invalidator: Arc<KernelInvalidator>,
    observed: bool,
}

/// Kilobytes the kernel reads ahead: two of the largest requests, so that one is read from the disk
/// while the other is copied. Its default of 128 costs eight times the requests.
const READ_AHEAD_KB: u32 = 2048;

/// Mounts on the store's own block device, or on a loop device over its file: only such a mount is
/// told of `sync(2)`.
fn mount_on_device(
    point: &Path,
    settings: &MountSettings,
    options: &FuseMountOptions,
    config: &InitConfig,
) -> Option<FuseSession> {
    let is_block = std::fs::metadata(&settings.source)
        .ok()?
        .file_type()
        .is_block_device();
    let over = if is_block {
        None
    } else {
        Some(LoopDevice::attach_file(
            &settings.source,
            settings.read_only,
        ))
    };
    let said = match over.transpose() {
        Ok(over) => {
            let device = over.as_ref().map_or(&*settings.source, LoopDevice::path);
            let options = FuseMountOptions {
                source: device.display().to_string(),
                block_device: true,
                ..options.clone()
            };
            match FuseSession::mount(point, &options, config) {
                Ok(session) => return Some(session),
                Err(error) => error.to_string(),
            }
        }
        Err(error) => format!("no loop device: {error}"),
    };
    log::warn!("sync(2) and syncfs(2) will not reach this mount, fsync(2) does ({said})");
    None
}

impl VolumeMount {
    /// Mounts `client` at `point`. A mount made by root serves all users, one made by a user serves
    /// that user.
    ///
    /// # Errors
    /// [`SessionError`]; nothing is left mounted.
    pub fn new(
        client: Arc<FileSystem>,
        point: &Path,
        settings: MountSettings,
    ) -> Result<Self, SessionError> {
        let root = rustix::process::geteuid().is_root();
        let options = FuseMountOptions {
            source: settings.source.display().to_string(),
            block_device: false,
            allow_other: root,
            default_permissions: true,
            read_only: settings.read_only,
            nosuid: settings.nosuid,
            nodev: settings.nodev,
            noexec: settings.noexec,
            noatime: settings.noatime,
            max_read: None,
        };
        let defaults = InitConfig::default();
        let config = InitConfig {
            wanted: defaults.wanted
                | InitFlags::EXPORT_SUPPORT
                | InitFlags::DO_READDIRPLUS
                | InitFlags::READDIRPLUS_AUTO
                | InitFlags::CACHE_SYMLINKS
                | InitFlags::NO_OPEN_SUPPORT
                | InitFlags::NO_OPENDIR_SUPPORT
                | InitFlags::EXPLICIT_INVAL_DATA
                | InitFlags::HANDLE_KILLPRIV_V2
                | InitFlags::POSIX_ACL
                | InitFlags::DONT_MASK
                | InitFlags::DIRECT_IO_ALLOW_MMAP
                | if settings.uring == UringMode::On {
                    InitFlags::OVER_IO_URING
                } else {
                    InitFlags::empty()
                },
            ..defaults
        };
        let with_device = if root && settings.syncfs {
            mount_on_device(point, &settings, &options, &config)
        } else {
            None
        };
        let session =
            with_device.map_or_else(|| FuseSession::mount(point, &options, &config), Ok)?;
        if settings.uring == UringMode::On && !session.is_over_rings() {
            return Err(SessionError::NoRings);
        }
        let unmounter = session.unmount_handle().ok_or(SessionError::Closed)?;
        if let Some(device) = session.device_number().filter(|_| root) {
            for (knob, value) in [
                (BdiKnob::ReadAheadKb, READ_AHEAD_KB),
                (BdiKnob::StrictLimit, 0),
                (BdiKnob::MaxRatio, 100),
            ] {
                if let Err(error) = set_bdi(device, knob, value) {
                    log::debug!("{knob:?} stays at the kernel's default: {error}");
                }
            }
        }
        let forgetting = Arc::new(KernelInvalidator::default());
        client.on_invalidation(forgetting.clone());
        Ok(Self {
            file_system: client,
            session,
            unmount_handle: unmounter,
            threads: settings.threads,
            requests: OpcodeCounters::default(),
            watch: WatcherSlot::default(),
            invalidator: forgetting,
            observed: settings.observed,
        })
    }

    /// A handle that ends [`Mount::run`].
    pub fn unmount_handle(&self) -> UnmountHandle {
        self.unmount_handle.clone()
    }

    /// Answers requests until the mount is gone.
    ///
    /// # Errors
    /// [`SessionError`] when the device fails.
    pub fn run(&self) -> Result<(), SessionError> {
        if self.file_system.replica().is_some() {
            let started = self
                .invalidator
                .start_thread(self.session.notifier(), Arc::clone(&self.file_system));
            // Not waited for in the end: it may just be telling the kernel something, until the
            // connection is gone.
            drop(started.map_err(|e| {
                SessionError::Device(Errno::from_io_error(&e).unwrap_or(Errno::AGAIN))
            })?);
        }
        let served = self.session.run(self.threads, self);
        self.invalidator.stop();
        served
    }

    /// From now on shows every request to `watcher`, until another or none takes its place. Without
    /// one this costs a request one branch.
    pub fn set_watcher(&self, watcher: Option<Arc<dyn RequestWatcher>>) {
        self.watch.set(watcher);
    }

    /// Returns whether all that programs ask comes as requests.
    pub fn is_observed(&self) -> bool {
        self.observed
    }

    /// Returns whether requests come over `io_uring`.
    pub fn is_over_rings(&self) -> bool {
        self.session.is_over_rings()
    }

    /// Returns how many requests of each kind have come, by name.
    pub fn request_counts(&self) -> Vec<(String, u64)> {
        self.requests.nonzero_counts()
    }
}
