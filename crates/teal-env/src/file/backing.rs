//! Locks on what a block device lies on, so that a store is one thing under whichever name it is
//! opened.
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
//! 2. Who covers all of what lies beneath takes there the lock that whoever opens that thing itself
//!    takes. Who covers a part takes the shared lock there, and then tries the locks of all other
//!    devices whose ranges overlap. Own lock first, then the others': of two who come at once, at
//!    least one sees the other.
//! 3. A file beneath that cannot be reached from here (deleted, or in another mount namespace) is
//!    known by its name only: devices over it exclude each other, by the same trial.

use super::{DiskOpenError, OpenMode};
use rustix::fs::{self, Dev, FlockOperation, Mode, OFlags, major, minor};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use teal_types::SECTOR;

/// Loop devices stacked on each other; the kernel takes fewer.
const DEPTH_MAX: usize = 16;

/// What all devices over one thing have in common.
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

/// Where the bytes of a device lie in the end.
#[derive(Debug)]
struct BackingOrigin {
    identity: BackingIdentity,
    /// The bytes of it that the device has.
    bytes: Range<u64>,
    /// What there is on the way, from the top.
    layers: Vec<BackingLayer>,
}

impl BackingOrigin {
    /// Follows `/sys` from a block device down. `None`: it is no block device that the kernel tells
    /// of.
    fn trace_down(device: Dev) -> Option<Self> {
        let mut dir = sysfs_directory(device);
        let mut bytes = 0..read_number(&dir, "size")?.saturating_mul(SECTOR);
        let (mut is_covered, mut layers, mut identity) =
            (true, Vec::new(), BackingIdentity::Disk(device));
        for _ in 0..DEPTH_MAX {
            if let Some(start) =
                read_number(&dir, "partition").and_then(|_| read_number(&dir, "start"))
            {
                let disk = dir.join("..");
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
                is_covered &= bytes.start == 0 && bytes.end.saturating_add(SECTOR) > meta.len();
                identity = BackingIdentity::File(meta.dev(), meta.ino());
                layers.push(BackingLayer { path, is_covered });
                break;
            }
            dir = sysfs_directory(meta.rdev());
            is_covered &= bytes == (0..read_number(&dir, "size")?.saturating_mul(SECTOR));
            identity = BackingIdentity::Disk(meta.rdev());
            layers.push(BackingLayer { path, is_covered });
        }
        Some(Self {
            identity,
            bytes,
            layers,
        })
    }

    /// Returns whether a lock on the lowest layer tells of everybody who has some of these bytes.
    fn is_lock_conclusive(&self) -> bool {
        self.layers.last().is_some_and(|layer| layer.is_covered)
            && !matches!(self.identity, BackingIdentity::Unreachable(_))
    }

    fn overlaps(&self, other: &Self) -> bool {
        let (ours, theirs) = (&self.bytes, &other.bytes);
        self.identity == other.identity && ours.start < theirs.end && theirs.start < ours.end
    }
}

fn sysfs_directory(device: Dev) -> PathBuf {
    PathBuf::from(format!(
        "/sys/dev/block/{}:{}",
        major(device),
        minor(device)
    ))
}

fn read_number(dir: &Path, attribute: &str) -> Option<u64> {
    std::fs::read_to_string(dir.join(attribute))
        .ok()?
        .trim()
        .parse()
        .ok()
}

fn shift_range(bytes: &Range<u64>, by: u64) -> Range<u64> {
    bytes.start.saturating_add(by)..bytes.end.saturating_add(by)
}

/// The file beneath a loop device, as the kernel names it.
fn backing_file(dir: &Path) -> Option<PathBuf> {
    let mut name = std::fs::read(dir.join("loop/backing_file")).ok()?;
    name.pop_if(|last| *last == b'\n');
    Some(OsString::from_vec(name).into())
}

/// Locks what lies beneath the block device `path`, which has the number `device` and whose own
/// lock is held already. The locks last as long as what is returned.
///
/// # Errors
/// [`OpenError::InUseBeneath`] if somebody has the same bytes open under another name.
pub(super) fn lock_backing(
    path: &Path,
    device: Dev,
    mode: OpenMode,
) -> Result<Vec<OwnedFd>, DiskOpenError> {
    let Some(origin) = BackingOrigin::trace_down(device)
        .filter(|origin| origin.identity != BackingIdentity::Disk(device))
    else {
        return Ok(Vec::new());
    };
    let in_use = |beneath: &Path| DiskOpenError::BackingInUse {
        path: path.to_owned(),
        beneath: beneath.to_owned(),
    };
    let mut held = Vec::new();
    for BackingLayer {
        path: beneath,
        is_covered,
    } in &origin.layers
    {
        let is_exclusive = *is_covered && mode != OpenMode::Read;
        let locked = open_for_lock(beneath, is_exclusive).and_then(|file| {
            fs::flock(&file, lock_operation(is_exclusive))?;
            Ok(file)
        });
        match locked {
            Ok(file) => held.push(file),
            Err(Errno::AGAIN | Errno::BUSY) => return Err(in_use(beneath)),
            // Who may open the device and not what is beneath it cannot lock that.
            Err(Errno::ACCESS | Errno::PERM | Errno::NOENT | Errno::ROFS) => {}
            Err(error) => {
                return Err(DiskOpenError::Io {
                    path: beneath.clone(),
                    doing: "lock",
                    source: io::Error::from(error),
                });
            }
        }
    }
    if !origin.is_lock_conclusive() {
        let taken =
            other_block_devices(device).find(|(node, other)| is_taken(node, *other, &origin, mode));
        if let Some((node, _)) = taken {
            return Err(in_use(&node));
        }
    }
    Ok(held)
}

/// All other block devices, by device file.
fn other_block_devices(device: Dev) -> impl Iterator<Item = (PathBuf, Dev)> {
    let names = std::fs::read_dir("/sys/class/block")
        .into_iter()
        .flatten()
        .flatten();
    names.filter_map(move |entry| {
        // In names of devices, `!` stands for `/`.
        let name = entry
            .file_name()
            .as_bytes()
            .iter()
            .map(|byte| if *byte == b'!' { b'/' } else { *byte })
            .collect();
        let node = Path::new("/dev").join(OsString::from_vec(name));
        let meta = std::fs::metadata(&node)
            .ok()
            .filter(|meta| meta.file_type().is_block_device())?;
        (meta.rdev() != device).then(|| (node, meta.rdev()))
    })
}

/// Returns whether somebody has a device open as a store that shares bytes with `origin`. Its lock
/// is tried and given back.
fn is_taken(node: &Path, device: Dev, origin: &BackingOrigin, mode: OpenMode) -> bool {
    if !BackingOrigin::trace_down(device).is_some_and(|other| other.overlaps(origin)) {
        return false;
    }
    let tried = open_for_lock(node, false)
        .and_then(|file| fs::flock(&file, lock_operation(mode != OpenMode::Read)));
    tried == Err(Errno::AGAIN)
}

fn open_for_lock(path: &Path, is_exclusive: bool) -> rustix::io::Result<OwnedFd> {
    let is_block = std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device());
    // A device that is mounted, or claimed by who opened it as a store, is busy.
    let claim = if is_block && is_exclusive {
        OFlags::EXCL
    } else {
        OFlags::empty()
    };
    let open = |access| fs::open(path, access | OFlags::CLOEXEC | claim, Mode::empty());
    // Over NFS, only who may write locks exclusively.
    let writing = is_exclusive.then(|| open(OFlags::RDWR).ok()).flatten();
    writing.map_or_else(|| open(OFlags::RDONLY), Ok)
}

fn lock_operation(is_exclusive: bool) -> FlockOperation {
    match is_exclusive {
        true => FlockOperation::NonBlockingLockExclusive,
        false => FlockOperation::NonBlockingLockShared,
    }
}
