//! Owns a directory of results: one process at a time measures into it, and clears away the
//! leftovers of a killed owner.
//!
//! # The file `owner`
//! The file exists while a process measures, and that process holds a lock (`flock`) on it: one
//! line of JSON, `OwnerFile`. A file without a lock is of a process that was killed. The leftovers
//! of that process have its token in their names (modelled disks, control groups), or are mounted
//! at `mount` below the directory.
//!
//! # Guarantees
//! 1. A directory that has files and no results of this program is not written to.
//! 2. Only leftovers of this directory's dead owner are cleared away: a token is of one process for
//!    ever, a process's number is not.
//! 3. A directory that was made for nothing goes again.

use crate::command;
use crate::memory_limit::groups_dir;
use anyhow::{Context, Result, bail};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;
use teal_command::{mount_table, paths};
use teal_env::{Clock as _, SystemClock, Timer as _};

const FILE: &str = "owner";
/// Beginning of the file, as far as it was written: other programs have files of that name too.
const HEAD: &[u8] = br#"{"version":1,"pid":"#;
/// Mount point of file systems, below the directory.
const POINT: &str = "mount";
/// Limits the mounts on one another: each killed process of a version that did not clear up has
/// left one.
const DEPTH: usize = 100;
/// Time that a control group may linger, and time between attempts.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

/// Describes the process that measures.
#[derive(Debug, Serialize, Deserialize)]
struct OwnerFile {
    /// Version of the form, 1.
    version: u32,
    /// Number of the process.
    pid: u32,
    /// Token in the names of its disks and control groups.
    token: String,
    /// Directory of its control groups, if there are any.
    groups: Option<PathBuf>,
}

/// Returns the token in the names of all that this process makes: its number, and the time at which
/// the token was first asked for.
pub(crate) fn process_token() -> &'static str {
    static TOKEN: OnceLock<String> = OnceLock::new();
    TOKEN.get_or_init(|| {
        let ms = SystemClock.monotonic_time().as_millis();
        format!("{}-{:05x}", std::process::id(), ms & 0xf_ffff)
    })
}

/// Returns the name of a modelled disk.
pub(crate) fn disk_name(token: &str, number: &str) -> String {
    format!("matrix-{token}-{number}")
}

/// Returns the name of a control group.
pub(crate) fn group_name(token: &str, number: &str) -> String {
    format!("teal-lab-{token}-{number}")
}

/// Holds the right of this process to measure into a directory.
pub struct ResultsOwnership {
    dir: PathBuf,
    is_new: bool,
    /// Locked as long as the right is held.
    _owner: File,
}

/// Refuses a directory that has files, but neither results (`mark` is one of them) nor an owner.
pub fn check_directory(dir: &Path, mark: &str) -> Result<()> {
    let name = || dir.display().to_string();
    let entries = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(name)?,
    };
    let names = entries
        .map(|entry| Ok(entry?.file_name()))
        .collect::<std::io::Result<Vec<_>>>()
        .with_context(name)?;
    let is_ours = || {
        std::fs::read(dir.join(FILE))
            .is_ok_and(|text| text.starts_with(HEAD) || HEAD.starts_with(&text))
    };
    if names.is_empty()
        // A lock file of another program looks different from its first bytes on.
        || names
            .iter()
            .any(|name| name == mark || name == FILE && is_ours())
    {
        return Ok(());
    }
    bail!(
        "{} has other files and no {mark}; say another --results, a new directory or an empty one",
        name()
    );
}

impl ResultsOwnership {
    /// Claims a directory, makes it if it is missing, and clears away the leftovers of a killed
    /// owner.
    pub fn claim(dir: &Path, mark: &str) -> Result<Self> {
        check_directory(dir, mark)?;
        let is_new = !dir.exists();
        std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        let path = dir.join(FILE);
        let named = || path.display().to_string();
        // The lock comes first: only its holder may clear away.
        let mut file = lock_owner_file(&path)?;
        let mut text = String::new();
        file.read_to_string(&mut text).with_context(named)?;
        // A line that was cut off is of a process that had made nothing yet.
        clear_leftovers(dir, serde_json::from_str(&text).ok())
            .with_context(|| format!("what a killed run left in {}", dir.display()))?;
        let owner = OwnerFile {
            version: 1,
            pid: std::process::id(),
            token: process_token().to_owned(),
            groups: groups_dir(),
        };
        let line = serde_json::to_string(&owner)? + "\n";
        // Written in place: a new file would not have the lock.
        let written = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(line.as_bytes()));
        written
            .and_then(|()| file.sync_data())
            .with_context(named)?;
        Ok(Self {
            dir: dir.to_owned(),
            is_new,
            _owner: file,
        })
    }
}

impl Drop for ResultsOwnership {
    fn drop(&mut self) {
        // The lock is released with the file, after this.
        let _ = std::fs::remove_file(self.dir.join(FILE));
        let _ = std::fs::remove_dir(self.dir.join(POINT));
        if self.is_new {
            // This fails if the directory has other files, and then it stays.
            let _ = std::fs::remove_dir(&self.dir);
        }
    }
}

/// Locks the file. A file that its owner has removed in the meantime is opened anew.
fn lock_owner_file(path: &Path) -> Result<File> {
    let named = || path.display().to_string();
    loop {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .with_context(named)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut text = String::new();
                file.read_to_string(&mut text).with_context(named)?;
                let owner: Option<OwnerFile> = serde_json::from_str(&text).ok();
                let who = owner.map_or("another process".to_owned(), |owner| {
                    format!("process {}", owner.pid)
                });
                let dir = path.parent().unwrap_or(path).display();
                bail!("{who} is measuring in {dir}; wait for its end, or say another --results");
            }
            Err(e) => return Err(e).with_context(named),
        }
        let own = file.metadata().with_context(named)?;
        // The lock is on this file only if it is still the one under the name.
        if std::fs::metadata(path)
            .is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino()))
        {
            return Ok(file);
        }
    }
}

/// Clears mounts first, then the disks below them, then control groups.
fn clear_leftovers(dir: &Path, dead: Option<OwnerFile>) -> Result<()> {
    clear_mounts(&dir.join(POINT))?;
    let Some(dead) = dead else { return Ok(()) };
    let disks = paths::disks_dir()?;
    for name in names_with_prefix(&disks, &disk_name(&dead.token, "")) {
        command::run_self(&["disk", "stop", &name])?;
    }
    if let Some(groups) = &dead.groups {
        for name in names_with_prefix(groups, &group_name(&dead.token, "")) {
            remove_group(&groups.join(name));
        }
    }
    Ok(())
}

/// Unmounts everything that a killed run has mounted at a mount point.
fn clear_mounts(point: &Path) -> Result<()> {
    for _ in 0..DEPTH {
        // The newest mount lies on top, so it goes first.
        let mounts = mount_table::list_mounts()?.into_iter();
        let Some(mount) = mounts.rev().find(|mount| mount.point == point) else {
            break;
        };
        log::warn!(
            "{} was mounted by a run that was killed; it is unmounted",
            point.display()
        );
        let name = point.display().to_string();
        // The process of the mount ends with it.
        if mount.kind.starts_with("fuse") && command::run_teal(&["down", &name]).is_ok() {
            continue;
        }
        // A busy mount is detached: its programs were the killed run's.
        let done = match unmount(point, UnmountFlags::empty()) {
            Err(Errno::BUSY) => unmount(point, UnmountFlags::DETACH),
            done => done,
        };
        done.with_context(|| name.clone())?;
    }
    Ok(())
}

/// Returns the names in a directory that begin with a prefix; none if it cannot be read.
fn names_with_prefix(dir: &Path, prefix: &str) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(prefix)).collect()
}

/// Removes a control group. The killed programs in it may take a while to end, so that the removal
/// is tried again for a time.
fn remove_group(group: &Path) {
    let deadline = SystemClock.monotonic_time() + PATIENCE;
    while let Err(error) = std::fs::remove_dir(group) {
        if SystemClock.monotonic_time() > deadline {
            log::warn!("{}: {error}", group.display());
            break;
        }
        SystemClock.wait_until(SystemClock.monotonic_time() + PAUSE);
    }
}
