//! The places where drives may appear: mounted file systems and removable disks, as the kernel
//! reports them.
//!
//! # Guarantees
//! 1. Nothing is polled while no file system is mounted or taken away: the kernel wakes the waiting
//!    thread.
//! 2. Only file systems that lie on a disk of this machine, or in its memory, are looked at: never
//!    one over a network, and never a mount of TealFS, which would wait for itself.
//! 3. Of a file system only what lies at its top is looked at, at most [`LOOKED_MAX`] entries, and
//!    of a file only its first bytes.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use teal_command::mount_table;

/// Entries of one file system that are looked at.
const LOOKED_MAX: usize = 1024;
/// The first bytes of a store.
const MAGIC: &[u8] = b"TEALFS";
/// File systems on disks of this machine, or in its memory.
const KINDS: &[&str] = &[
    "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "hfsplus", "msdos", "ntfs3", "tmpfs", "udf",
    "vfat", "xfs",
];

/// Returns the signature of a place, found without opening it; `None` if nothing is there. For a
/// file these are its device, number, and the seconds and nanoseconds of its last change; for a
/// disk, its number, how often a medium was put into it, and its size.
pub(super) fn place_signature(place: &Path) -> Option<String> {
    let meta = std::fs::metadata(place).ok()?;
    if !meta.file_type().is_block_device() {
        return Some(format!(
            "{} {} {} {}",
            meta.dev(),
            meta.ino(),
            meta.mtime(),
            meta.mtime_nsec()
        ));
    }
    let disk = meta.rdev();
    // A reader without a card is there all the time.
    let size = disk_number(disk, "size").unwrap_or(u64::MAX);
    if size == 0 {
        return None;
    }
    // A partition has the number of its disk.
    let own = disk_number(disk, "diskseq");
    let sequence = own.or(disk_number(disk, "../diskseq")).unwrap_or(0);
    Some(format!("{disk} {sequence} {size}"))
}

/// Returns what the kernel says of a disk or partition in the file of that name.
fn disk_text(disk: u64, name: &str) -> Option<String> {
    let (major, minor) = (rustix::fs::major(disk), rustix::fs::minor(disk));
    // The kernel answers from memory: the disk is not touched.
    let text = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/{name}")).ok()?;
    Some(text.trim().to_owned())
}

fn disk_number(disk: u64, name: &str) -> Option<u64> {
    disk_text(disk, name)?.parse().ok()
}

/// Waits for the kernel's reports of mounts, and can be woken.
#[derive(Debug)]
pub(super) struct PlaceWatcher {
    mounts: File,
    wakeup: OwnedFd,
    /// The mount points that were there at the last look.
    known: BTreeSet<PathBuf>,
}

/// Wakes a [`PlaceWatcher`].
#[derive(Debug)]
pub(super) struct WakeupHandle(OwnedFd);

impl WakeupHandle {
    pub(super) fn wake(&self) {
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// Returns the mount points of local file systems in the text of `/proc/self/mountinfo`.
fn disk_mount_points(mountinfo: &[u8]) -> BTreeSet<PathBuf> {
    let mut points = BTreeSet::new();
    for mount in mount_table::parse_mountinfo(mountinfo) {
        if KINDS.contains(&mount.kind.as_str()) {
            points.insert(mount.point);
        }
    }
    points
}

/// Returns whether both are the same file or disk.
pub(super) fn is_same(one: &Path, other: &Path) -> bool {
    // A file that is away cannot be compared, so the paths have to do.
    let (Ok(one), Ok(other)) = (std::fs::metadata(one), std::fs::metadata(other)) else {
        return one == other;
    };
    // Two nodes may name one disk, so disks are compared by their numbers.
    match one.file_type().is_block_device() && other.file_type().is_block_device() {
        true => one.rdev() == other.rdev(),
        false => (one.dev(), one.ino()) == (other.dev(), other.ino()),
    }
}

/// Returns whether a disk takes no writes.
pub(super) fn is_read_only_disk(path: &Path) -> bool {
    let Ok(meta) = std::fs::metadata(path) else {
        return false;
    };
    let is_disk = meta.file_type().is_block_device();
    is_disk && disk_text(meta.rdev(), "ro").as_deref() == Some("1")
}

/// Returns whether a store begins in a file or block device, which is only read.
///
/// # Errors
/// The file or device cannot be read.
pub(super) fn begins_a_store(path: &Path) -> std::io::Result<bool> {
    let mut first = [0; MAGIC.len()];
    // Opening must not wait, as for the other end of a fifo.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits() as i32)
        .open(path)?;
    match file.read_exact_at(&mut first, 0) {
        Ok(()) => Ok(first == MAGIC),
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    }
}

fn is_store(path: &Path) -> bool {
    begins_a_store(path).unwrap_or(false)
}

/// Returns the removable disks and their partitions that have a medium.
fn removable_disks() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let blocks = Path::new("/sys/block");
    for disk in entry_names(blocks) {
        // Optical drives are left alone: looking at one could close its tray or start it.
        if !disk.starts_with("sd") && !disk.starts_with("mmcblk") {
            continue;
        }
        let dir = blocks.join(&disk);
        let is_removable = std::fs::read_to_string(dir.join("removable"));
        if is_removable.is_ok_and(|text| text.trim() == "1") {
            let mut names = entry_names(&dir);
            names.retain(|part| part.starts_with(&disk));
            names.push(disk);
            for name in names {
                found.push(Path::new("/dev").join(name));
            }
        }
    }
    // A card reader without a card has an entry and perhaps no node.
    found.retain(|path| is_block_device(path));
    found
}

fn is_block_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device())
}

fn entry_names(dir: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        names.extend(entry.file_name().into_string().ok());
    }
    names
}

impl PlaceWatcher {
    /// Returns a watcher that has not looked at anything yet, and the handle that wakes it.
    pub(super) fn new() -> std::io::Result<(Self, WakeupHandle)> {
        let mounts = OpenOptions::new().read(true).open("/proc/self/mountinfo")?;
        let wakeup = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let handle = WakeupHandle(wakeup.try_clone()?);
        Ok((
            Self {
                mounts,
                wakeup,
                known: BTreeSet::new(),
            },
            handle,
        ))
    }

    /// Waits until something is mounted or taken away, the watcher is woken, or the time is over.
    pub(super) fn wait_for_change(&self, at_most: Option<Duration>) {
        let end = at_most.map(|time| Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: time.subsec_nanos().into(),
        });
        let mut of = [
            PollFd::new(&self.mounts, PollFlags::PRI),
            PollFd::new(&self.wakeup, PollFlags::IN),
        ];
        // A wait that fails counts as a wake-up: the caller looks again in any case.
        let _ = rustix::event::poll(&mut of, end.as_ref());
        // Empties the counter, so that the next wait blocks again.
        let mut rung = [0; 8];
        let _ = rustix::io::read(&self.wakeup, &mut rung);
    }

    /// Returns the stores on file systems that have been mounted since the last call, and those on
    /// removable disks if anything was mounted or taken away.
    pub(super) fn appeared_stores(&mut self) -> Vec<PathBuf> {
        let Ok(text) = self.read_mount_table() else {
            return Vec::new();
        };
        let now = disk_mount_points(&text);
        let mut found = Vec::new();
        // Only new mount points are searched, so that an unchanged machine costs nothing.
        for point in now.difference(&self.known) {
            found.extend(stores_at_top(point));
        }
        let is_changed = now != self.known;
        self.known = now;
        if is_changed {
            let mut disks = removable_disks();
            disks.retain(|disk| is_store(disk));
            found.append(&mut disks);
        }
        debug_assert!(
            found.iter().all(|place| place.is_absolute()),
            "the kernel names whole paths"
        );
        found
    }

    /// Reads the kernel's table of mounts, each time from its beginning.
    fn read_mount_table(&mut self) -> std::io::Result<Vec<u8>> {
        let mut text = Vec::new();
        self.mounts.rewind()?;
        self.mounts.read_to_end(&mut text)?;
        Ok(text)
    }
}

/// Returns the stores among the first entries at the top of a file system.
fn stores_at_top(point: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(point) else {
        return Vec::new();
    };
    let mut stores = Vec::new();
    for entry in entries.flatten().take(LOOKED_MAX) {
        let path = entry.path();
        let Ok(meta) = std::fs::symlink_metadata(&path) else {
            continue;
        };
        // The size tells without opening a file that it is too small for a store.
        let is_large = meta.is_file() && meta.len() >= teal_log::SMALLEST_STORE;
        if is_large && is_store(&path) {
            stores.push(path);
        }
    }
    stores
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_file_systems_of_this_machine_are_looked_at() {
        let info = b"22 27 0:21 / /proc rw,relatime - proc proc rw\n\
                    36 27 8:1 / /media/my\\040stick rw shared:1 - vfat /dev/sdb1 rw\n\
                    37 27 0:50 / /home/a/Teal rw - fuseblk.teal /a rw\n\
                    38 27 0:51 / /nfs rw - nfs4 nas:/ rw\n\
                    39 27 8:2 / / rw - ext4 /dev/sda2 rw\n";
        let found: Vec<_> = disk_mount_points(info).into_iter().collect();
        assert_eq!(
            found,
            [PathBuf::from("/"), PathBuf::from("/media/my stick")]
        );
    }

    #[test]
    fn a_store_is_known_by_its_first_bytes() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), b"TEALFS and more").unwrap();
        std::fs::write(dir.path().join("b"), b"TEAL").unwrap();
        assert!(
            is_store(&dir.path().join("a"))
                && !is_store(&dir.path().join("b"))
                && !is_store(dir.path())
        );
    }
}
