//! The mount: FUSE requests on one side, the file system on the other. It has no policy, no locks,
//! and no state but counters.
//!
//! # What the kernel is told (measured request counts in `docs/semantics.md`)
//! 1. Entries, attributes and the absence of names never time out: this mount knows of every
//!    change, and tells the kernel what to forget when one comes from elsewhere.
//! 2. Opens are refused with `ENOSYS`, so the kernel stops sending them: a warm open, read and
//!    close costs no request. Flushes likewise. Object lifetime then follows lookups and forgets
//!    alone.
//! 3. Permissions are checked by the kernel (`default_permissions`), access control lists included
//!    (`POSIX_ACL`); the umask, which an inherited list overrules, is left to the file system
//!    (`DONT_MASK`). Locks stay in the kernel.
//! 4. As root the mount is made on a block device (the store's, or a loop device over its file):
//!    then `sync(2)` and `syncfs(2)` are passed on, and `umount` returns when everything is
//!    durable.
//! 5. Direct writes are answered before the program goes on, asynchronous ones too: if a program
//!    reads while such a write is still on its way, the kernel keeps old pages for good.
//! 6. Written data goes through at once (no write-back cache): the data of a commit is never older
//!    than the interval.

mod convert;
mod counts;
mod invalidate;
mod serve;
mod watch;

pub use teal_fuse::GeneralMountFlags;
pub use watch::RequestWatcher;

use counts::OpcodeCounters;
use invalidate::KernelInvalidator;
use rustix::io::Errno;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use teal_fuse::{
    BdiKnob, DeviceNumber, FuseMountOptions, FuseSession, InitConfig, InitFlags, LoopDevice,
    SessionError, UnmountHandle, set_bdi,
};
use teal_posix::FileSystem;
use watch::WatcherSlot;

/// The way on which requests come: `io_uring` or `/dev/fuse`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UringMode {
    /// The way that has measured better, which so far is `/dev/fuse` (`docs/bench.md`).
    #[default]
    Auto,
    /// Over `io_uring`, or there is no mount.
    On,
    /// Over `/dev/fuse`.
    Off,
}

/// The settings of a mount, validated.
#[derive(Debug, Clone)]
pub struct MountSettings {
    /// The store's file or device, which `df` shows.
    pub source: PathBuf,
    /// Mounts on a block device where that is possible, so that `sync(2)` and `syncfs(2)` reach the
    /// volume.
    pub syncfs: bool,
    /// The flags that the kernel enforces.
    pub flags: GeneralMountFlags,
    /// Threads that answer requests; over `io_uring`, of each processor.
    pub threads: NonZeroUsize,
    /// Which way requests come.
    pub uring: UringMode,
    /// Every opening, closing, read and question for a file's attributes comes as a request: the
    /// kernel keeps nothing of files. For recordings of all that programs ask.
    pub observed: bool,
}

/// A hook that runs before the kernel's last request is answered.
struct DestroyHook(Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for DestroyHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DestroyHook")
    }
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
    destroy_hook: OnceLock<DestroyHook>,
}

/// The kilobytes that the kernel reads ahead: two of the largest requests, so that one is read from
/// the disk while the other is copied. Its default of 128 costs eight times the requests.
const READ_AHEAD_KB: u32 = 2048;

/// Mounts on the store's own block device, or on a loop device over its file: only such a mount is
/// told of `sync(2)`.
fn mount_on_device(
    point: &Path,
    settings: &MountSettings,
    options: &FuseMountOptions,
    config: &InitConfig,
) -> Option<FuseSession> {
    let source = &settings.source;
    let kind = std::fs::metadata(source).ok()?.file_type();
    // A store in a file gets a loop device, which lives until the mount holds it, and then with the
    // mount.
    let loop_device = if kind.is_block_device() {
        None
    } else {
        let read_only = settings.flags.contains(GeneralMountFlags::READ_ONLY);
        Some(LoopDevice::attach_file(source, read_only))
    };
    let failure = match loop_device.transpose() {
        Ok(loop_device) => {
            let device = loop_device.as_ref().map_or(&**source, LoopDevice::path);
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
    // Without a device all else works: the mount is made on none.
    log::warn!("sync(2) and syncfs(2) will not reach this mount, fsync(2) does ({failure})");
    None
}

/// Returns the wishes for the handshake with the kernel; the module says why.
fn init_config(uring: UringMode) -> InitConfig {
    let defaults = InitConfig::default();
    let mut wanted = defaults.wanted
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
        | InitFlags::DIRECT_IO_ALLOW_MMAP;
    if uring == UringMode::On {
        wanted |= InitFlags::OVER_IO_URING;
    }
    InitConfig { wanted, ..defaults }
}

/// Sets read-ahead and write-back of the mount, as root.
fn tune_caches(device: DeviceNumber) {
    for (knob, value) in [
        (BdiKnob::ReadAheadKb, READ_AHEAD_KB),
        (BdiKnob::StrictLimit, 0),
        (BdiKnob::MaxRatio, 100),
    ] {
        // Settings for speed: the mount works without them.
        if let Err(error) = set_bdi(device, knob, value) {
            log::debug!("{knob:?} stays at the kernel's default: {error}");
        }
    }
}

impl VolumeMount {
    /// Mounts `file_system` at `point`. A mount made by root serves all users, one made by a user
    /// serves that user.
    ///
    /// # Errors
    /// [`SessionError`]; nothing is left mounted.
    pub fn new(
        file_system: Arc<FileSystem>,
        point: &Path,
        settings: MountSettings,
    ) -> Result<Self, SessionError> {
        // A user's mount serves that user alone, which is also what `fusermount3` allows without
        // configuration.
        let is_root = rustix::process::geteuid().is_root();
        let options = FuseMountOptions {
            source: settings.source.display().to_string(),
            block_device: false,
            allow_other: is_root,
            default_permissions: true,
            flags: settings.flags,
            max_read: None,
        };
        let config = init_config(settings.uring);
        // Only root may mount on a block device.
        let on_device = if is_root && settings.syncfs {
            mount_on_device(point, &settings, &options, &config)
        } else {
            None
        };
        let session = match on_device {
            Some(session) => session,
            None => FuseSession::mount(point, &options, &config)?,
        };
        // Asked for by name: a mount over the other way would hide that it cannot be had.
        if settings.uring == UringMode::On && !session.is_over_rings() {
            return Err(SessionError::NoRings);
        }
        let unmount_handle = session.unmount_handle().ok_or(SessionError::Closed)?;
        if let Some(device) = session.device_number()
            && is_root
        {
            tune_caches(device);
        }
        // From here on changes from elsewhere are enqueued; the thread that delivers them starts
        // with `run`.
        let invalidator = Arc::new(KernelInvalidator::default());
        file_system.on_invalidation(invalidator.clone());
        Ok(Self {
            file_system,
            session,
            unmount_handle,
            threads: settings.threads,
            requests: OpcodeCounters::default(),
            watch: WatcherSlot::default(),
            invalidator,
            observed: settings.observed,
            destroy_hook: OnceLock::new(),
        })
    }

    /// Returns a handle that ends [`VolumeMount::run`].
    pub fn unmount_handle(&self) -> UnmountHandle {
        self.unmount_handle.clone()
    }

    /// Answers requests until the mount is gone.
    ///
    /// # Errors
    /// [`SessionError`] when the device fails.
    pub fn run(&self) -> Result<(), SessionError> {
        // Without a replica, all changes come through this mount.
        if self.file_system.replica().is_some() {
            let file_system = Arc::clone(&self.file_system);
            let notifier = self.session.notifier();
            let started = self.invalidator.start_thread(notifier, file_system);
            // The thread is not joined in the end: it may just be telling the kernel something,
            // until the connection is gone.
            if let Err(error) = started {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::AGAIN);
                return Err(SessionError::Device(errno));
            }
        }
        // Returns when the mount is gone and all workers have ended.
        let served = self.session.run(self.threads, self);
        self.invalidator.stop();
        served
    }

    /// Shows every request from now on to `watcher`, until another or none takes its place. Without
    /// one this costs a request one branch.
    pub fn set_watcher(&self, watcher: Option<Arc<dyn RequestWatcher>>) {
        self.watch.set(watcher);
    }

    /// Has `hook` called before the kernel's last request is answered. `umount` of a mount on a
    /// block device waits for that. Only the first hook counts.
    pub fn on_destroy(&self, hook: impl Fn() + Send + Sync + 'static) {
        let _ = self.destroy_hook.set(DestroyHook(Box::new(hook)));
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
