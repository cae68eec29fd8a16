//! A disk in a file of a host file system, or a raw block device.
//!
//! # How
//! 1. The file is locked exclusively (`flock`) for as long as it is open for writing, so that a store is never mounted twice.
//! 2. Whole, aligned transfers bypass the page cache through a second, `O_DIRECT` descriptor and an aligned buffer; where the host
//!    refuses `O_DIRECT`, everything goes through the page cache.
//! 3. A block device that is mounted or otherwise held by the kernel is refused with `O_EXCL`, and claimed by a descriptor of its own
//!    until it is mounted itself.

use crate::{Disk, DiskShape};
use rustix::fs::{self, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use teal_types::{SECTOR, Sector};

/// How a store's file or device is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// Reads only; takes a shared lock.
    Read,
    /// Reads and writes; takes the exclusive lock.
    Write,
    /// Makes a new file of this many bytes; refuses one that exists.
    Create(u64),
}

/// Why a path cannot be used as a disk.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The host refused.
    #[error("{path}: {source}")]
    Io {
        /// The path as given.
        path: PathBuf,
        /// The host's reason.
        #[source]
        source: io::Error,
    },
    /// Someone else has it open.
    #[error("{path} is in use by another process (mounted already?)")]
    InUse {
        /// The path as given.
        path: PathBuf,
    },
    /// Neither a regular file nor a block device.
    #[error("{path} is neither a regular file nor a block device")]
    WrongKind {
        /// The path as given.
        path: PathBuf,
    },
}

const ALIGN: usize = 4096;

/// A file or block device as a [`Disk`].
#[derive(Debug)]
pub struct FileDisk {
    file: std::fs::File,
    direct: Option<std::fs::File>,
    shape: DiskShape,
    /// What keeps others from mounting the block device.
    claim: Mutex<Option<OwnedFd>>,
}

impl FileDisk {
    /// Opens `path`.
    ///
    /// # Errors
    /// [`OpenError`], naming the path.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Self, OpenError> {
        let io = |source: io::Error| OpenError::Io { path: path.to_owned(), source };
        let is_block = std::fs::metadata(path).map(|m| m.file_type().is_block_device()).unwrap_or(false);
        let flags = match mode {
            OpenMode::Read => OFlags::RDONLY,
            OpenMode::Write => OFlags::RDWR,
            OpenMode::Create(_) => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
        } | OFlags::CLOEXEC;
        let open = |flags| {
            fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(|e| match e {
                Errno::BUSY => OpenError::InUse { path: path.to_owned() },
                e => io(e.into()),
            })
        };
        let claim = (is_block && mode == OpenMode::Write).then(|| open(flags | OFlags::EXCL)).transpose()?;
        let fd = open(flags)?;
        let lock = if mode == OpenMode::Read {
            FlockOperation::NonBlockingLockShared
        } else {
            FlockOperation::NonBlockingLockExclusive
        };
        fs::flock(&fd, lock).map_err(|e| match e {
            Errno::AGAIN => OpenError::InUse { path: path.to_owned() },
            e => io(e.into()),
        })?;
        let meta = std::fs::File::from(fd.try_clone().map_err(io)?).metadata().map_err(io)?;
        if !meta.is_file() && !meta.file_type().is_block_device() {
            return Err(OpenError::WrongKind { path: path.to_owned() });
        }
        if let OpenMode::Create(bytes) = mode {
            fs::ftruncate(&fd, bytes / SECTOR * SECTOR).map_err(|e| io(e.into()))?;
        }
        let shape = shape_of(&fd, is_block, meta.rdev()).map_err(io)?;
        let direct_flags = (flags & !(OFlags::CREATE | OFlags::EXCL)) | OFlags::DIRECT;
        let direct = fs::open(path, direct_flags, Mode::empty()).ok().map(std::fs::File::from);
        Ok(Self { file: fd.into(), direct, shape, claim: Mutex::new(claim) })
    }

    /// Lets the block device be mounted: the kernel claims it then, until it is unmounted. The lock stays.
    pub fn release_claim(&self) {
        *self.claim.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The same disk, forced through the page cache (for hosts where `O_DIRECT` is slow or broken).
    #[must_use]
    pub fn buffered(mut self) -> Self {
        self.direct = None;
        self
    }

    fn direct_for(&self, at: Sector, len: usize) -> Option<&std::fs::File> {
        let unit = u64::from(self.shape.logical);
        self.direct.as_ref().filter(|_| at.byte().is_multiple_of(unit) && (len as u64).is_multiple_of(unit))
    }
}

fn shape_of(fd: &OwnedFd, is_block: bool, rdev: u64) -> io::Result<DiskShape> {
    let bytes = fs::seek(fd, fs::SeekFrom::End(0))?;
    let (logical, physical) =
        if is_block { (fs::ioctl_blksszget(fd)?, fs::ioctl_blkpbszget(fd)?) } else { (512, 4096) };
    let rotational = is_block && {
        let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
        let base = format!("/sys/dev/block/{major}:{minor}");
        ["queue/rotational", "../queue/rotational"]
            .iter()
            .any(|p| std::fs::read_to_string(format!("{base}/{p}")).is_ok_and(|s| s.trim() == "1"))
    };
    Ok(DiskShape { sectors: bytes / SECTOR, logical, physical: physical.max(logical), rotational, sparse: !is_block })
}

/// A buffer whose start is aligned for direct transfers, without unsafe code: a little more is allocated and the front skipped.
struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Self {
        let bytes = vec![0; len + ALIGN];
        let start = bytes.as_ptr().align_offset(ALIGN);
        Self { bytes, start, len }
    }
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

impl Disk for FileDisk {
    fn shape(&self) -> DiskShape {
        self.shape
    }

    fn read_at(&self, at: Sector, buf: &mut [u8]) -> io::Result<()> {
        if let Some(direct) = self.direct_for(at, buf.len()) {
            let mut aligned = Aligned::new(buf.len());
            match direct.read_exact_at(aligned.as_mut(), at.byte()) {
                Ok(()) => {
                    buf.copy_from_slice(aligned.as_mut());
                    return Ok(());
                }
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => {}
                Err(e) => return Err(e),
            }
        }
        self.file.read_exact_at(buf, at.byte())
    }

    fn write_at(&self, at: Sector, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let len = parts.iter().map(|p| p.len()).sum();
        let mut aligned = Aligned::new(len);
        let mut rest = aligned.as_mut();
        for part in parts {
            let (head, tail) = rest.split_at_mut(part.len());
            head.copy_from_slice(part);
            rest = tail;
        }
        if let Some(direct) = self.direct_for(at, len) {
            match direct.write_all_at(aligned.as_mut(), at.byte()) {
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => {}
                done => return done,
            }
        }
        self.file.write_all_at(aligned.as_mut(), at.byte())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(fs::fdatasync(&self.file)?)
    }

    fn allocate(&self, at: Sector, sectors: u64) -> io::Result<()> {
        if !self.shape.sparse {
            return Ok(());
        }
        match fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, at.byte(), sectors * SECTOR) {
            Ok(()) => Ok(()),
            // A host without fallocate: writing zeros where nothing is stored yet takes the space as well.
            Err(Errno::OPNOTSUPP) => {
                self.write_at(at, &[IoSlice::new(&vec![0; (sectors * SECTOR) as usize])])?;
                self.sync()
            }
            Err(e) => Err(e.into()),
        }
    }

    fn discard(&self, at: Sector, sectors: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fs::fallocate(&self.file, flags, at.byte(), sectors * SECTOR)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temp(bytes: u64) -> (tempfile::TempDir, PathBuf, FileDisk) {
        let dir = tempfile::tempdir_in(std::env::var_os("CARGO_TARGET_TMPDIR").unwrap_or("/var/tmp".into())).unwrap();
        let path = dir.path().join("disk");
        let disk = FileDisk::open(&path, OpenMode::Create(bytes)).unwrap();
        (dir, path, disk)
    }

    #[test]
    fn what_is_written_at_any_sector_is_read_back() {
        let (_dir, _path, disk) = temp(1 << 20);
        disk.write_at(Sector::new(3), &[IoSlice::new(&[1; 512]), IoSlice::new(&[2; 1024])]).unwrap();
        disk.sync().unwrap();
        let mut back = vec![0; 2048];
        disk.read_at(Sector::new(2), &mut back).unwrap();
        assert_eq!((back[0], back[512], back[1024], back[2047]), (0, 1, 2, 2));
    }

    #[test]
    fn a_disk_open_for_writing_is_locked() {
        let (_dir, path, disk) = temp(1 << 16);
        assert!(matches!(FileDisk::open(&path, OpenMode::Write), Err(OpenError::InUse { .. })));
        drop(disk);
        assert!(FileDisk::open(&path, OpenMode::Write).is_ok());
    }

    #[test]
    fn odd_paths_are_named_in_the_error() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join("gone");
        let said = FileDisk::open(&gone, OpenMode::Read).unwrap_err().to_string();
        assert!(said.contains("gone"), "{said}");
        assert!(matches!(FileDisk::open(Path::new("/dev/null"), OpenMode::Read), Err(OpenError::WrongKind { .. })));
    }

    #[test]
    fn allocated_sectors_take_host_space() {
        let (_dir, path, disk) = temp(8 << 20);
        let before = std::fs::metadata(&path).unwrap().blocks();
        disk.allocate(Sector::new(0), 2048).unwrap();
        assert!(std::fs::metadata(&path).unwrap().blocks() >= before + 2048);
    }
}
