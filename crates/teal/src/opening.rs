//! Opening the disk of a store that a daemon may just be letting go of.
//!
//! # How
//! 1. `umount` may return before the daemon has closed the store. Who opens the store then waits
//!    for the daemon, at most [`ROUNDS`] rounds of [`ROUND`].
//! 2. A store that is mounted is refused at once: its daemon says so.
//! 3. A store that something else holds, such as the daemon of another user or one that has just
//!    removed its socket, is refused after [`UNKNOWN_ROUNDS`].

use crate::control::{self, MountPhase};
use anyhow::{Context, Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use teal_env::{DiskOpenError, FileDisk, OpenMode};

/// The time between two attempts, unless the daemon ends before.
const ROUND: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};
/// The attempts while a daemon is ending: 30 s.
const ROUNDS: usize = 600;
/// The attempts while it is not known what holds the store: 1 s.
const UNKNOWN_ROUNDS: usize = 20;

/// The process that holds a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoreHolder {
    /// A daemon whose mount is there.
    Serving,
    /// A daemon whose mount has been taken away.
    Ending(Option<Pid>),
    /// No daemon that answers.
    Unknown,
}

/// Opens the disk of a store. Waits for a daemon that is ending.
///
/// # Errors
/// [`DiskOpenError`], with the daemon that has not ended in time.
pub(crate) fn open_disk(path: &Path, mode: OpenMode) -> Result<FileDisk> {
    let mut unknown_rounds = 0;
    let mut rounds = 0;
    loop {
        let error = match FileDisk::open(path, mode) {
            Ok(disk) => return Ok(disk),
            Err(error) => error,
        };
        let held = match &error {
            DiskOpenError::InUse { path } => path,
            DiskOpenError::BackingInUse { beneath, .. } => beneath,
            DiskOpenError::Io { .. } | DiskOpenError::WrongKind { .. } => return Err(error.into()),
        };
        let holder = holder_of(&[path, held])?;
        if holder == StoreHolder::Unknown {
            unknown_rounds += 1;
        }
        let is_refused = holder == StoreHolder::Serving || unknown_rounds > UNKNOWN_ROUNDS;
        rounds += 1;
        if is_refused || rounds > ROUNDS {
            return Err(refusal(error, holder));
        }
        wait_for(holder)?;
    }
}

/// Returns why the store stays closed to this process.
fn refusal(error: DiskOpenError, holder: StoreHolder) -> Error {
    match holder {
        StoreHolder::Ending(Some(pid)) => Error::new(error).context(format!(
            "its mount has been taken away, but the daemon (process {}) has not let go of it yet: \
             programs may still have files open",
            pid.as_raw_nonzero()
        )),
        StoreHolder::Ending(None) | StoreHolder::Serving | StoreHolder::Unknown => error.into(),
    }
}

/// Returns which daemon holds the store that one of `paths` leads to.
fn holder_of(paths: &[&Path]) -> Result<StoreHolder> {
    for status in control::all_statuses()? {
        let is_held = paths.iter().any(|path| is_same_file(path, &status.store));
        if is_held && status.phase == MountPhase::Ending {
            let pid = i32::try_from(status.pid).ok().and_then(Pid::from_raw);
            return Ok(StoreHolder::Ending(pid));
        }
        if is_held {
            return Ok(StoreHolder::Serving);
        }
    }
    Ok(StoreHolder::Unknown)
}

/// Returns whether two paths lead to one file or device.
pub(crate) fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| {
        let meta = std::fs::metadata(path).ok()?;
        Some(if meta.file_type().is_block_device() {
            (meta.rdev(), 0)
        } else {
            (meta.dev(), meta.ino())
        })
    };
    one == other || identity(one).is_some_and(|found| identity(other) == Some(found))
}

/// Waits for a round, or until the daemon has ended.
fn wait_for(holder: StoreHolder) -> Result<()> {
    let daemon = match holder {
        StoreHolder::Ending(Some(pid)) => {
            rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()
        }
        StoreHolder::Ending(None) | StoreHolder::Serving | StoreHolder::Unknown => None,
    };
    let mut watched: Vec<PollFd<'_>> = daemon
        .iter()
        .map(|daemon| PollFd::new(daemon, PollFlags::IN))
        .collect();
    rustix::event::poll(&mut watched, Some(&ROUND)).context("the daemon cannot be awaited")?;
    Ok(())
}
