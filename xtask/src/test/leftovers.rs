//! Leftovers that outlive processes: mounts, FUSE connections and loop devices. Network namespaces
//! of tests have no names: they end with the last process in them.
//!
//! # Guarantees
//! 1. Only things that appeared since the first snapshot are taken away, and only if they belong to
//!    the tests: mounts under their directories, loop devices over files in there, connections of
//!    such mounts. The leftovers of a killed run are taken away by the next: FUSE mounts there that
//!    report that their daemon is gone.
//! 2. No call that may wait for a dead file system is waited for without end.

use super::bounded::{is_done, run_within};
use rustix::mount::{UnmountFlags, unmount};
use std::collections::BTreeSet;
use std::fmt;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

const CONNECTIONS: &str = "/sys/fs/fuse/connections";
/// The time that one thing may take to go.
const PATIENCE: Duration = Duration::from_secs(5);

/// A line of `mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct MountLine {
    id: u64,
    /// The number of its device; it is also the name of the connection of a FUSE mount.
    number: u64,
    point: PathBuf,
    kind: String,
}

impl MountLine {
    fn is_fuse(&self) -> bool {
        self.kind.starts_with("fuse")
    }
}

impl fmt::Display for MountLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mount of {} at {}", self.kind, self.point.display())
    }
}

/// The mounts, connections and loop devices at one moment.
#[derive(Debug, Default)]
pub(super) struct SystemSnapshot {
    mounts: BTreeSet<MountLine>,
    connections: BTreeSet<String>,
    loops: BTreeSet<(String, PathBuf)>,
}

impl SystemSnapshot {
    pub(super) fn take_now() -> Self {
        Self {
            mounts: mounts_of("self").into_iter().collect(),
            connections: names_in(CONNECTIONS).collect(),
            loops: loop_devices().collect(),
        }
    }

    /// Ends the FUSE connections of mounts that appeared under `places`, so that waiting calls get
    /// an error. Returns these mounts.
    pub(super) fn abort_mounts(&self, places: &[PathBuf]) -> Vec<String> {
        let all = mounts_of("self")
            .into_iter()
            .filter(|mount| mount.is_fuse() && !self.mounts.contains(mount));
        let ours = all
            .filter(|mount| is_under(&mount.point, places))
            .map(|mount| {
                let said = mount.to_string();
                abort_connection(&mount.number.to_string());
                // Forced, this aborts a connection even where it cannot unmount, and needs no
                // control file system.
                run_within(PATIENCE, move || {
                    unmount(mount.point, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW)
                });
                said
            });
        ours.collect()
    }

    /// Ends the FUSE connections that appeared and that no mount of any process leads to: they were
    /// unmounted lazily.
    pub(super) fn abort_hidden(&self) {
        let all = mounts_of_all();
        let is_hidden = |number: &String| {
            !all.iter()
                .any(|mount| mount.is_fuse() && mount.number.to_string() == *number)
        };
        names_in(CONNECTIONS)
            .filter(|number| !self.connections.contains(number))
            .filter(is_hidden)
            .for_each(|n| abort_connection(&n));
    }

    /// Takes away everything that appeared since the snapshot, and returns its names.
    pub(super) fn clean_since(&self, places: &[PathBuf]) -> Vec<String> {
        let now = Self::take_now();
        let mut found = Vec::new();
        let mounts: Vec<&MountLine> = now
            .mounts
            .difference(&self.mounts)
            .filter(|mount| is_under(&mount.point, places))
            .collect();
        let loops = now
            .loops
            .difference(&self.loops)
            .filter(|(_, file)| is_under(file, places));
        // Connections are ended first: unmounting could wait for a dead daemon.
        if !mounts.is_empty() {
            self.abort_mounts(places);
        }
        // The youngest has the highest number, mostly; a mount under another goes with it.
        for mount in mounts.into_iter().rev() {
            found.push(mount.to_string());
            let point = mount.point.clone();
            // A lazy unmount works even while the mount is in use.
            let how = UnmountFlags::FORCE | UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
            run_within(PATIENCE, move || unmount(point, how));
        }
        for (device, file) in loops {
            found.push(format!("loop device {device} of {}", file.display()));
            // The device may have gone with its mount, and may have another user by now.
            if backing_file(device).as_ref() != Some(file) {
                continue;
            }
            is_done(
                PATIENCE,
                "losetup",
                &["--detach", &format!("/dev/{device}")],
            );
        }
        found
    }
}

/// Takes away the FUSE mounts under `places` without a daemon, and with them the loop devices that
/// only they hold. Returns these mounts.
pub(super) fn clean_dead(places: &[PathBuf]) -> Vec<String> {
    let dead = mounts_of("self")
        .into_iter()
        .filter(|mount| mount.is_fuse() && is_under(&mount.point, places));
    let taken = dead.filter(|mount| is_dead(&mount.point)).map(|mount| {
        let said = mount.to_string();
        run_within(PATIENCE, move || {
            unmount(mount.point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
        });
        said
    });
    taken.collect()
}

/// Returns whether the file system there says that its daemon is gone. One that does not answer may
/// have one.
fn is_dead(point: &Path) -> bool {
    let point = point.to_owned();
    run_within(PATIENCE, move || rustix::fs::statfs(&point).err())
        == Some(Some(rustix::io::Errno::NOTCONN))
}

fn abort_connection(connection: &str) {
    let file = format!("{CONNECTIONS}/{connection}/abort");
    run_within(PATIENCE, move || std::fs::write(file, "1"));
}

/// Returns whether something is mounted there or below.
pub(super) fn is_mounted_below(place: &Path) -> bool {
    mounts_of("self")
        .iter()
        .any(|mount| mount.point.starts_with(place))
}

fn is_under(path: &Path, places: &[PathBuf]) -> bool {
    places
        .iter()
        .any(|place| path.starts_with(place) && path != place)
}

/// Returns the names in a directory; none if it cannot be read.
fn names_in(dir: &str) -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

fn mounts_of(process: &str) -> Vec<MountLine> {
    let table = std::fs::read_to_string(format!("/proc/{process}/mountinfo")).unwrap_or_default();
    table.lines().filter_map(parse_mount).collect()
}

/// Returns the mounts that any process sees.
fn mounts_of_all() -> Vec<MountLine> {
    let numbers = names_in("/proc").filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    numbers.flat_map(|pid| mounts_of(&pid)).collect()
}

/// Parses a line such as `36 35 0:52 / /mnt rw,noatime shared:1 - fuse.teal source options`.
fn parse_mount(line: &str) -> Option<MountLine> {
    let (left, right) = line.split_once(" - ")?;
    let fields: Vec<&str> = left.split(' ').collect();
    Some(MountLine {
        id: fields.first()?.parse().ok()?,
        // As the kernel packs a major and a minor number.
        number: fields
            .get(2)?
            .split_once(':')
            .and_then(|(a, b)| Some(a.parse::<u64>().ok()? << 20 | b.parse::<u64>().ok()?))?,
        point: unescape_octal(fields.get(4)?),
        kind: right.split(' ').next()?.to_owned(),
    })
}

/// Returns a path without escapes: blanks are written `\040`.
fn unescape_octal(text: &str) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, tail @ ..] = rest {
        // Three octal digits behind a backslash are one byte.
        let octal = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok();
        match tail.get(..3).and_then(octal).filter(|_| *first == b'\\') {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    std::ffi::OsString::from_vec(bytes).into()
}

/// Returns the loop devices in use, with their files.
fn loop_devices() -> impl Iterator<Item = (String, PathBuf)> {
    let devices = names_in("/sys/block").filter(|name| name.starts_with("loop"));
    devices.filter_map(|name| backing_file(&name).map(|file| (name, file)))
}

fn backing_file(device: &str) -> Option<PathBuf> {
    let file = std::fs::read_to_string(format!("/sys/block/{device}/loop/backing_file")).ok()?;
    Some(file.trim_end().into())
}

#[cfg(test)]
mod tests;
