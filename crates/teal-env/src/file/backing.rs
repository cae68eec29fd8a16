//! Locks on the files and devices that a block device lies on, so that a store is one thing under
//! whichever name it is opened.
//!
//! # Guarantees
//! 1. *One store, one lock*: a file and all loop devices over it exclude each other, hard links,
//!    bind mounts, stacked loop devices and partitions of loop devices included.
//! 2. *Only what overlaps*: stores in separate partitions, or in separate ranges of one file, do
//!    not exclude each other.
//!
//! # How
//! 1. The kernel tells in `/sys` which file or device lies beneath a loop device, and of which disk
//!    something is a partition.
//! 2. A device that covers all of its backing file takes there the lock that an opening of that
//!    file itself takes. One that covers a part takes the shared lock there, and then tries the
//!    locks of all other devices with overlapping ranges. It takes its own lock first and then
//!    tries the others': of two that come at once, at least one sees the other.
//! 3. A file beneath that cannot be reached from here (deleted, or in another mount namespace) is
//!    known by its name only: devices over it exclude each other, by the same trial.

use super::opening::{DiskOpenError, OpenMode};
use rustix::fs::{self, Dev, FlockOperation, Mode, OFlags, major, minor};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use teal_types::SECTOR;

/// Loop devices stacked on each other; the kernel takes fewer.
const DEPTH_MAX: usize = 16;

/// The lowest layer, which all devices over one file or disk have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
enum BackingIdentity {
    /// A regular file, by device and number.
    File(u64, u64),
    /// A file that cannot be reached from here, by the name the kernel gives it.
    Unreachable(PathBuf),
    /// A disk, by its device number.
    Disk(Dev),
}

/// A file or device beneath another device.
#[derive(Debug)]
struct BackingLayer {
    path: PathBuf,
    is_covered: bool,
}

/// The final place of the bytes of a device.
#[derive(Debug)]
struct BackingOrigin {
    identity: BackingIdentity,
    /// The bytes of it that the device has.
    bytes: Range<u64>,
    /// The layers on the way, from the top.
    layers: Vec<BackingLayer>,
}

impl BackingOrigin {
    /// Follows `/sys` from a block device down; `None` if it is no block device that the kernel
    /// tells of.
    fn trace_down(device: Dev) -> Option<Self> {
        let mut dir = sysfs_directory(device);
        let mut bytes = 0..read_number(&dir, "size")?.saturating_mul(SECTOR);
        let mut is_covered = true;
        let mut layers = Vec::new();
        let mut identity = BackingIdentity::Disk(device);
        for _ in 0..DEPTH_MAX {
            // Only partitions have the first of these files.
            let is_partition = read_number(&dir, "partition").is_some();
            if is_partition && let Some(start) = read_number(&dir, "start") {
                let disk = dir.join("..");
                // A partition of a real disk is its own lowest layer.
                if !disk.join("loop/backing_file").exists() {
                    break;
                }
                bytes = shift_range(&bytes, start.saturating_mul(SECTOR));
                is_covered = false;
                dir = disk;
            }
            let Some(path) = backing_file(&dir) else {
                break;
            };
            bytes = shift_range(&bytes, read_number(&dir, "loop/offset").unwrap_or(0));
            let Ok(meta) = std::fs::metadata(&path) else {
                identity = BackingIdentity::Unreachable(path);
                break;
            };
            if !meta.file_type().is_block_device() {
                // A loop device has whole sectors: the file's last bytes may lie beyond it.
                is_covered &= bytes.start == 0 && bytes.end.saturating_add(SECTOR) > meta.len();
                identity = BackingIdentity::File(meta.dev(), meta.ino());
                layers.push(BackingLayer { path, is_covered });
                break;
            }
            dir = sysfs_directory(meta.rdev());
            let whole = 0..read_number(&dir, "size")?.saturating_mul(SECTOR);
            is_covered &= bytes == whole;
            identity = BackingIdentity::Disk(meta.rdev());
            layers.push(BackingLayer { path, is_covered });
        }
        debug_assert!(bytes.start <= bytes.end);
        Some(Self {
            identity,
            bytes,
            layers,
        })
    }

    /// Returns whether a lock on the lowest layer excludes every other opening of these bytes.
    fn is_lock_conclusive(&self) -> bool {
        let is_covered = self.layers.last().is_some_and(|layer| layer.is_covered);
        is_covered && !matches!(self.identity, BackingIdentity::Unreachable(_))
    }

    /// Returns whether two devices share bytes.
    fn overlaps(&self, other: &Self) -> bool {
        let (ours, theirs) = (&self.bytes, &other.bytes);
        self.identity == other.identity && ours.start < theirs.end && theirs.start < ours.end
    }
}

/// Returns the directory in which the kernel describes a block device.
fn sysfs_directory(device: Dev) -> PathBuf {
    PathBuf::from(format!(
        "/sys/dev/block/{}:{}",
        major(device),
        minor(device)
    ))
}

fn read_number(dir: &Path, attribute: &str) -> Option<u64> {
    let text = std::fs::read_to_string(dir.join(attribute)).ok()?;
    text.trim().parse().ok()
}

fn shift_range(bytes: &Range<u64>, by: u64) -> Range<u64> {
    bytes.start.saturating_add(by)..bytes.end.saturating_add(by)
}

/// Returns the file beneath a loop device, as the kernel names it.
fn backing_file(dir: &Path) -> Option<PathBuf> {
    let mut name = std::fs::read(dir.join("loop/backing_file")).ok()?;
    name.pop_if(|last| *last == b'\n');
    Some(OsString::from_vec(name).into())
}

/// Locks the layers beneath the block device `path`, which has the number `device`; its own lock is
/// held already. The locks last as long as the returned descriptors.
///
/// # Errors
/// [`DiskOpenError::BackingInUse`] if the same bytes are open under another name.
pub(super) fn lock_backing(
    path: &Path,
    device: Dev,
    mode: OpenMode,
) -> Result<Vec<OwnedFd>, DiskOpenError> {
    let Some(origin) = BackingOrigin::trace_down(device) else {
        return Ok(Vec::new());
    };
    if origin.identity == BackingIdentity::Disk(device) {
        // Nothing lies beneath.
        return Ok(Vec::new());
    }
    let in_use = |beneath: &Path| DiskOpenError::BackingInUse {
        path: path.to_owned(),
        beneath: beneath.to_owned(),
    };
    let mut locks = Vec::new();
    for layer in &origin.layers {
        match lock_layer(layer, mode) {
            Ok(lock) => locks.push(lock),
            Err(Errno::AGAIN | Errno::BUSY) => return Err(in_use(&layer.path)),
            // A user that may open the device and not the layer beneath it cannot lock that.
            Err(Errno::ACCESS | Errno::PERM | Errno::NOENT | Errno::ROFS) => {}
            Err(errno) => {
                return Err(DiskOpenError::Io {
                    path: layer.path.clone(),
                    doing: "lock",
                    source: io::Error::from(errno),
                });
            }
        }
    }
    if origin.is_lock_conclusive() {
        return Ok(locks);
    }
    // Own locks are held by now: of two that come at once, one sees the other.
    for (node, other) in other_block_devices(device) {
        if is_taken(&node, other, &origin, mode) {
            return Err(in_use(&node));
        }
    }
    Ok(locks)
}

/// Locks one layer, exclusively if the device covers it and is to be written.
fn lock_layer(layer: &BackingLayer, mode: OpenMode) -> rustix::io::Result<OwnedFd> {
    let is_exclusive = layer.is_covered && mode != OpenMode::Read;
    let file = open_for_lock(&layer.path, is_exclusive)?;
    fs::flock(&file, lock_operation(is_exclusive))?;
    Ok(file)
}

/// Returns all other block devices: device file and number.
fn other_block_devices(device: Dev) -> Vec<(PathBuf, Dev)> {
    let Ok(entries) = std::fs::read_dir("/sys/class/block") else {
        return Vec::new();
    };
    let mut others = Vec::new();
    for entry in entries.flatten() {
        let mut name = entry.file_name().into_vec();
        // In names of devices, `!` stands for `/`.
        for byte in &mut name {
            if *byte == b'!' {
                *byte = b'/';
            }
        }
        let node = Path::new("/dev").join(OsString::from_vec(name));
        let Ok(meta) = std::fs::metadata(&node) else {
            continue;
        };
        if meta.file_type().is_block_device() && meta.rdev() != device {
            others.push((node, meta.rdev()));
        }
    }
    others
}

/// Returns whether a device that shares bytes with `origin` is open as a store. Its lock is tried
/// and given back.
fn is_taken(node: &Path, device: Dev, origin: &BackingOrigin, mode: OpenMode) -> bool {
    let shares_bytes =
        BackingOrigin::trace_down(device).is_some_and(|other| other.overlaps(origin));
    if !shares_bytes {
        return false;
    }
    // Without a claim: only the lock tells whether the device is open as a store.
    let tried = open_for_lock(node, false)
        .and_then(|file| fs::flock(&file, lock_operation(mode != OpenMode::Read)));
    tried == Err(Errno::AGAIN)
}

fn open_for_lock(path: &Path, is_exclusive: bool) -> rustix::io::Result<OwnedFd> {
    let is_block = std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device());
    // A device that is mounted, or claimed by a process that has opened it as a store, is busy.
    let claim = if is_block && is_exclusive {
        OFlags::EXCL
    } else {
        OFlags::empty()
    };
    let open = |access| fs::open(path, access | OFlags::CLOEXEC | claim, Mode::empty());
    // Over NFS, an exclusive lock needs a descriptor that may write.
    if is_exclusive && let Ok(file) = open(OFlags::RDWR) {
        return Ok(file);
    }
    open(OFlags::RDONLY)
}

fn lock_operation(is_exclusive: bool) -> FlockOperation {
    match is_exclusive {
        true => FlockOperation::NonBlockingLockExclusive,
        false => FlockOperation::NonBlockingLockShared,
    }
}
