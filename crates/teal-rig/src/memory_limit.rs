//! Limits the memory of this process while a run goes on, by a control group of its own, of cgroup
//! version 1 or 2.
//!
//! # Guarantees
//! 1. Everything that has come into the group leaves it when the limit is dropped, and the group is
//!    removed.
//! 2. Memory that this process held before does not count: only memory that it touches from then
//!    on, the kernel's caches for it included.

use crate::ownership;
use crate::path_context::PathContext as _;
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use teal_command::size::human_size;
use teal_env::{Clock as _, SystemClock, Timer as _};

/// Time that a group may linger when all have left it, and time between attempts.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// Describes a memory controller: the place of its groups, and its name of a limit.
struct MemoryController {
    /// Group of this process.
    home: PathBuf,
    /// Directory in which groups may be made, beside or below it.
    parent: PathBuf,
    limit: &'static str,
}

/// Limits the memory of this process as long as it exists: the process is in a control group of its
/// own.
pub struct MemoryLimit {
    group: PathBuf,
    home: PathBuf,
}

impl MemoryLimit {
    /// Enters a group that may hold this number of bytes.
    pub fn enter_group(bytes: u64) -> Result<Self> {
        debug_assert!(bytes > 0, "a process without memory would be killed");
        let MemoryController {
            home,
            parent,
            limit,
        } = find_controller()?;
        // Each group has its own name, so that one that lingers is not in the way.
        static MADE: AtomicU64 = AtomicU64::new(0);
        let group = parent.join(ownership::group_name(
            ownership::process_token(),
            &MADE.fetch_add(1, Ordering::Relaxed).to_string(),
        ));
        let refused = || format!("a control group for runs.memory: {}", group.display());
        fs::create_dir(&group).with_context(refused)?;
        // From here on dropping it removes the group, whatever happens.
        let limited = Self { group, home };
        // The limit is set before the process enters, so that no byte escapes it.
        let wanted = limited.group.join(limit);
        fs::write(&wanted, bytes.to_string()).at_path(&wanted)?;
        join_group(&limited.group)?;
        Ok(limited)
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        let deadline = SystemClock.monotonic_time() + PATIENCE;
        // The process leaves first: a group with members cannot be removed.
        let left = join_group(&self.home).and_then(|()| {
            loop {
                match fs::remove_dir(&self.group) {
                    // A thread or a program in the group has not ended yet.
                    Err(error)
                        if error.kind() == ErrorKind::ResourceBusy
                            && SystemClock.monotonic_time() < deadline =>
                    {
                        SystemClock.wait_until(SystemClock.monotonic_time() + PAUSE);
                    }
                    done => return Ok(done?),
                }
            }
        });
        if let Err(error) = left {
            log::warn!("control group {}: {error:#}", self.group.display());
        }
    }
}

fn join_group(group: &Path) -> Result<()> {
    let procs = group.join("cgroup.procs");
    fs::write(&procs, std::process::id().to_string()).at_path(&procs)
}

/// Returns the directory of groups, if they can be made.
pub fn groups_dir() -> Option<PathBuf> {
    find_controller().ok().map(|found| found.parent)
}

/// Checks that memory can be limited here, to less than there is.
pub fn check_limit(bytes: u64) -> Result<()> {
    let machine = rustix::system::sysinfo();
    let all = (machine.totalram as u64).saturating_mul(u64::from(machine.mem_unit));
    if bytes > all {
        bail!(
            "runs.memory: {} is no limit, this machine has {}; say less, or leave it out",
            human_size(bytes),
            human_size(all)
        );
    }
    find_controller().map(drop)
}

fn find_controller() -> Result<MemoryController> {
    let mine = fs::read_to_string("/proc/self/cgroup").context("/proc/self/cgroup")?;
    let mounts = fs::read_to_string("/proc/self/mounts").context("/proc/self/mounts")?;
    let Some(found) = choose_controller(&mine, &mounts) else {
        bail!(
            "runs.memory: this kernel lends no memory controller (neither cgroup version 2 nor \
             version 1); leave it out"
        );
    };
    // In version 2 a parent passes the controller on, or its children lack it.
    if found.limit == "memory.max" {
        let given =
            fs::read_to_string(found.parent.join("cgroup.subtree_control")).unwrap_or_default();
        if !given.split_whitespace().any(|name| name == "memory") {
            bail!(
                "runs.memory: {} does not pass the memory controller on; write +memory into its \
                 cgroup.subtree_control, or leave runs.memory out",
                found.parent.display()
            );
        }
    }
    Ok(found)
}

/// Chooses the controller by the kernel's lists of this process's groups and of mounts.
fn choose_controller(mine: &str, mounts: &str) -> Option<MemoryController> {
    // Version 1 lists the memory controller with a group of its own.
    if let Some(group) = group_with(mine, |names| names.split(',').any(|name| name == "memory")) {
        let home = group_dir(&mount_of(mounts, "cgroup", Some("memory"))?, group);
        return Some(MemoryController {
            parent: home.clone(),
            home,
            limit: "memory.limit_in_bytes",
        });
    }
    // Version 2 has one group, which names no controllers.
    let group = group_with(mine, str::is_empty)?;
    let root = mount_of(mounts, "cgroup2", None)?;
    let home = group_dir(&root, group);
    // In version 2 a group with processes has no children with controllers, so the new group lies
    // beside it.
    let parent = if home == root {
        root
    } else {
        home.parent()?.to_owned()
    };
    Some(MemoryController {
        home,
        parent,
        limit: "memory.max",
    })
}

/// Returns the group whose names of controllers fit. Each line has a number, these names and the
/// group.
fn group_with(mine: &str, fits: impl Fn(&str) -> bool) -> Option<&str> {
    for line in mine.lines() {
        if let Some((_, of_group)) = line.split_once(':')
            && let Some((controllers, group)) = of_group.split_once(':')
            && fits(controllers)
        {
            return Some(group);
        }
    }
    None
}

/// Returns the directory of a group below the mount of its kind.
fn group_dir(root: &Path, group: &str) -> PathBuf {
    root.join(group.trim_start_matches('/'))
}

/// Returns where a file system of a kind is mounted, with this option if one is wanted. Each line
/// has device, mount point, kind and options.
fn mount_of(mounts: &str, kind: &str, option: Option<&str>) -> Option<PathBuf> {
    for line in mounts.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [_, point, of_kind, options, ..] = fields[..] else {
            continue;
        };
        let has_option = |wanted| options.split(',').any(|option| option == wanted);
        if of_kind == kind && option.is_none_or(has_option) {
            return Some(PathBuf::from(point));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_controller_is_found_in_both_versions() {
        let mounts = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup /sys/fs/cgroup/memory \
                      cgroup rw,memory 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let one = choose_controller("8:pids:/\n4:memory:/a/b\n0::/\n", mounts).unwrap();
        assert_eq!(
            (one.home.as_path(), one.limit),
            (
                Path::new("/sys/fs/cgroup/memory/a/b"),
                "memory.limit_in_bytes"
            )
        );
        assert_eq!(one.parent, one.home);
        let two = choose_controller(
            "0::/user.slice/s.scope\n",
            "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
        )
        .unwrap();
        assert_eq!(
            (two.parent.as_path(), two.limit),
            (Path::new("/sys/fs/cgroup/user.slice"), "memory.max")
        );
        let root = choose_controller("0::/\n", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n").unwrap();
        assert_eq!(root.parent, root.home);
        assert!(
            choose_controller("0::/\n", "").is_none() && choose_controller("", mounts).is_none()
        );
    }
}
