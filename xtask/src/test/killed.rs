//! The leftovers of runs that were killed and could not take them away themselves.
//!
//! # Guarantees
//! 1. Processes, mounts and directories of runs that are over are taken away before the first
//!    program runs, and named.
//! 2. Nothing of a run that goes on is touched, in this workspace or in another.

use super::directories::{PREFIX, RunDirectories};
use super::leftovers::{clean_dead, is_mounted_below};
use super::processes::{is_runner, kill_orphans};
use anyhow::{Context as _, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time that killed processes may take to die.
const DYING: Duration = Duration::from_secs(5);

/// A claim on a place, held as long as runs have directories there.
#[derive(Debug)]
pub(super) struct DirectoryClaim {
    directory: OwnedFd,
    is_alone: bool,
}

impl DirectoryClaim {
    /// Claims `place` for runs of this program, beside those of others.
    pub(super) fn claim_dir(place: &Path) -> Result<Self> {
        let said = || place.display().to_string();
        let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(place, how, Mode::empty()).with_context(said)?;
        // Being alone in the place means that every numbered directory there is left over.
        let is_alone = flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok();
        if !is_alone {
            // A program that is cleaning has the lock exclusively, and is waited for.
            flock(&directory, FlockOperation::LockShared).with_context(said)?;
        }
        Ok(Self {
            directory,
            is_alone,
        })
    }

    /// Takes away the leftovers of killed runs in `rooms`, of which the large one was claimed.
    /// Returns their names.
    pub(super) fn clean_dead_runs(&self, rooms: &RunDirectories) -> Result<Vec<String>> {
        let mut found: Vec<String> = kill_orphans(DYING)
            .iter()
            .map(|process| format!("process {} ({})", process.pid, process.name))
            .collect();
        let mut places: Vec<PathBuf> = dir_entries(&rooms.open)
            .filter(|dir| is_of_the_dead(dir))
            .collect();
        if self.is_alone {
            places.extend(dir_entries(&rooms.large).filter(|dir| is_numbered(dir)));
        }
        found.extend(clean_dead(std::slice::from_ref(&rooms.large)));
        found.extend(clean_dead(&places));
        for place in places.into_iter().filter(|place| !is_mounted_below(place)) {
            let is_gone = std::fs::remove_dir_all(&place)
                .or_else(|_| std::fs::remove_file(&place))
                .is_ok();
            let rest = if is_gone {
                ""
            } else {
                ", which cannot be removed"
            };
            found.push(format!("{}{rest}", place.display()));
        }
        if self.is_alone {
            // Now others may make directories there, too.
            flock(&self.directory, FlockOperation::LockShared)
                .context("share the directories of runs")?;
        }
        Ok(found)
    }
}

fn dir_entries(place: &Path) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(place)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
}

/// Returns whether a run made the directory; other programs have others there.
fn is_numbered(dir: &Path) -> bool {
    dir.file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns whether a directory belonged to a program that makes runs and does not live any more:
/// `teal-NUMBER-NUMBER`.
fn is_of_the_dead(dir: &Path) -> bool {
    let name = dir
        .file_name()
        .and_then(|name| name.to_str())
        .and_then(|name| name.strip_prefix(PREFIX));
    let numbers = name.and_then(|rest| rest.split_once('-'));
    let parsed =
        numbers.and_then(|(pid, run)| Some((pid.parse::<i32>().ok()?, run.parse::<u32>().ok()?)));
    parsed.is_some_and(|(pid, _)| !is_runner(pid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_dead_runs_go_and_those_of_live_ones_stay() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [open, large] = dirs.each_ref().map(|dir| dir.path().to_owned());
        let mut gone = std::process::Command::new("true").spawn().unwrap();
        let dead = open.join(format!("teal-{}-3", gone.id()));
        gone.wait().unwrap();
        let kept = [
            format!("teal-{}-0", std::process::id()),
            "teal-a-3".into(),
            "other".into(),
        ]
        .map(|n| open.join(n));
        let (stale, foreign) = (large.join("0"), large.join("a"));
        let make = |dir: &PathBuf| {
            std::fs::create_dir(dir).unwrap();
            std::fs::write(dir.join("store"), "x").unwrap();
        };
        kept.iter().chain([&dead, &stale, &foreign]).for_each(make);
        let rooms = RunDirectories {
            open,
            large: large.clone(),
        };
        let first = DirectoryClaim::claim_dir(&large).unwrap();
        let found = first.clean_dead_runs(&rooms).unwrap();
        for gone in [&dead, &stale] {
            assert!(
                found.contains(&gone.display().to_string()) && !gone.exists(),
                "{found:?}"
            );
        }
        make(&stale);
        let second = DirectoryClaim::claim_dir(&large).unwrap();
        let found = second.clean_dead_runs(&rooms).unwrap();
        assert!(
            stale.exists() && !found.contains(&stale.display().to_string()),
            "the first may have made it: {found:?}"
        );
        assert!(
            kept.iter()
                .chain([&foreign])
                .all(|dir| dir.join("store").exists()),
            "others made them"
        );
        drop((first, second));
        assert!(
            DirectoryClaim::claim_dir(&large).unwrap().is_alone,
            "a claim ends with its program"
        );
    }
}
