//! From the options of a mount to an open store, a client and a mount.

use super::volume::ServedVolume;
use crate::cli::MountArgs as Args;
use crate::control::ControlSocket;
use crate::drives::DriveService;
use crate::machine;
use crate::opening;
use crate::options::{MountConfig, SyncFs, SyncTarget};
use crate::private;
use crate::replica::{self, ReplicaRuntime};
use anyhow::{Context, Result, anyhow, bail};
use std::num::NonZeroUsize;
use std::sync::Arc;
use teal_device::Drive;
use teal_env::{Clock, FileDisk, OpenMode, SystemClock};
use teal_log::{OpenOptions, Recovery, Store, StoreError, StoreOpenError, StoreOwner};
use teal_mount::{MountSettings, VolumeMount};
use teal_posix::{FileSystem, FileSystemOptions};
use teal_replica::UpstreamOptions;

/// The least number of threads of a mount with a server: while some of its requests wait for the
/// server, the others must still be answered.
const THREADS_THAT_WAIT: NonZeroUsize = NonZeroUsize::new(16).expect("not zero");

/// Opens the store, connects it to its server, and mounts it.
pub(super) fn open_and_mount(
    args: &Args,
    options: MountConfig,
) -> Result<(ServedVolume, ControlSocket)> {
    debug_assert!(
        args.dir.is_absolute(),
        "the daemon runs in the root directory"
    );
    let mode = if options.is_read_only() {
        OpenMode::Read
    } else {
        OpenMode::Write
    };
    // The disk comes first: its lock refuses a second daemon before anything is changed.
    let disk = Arc::new(opening::open_disk(&args.path, mode)?);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let store = open_store(args, &options, &disk, &clock)?;
    // The socket is bound before the mount appears, so that `teal status` finds the daemon as soon
    // as the mount is there.
    let listener = ControlSocket::bind(&args.dir)?;
    let how = FileSystemOptions {
        atime: options.atime,
        ..FileSystemOptions::default()
    };
    // A read-only mount sends nothing, so it needs no connection to a server.
    let running = if options.is_read_only() {
        None
    } else {
        replica::start(&args.path, &clock, options.delay)?
    };
    if running.is_none() {
        refuse_server_options(&options)?;
    }
    let client = open_client(store, clock, how, running.as_ref(), &options)?;
    // The setting beside the store tells if the volume is shared, even where its server is not
    // asked.
    let is_shared = replica::load_setting(&args.path)?.is_some();
    let settings = mount_settings(args, &options, is_shared, client.replica().is_some());
    if settings.syncfs {
        // The kernel's claim on the device, which comes with the mount, takes the place of ours.
        disk.release_claim();
    }
    let mount = VolumeMount::new(Arc::clone(&client), &args.dir, settings)?;
    let drives = Arc::new(DriveService::new(&client, &args.path)?);
    let args = Args {
        path: args.path.clone(),
        dir: args.dir.clone(),
        options: args.options.clone(),
        ..*args
    };
    let volume = ServedVolume::new(args, client, mount, disk, drives, running);
    Ok((volume, listener))
}

/// Refuses options about the server where none is asked, so that a person does not rely on an
/// option without effect.
fn refuse_server_options(options: &MountConfig) -> Result<()> {
    let given = options.server_options_given();
    let Some(option) = given.first() else {
        return Ok(());
    };
    let why = if options.is_read_only() {
        "a read-only mount sends nothing"
    } else {
        "the volume has no server"
    };
    bail!(
        "mount option {option}: {why}; leave it out, or give the volume a server first \
         (`teal serve`)"
    )
}

/// Makes the client of an open store; with a server, it is a replica.
fn open_client(
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    how: FileSystemOptions,
    running: Option<&ReplicaRuntime>,
    options: &MountConfig,
) -> Result<Arc<FileSystem>> {
    let Some(running) = running else {
        return Ok(FileSystem::new(store, clock, how)?);
    };
    // Settings that the mount options do not name are the defaults.
    let defaults = UpstreamOptions::default();
    let of_upstream = UpstreamOptions {
        flush_age: options.flush_age.unwrap_or(defaults.flush_age),
        sync_remote: options.sync == SyncTarget::Remote,
        queue: options.queue,
        ..defaults
    };
    let upstream = Arc::clone(&running.upstream);
    let joining = (running.joins, of_upstream);
    Ok(FileSystem::replica_of(
        store,
        clock,
        how,
        upstream,
        &running.device,
        joining,
    )?)
}

/// Opens the store of a mount, and logs what was redone for that.
fn open_store(
    args: &Args,
    options: &MountConfig,
    disk: &Arc<FileDisk>,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<Store>> {
    // The store is made private before anything is read from it.
    if !options.is_read_only() {
        private::enforce_store(&args.path)?;
    }
    let how = OpenOptions {
        read_only: options.is_read_only(),
        salvage: options.salvage,
        // A read-only mount leaves no mark in the store, so it needs no owner.
        owner: if options.is_read_only() {
            StoreOwner::default()
        } else {
            machine::this_machine()?
        },
        elsewhere: options.elsewhere,
        settings: options.settings,
    };
    let (store, recovery) = Store::open(disk.clone(), clock.clone(), how)
        .map_err(|e| advise_salvage(e, how.salvage))
        .with_context(|| format!("cannot open {}", args.path.display()))?;
    log_recovery(args, &recovery);
    // A drive is a log store, too, but it belongs to a volume that is mounted elsewhere.
    if Drive::is_drive(&store) {
        return Err(anyhow!(
            "{} is a drive: `teal device attach` uses it beside a mount",
            args.path.display()
        ));
    }
    Ok(store)
}

/// Adds the way out where a structure that opening needs is damaged.
fn advise_salvage(refusal: StoreOpenError, is_tried: bool) -> anyhow::Error {
    let is_damaged = matches!(refusal, StoreOpenError::Store(StoreError::Corrupt { .. }));
    if is_damaged && !is_tried {
        anyhow!(
            "{refusal}; mount read-only with -o salvage to copy out what can be read, or let \
             `teal repair` make a whole store of it"
        )
    } else {
        refusal.into()
    }
}

/// Returns how a volume is mounted. `is_shared`: it has a server, so that what other machines make
/// is in its tree.
fn mount_settings(
    args: &Args,
    options: &MountConfig,
    is_shared: bool,
    is_replica: bool,
) -> MountSettings {
    let syncfs = options.syncfs.is_wanted();
    // People expect sync(2) to work, so the log says where it does not.
    if options.syncfs == SyncFs::WhereSafe && !syncfs {
        log::info!(
            "sync(2) and syncfs(2) will not reach this mount, fsync(2) does: \
             this mount namespace may end with the daemon"
        );
    }
    MountSettings {
        source: args.path.clone(),
        syncfs,
        flags: options.flags_in_force(is_shared),
        // Requests that wait for the server hold a thread each.
        threads: if is_replica {
            options.threads.max(THREADS_THAT_WAIT)
        } else {
            options.threads
        },
        uring: options.uring,
        observed: options.observed,
    }
}

/// Writes into the log what was redone.
fn log_recovery(args: &Args, recovery: &Recovery) {
    if recovery.batches > 0 {
        log::info!(
            "{} was not closed properly; {} batches ({} bytes of log) were redone",
            args.path.display(),
            recovery.batches,
            recovery.bytes
        );
    }
}
