//! A disk in a file of a host file system, or a raw block device.
//!
//! # How
//! 1. The file is locked exclusively (`flock`) for as long as it is open for writing, so that a
//!    store is never mounted twice; of a loop device also the file it lies on ([`beneath`]).
//! 2. Whole, aligned transfers bypass the page cache through a second, `O_DIRECT` descriptor:
//!    memory that is aligned goes as it is, the rest through an aligned buffer. Where the host
//!    refuses `O_DIRECT`, everything goes through the page cache.
//! 3. A block device that is mounted or otherwise held by the kernel is refused with `O_EXCL`, and
//!    claimed by a descriptor of its own until it is mounted itself.

mod backing;

use crate::buffer::ALIGN;
use crate::{AlignedBuffer, BufferPool, Disk, DiskShape, HostRoom};
use rustix::fs::{self, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use teal_types::{SECTOR, Sector};

/// How a store's file or device is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// Reads only, and takes no lock: somebody may be writing, so that what is read may not fit
    /// together.
    ReadUnlocked,
    /// Reads only; takes a shared lock.
    Read,
    /// Reads and writes; takes the exclusive lock.
    Write,
    /// Makes a new file of this many bytes; refuses one that exists.
    Create(u64),
}

/// Why a path cannot be used as a disk.
#[derive(Debug, thiserror::Error)]
pub enum DiskOpenError {
    /// The host refused.
    #[error("cannot {doing} {path}")]
    Io {
        /// What was tried, as a verb.
        doing: &'static str,
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
    /// What the device lies on is open elsewhere, itself or under another name.
    #[error("{path} lies on {beneath}, which is in use by another process (mounted already?)")]
    BackingInUse {
        /// The path as given.
        path: PathBuf,
        /// The file or device beneath, or the other device over the same.
        beneath: PathBuf,
    },
    /// Neither a regular file nor a block device.
    #[error("{path} is neither a regular file nor a block device")]
    WrongKind {
        /// The path as given.
        path: PathBuf,
    },
}

/// Bytes that one buffer takes of what is copied; what is copied is still in the processor's cache
/// when it goes out.
const COPY_BUFFER_BYTES: usize = 1 << 20;
/// Buffers kept for the next transfers.
const BUFFERS_MAX: usize = 4;
/// Pieces of aligned memory below this are copied: a copy costs less than a piece of a request of
/// its own.
const DIRECT_PIECE_MIN: usize = 16 << 10;
/// Pieces of one write; the kernel takes 1024.
const PIECES_MAX: usize = 512;

/// A file or block device as a [`Disk`].
#[derive(Debug)]
pub struct FileDisk {
    file: std::fs::File,
    direct: Option<std::fs::File>,
    shape: DiskShape,
    /// What keeps others from mounting the block device.
    claim: Mutex<Option<OwnedFd>>,
    /// The locks on what the block device lies on.
    _beneath: Vec<OwnedFd>,
    buffers: Arc<BufferPool>,
}

impl FileDisk {
    /// Opens `path`.
    ///
    /// # Errors
    /// [`OpenError`], naming the path.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Self, DiskOpenError> {
        let doing = if matches!(mode, OpenMode::Create(_)) {
            "make"
        } else {
            "open"
        };
        let io = |source: io::Error| DiskOpenError::Io {
            doing,
            path: path.to_owned(),
            source,
        };
        let kind = std::fs::metadata(path).map(|meta| meta.file_type());
        if kind
            .as_ref()
            .is_ok_and(|kind| !kind.is_file() && !kind.is_block_device())
        {
            // Not opened: a pipe would wait for somebody at its other end.
            return Err(DiskOpenError::WrongKind {
                path: path.to_owned(),
            });
        }
        let is_block = kind.is_ok_and(|kind| kind.is_block_device());
        let flags = match mode {
            OpenMode::ReadUnlocked | OpenMode::Read => OFlags::RDONLY,
            OpenMode::Write => OFlags::RDWR,
            OpenMode::Create(_) => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
        } | OFlags::CLOEXEC;
        let open = |flags| {
            fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(|e| match e {
                Errno::BUSY => DiskOpenError::InUse {
                    path: path.to_owned(),
                },
                e => io(e.into()),
            })
        };
        let claim = (is_block && mode == OpenMode::Write)
            .then(|| open(flags | OFlags::EXCL))
            .transpose()?;
        let fd = open(flags)?;
        let lock = match mode {
            OpenMode::ReadUnlocked => None,
            OpenMode::Read => Some(FlockOperation::NonBlockingLockShared),
            OpenMode::Write | OpenMode::Create(_) => Some(FlockOperation::NonBlockingLockExclusive),
        };
        lock.map_or(Ok(()), |lock| fs::flock(&fd, lock))
            .map_err(|e| match e {
                Errno::AGAIN => DiskOpenError::InUse {
                    path: path.to_owned(),
                },
                e => io(e.into()),
            })?;
        let meta = std::fs::File::from(fd.try_clone().map_err(io)?)
            .metadata()
            .map_err(io)?;
        if !meta.is_file() && !meta.file_type().is_block_device() {
            return Err(DiskOpenError::WrongKind {
                path: path.to_owned(),
            });
        }
        let is_locked = is_block && mode != OpenMode::ReadUnlocked;
        let beneath = if is_locked {
            backing::lock_backing(path, meta.rdev(), mode)?
        } else {
            Vec::new()
        };
        if let OpenMode::Create(bytes) = mode
            && let Err(e) = fs::ftruncate(&fd, bytes / SECTOR * SECTOR)
        {
            let _ = fs::unlink(path);
            return Err(io(e.into()));
        }
        if matches!(mode, OpenMode::Create(_)) {
            sync_parent_directory(path).map_err(io)?;
        }
        let shape = read_shape(&fd, is_block, meta.rdev()).map_err(io)?;
        let direct_flags = (flags & !(OFlags::CREATE | OFlags::EXCL)) | OFlags::DIRECT;
        let direct = fs::open(path, direct_flags, Mode::empty())
            .ok()
            .map(std::fs::File::from);
        let buffers = BufferPool::new(BUFFERS_MAX * COPY_BUFFER_BYTES);
        Ok(Self {
            file: fd.into(),
            direct,
            shape,
            claim: Mutex::new(claim),
            _beneath: beneath,
            buffers,
        })
    }

    /// Lets the block device be mounted: the kernel claims it then, until it is unmounted. The lock
    /// stays.
    pub fn release_claim(&self) {
        *self.claim.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The same disk, forced through the page cache (for hosts where `O_DIRECT` is slow or broken).
    #[must_use]
    pub fn without_direct_io(mut self) -> Self {
        self.direct = None;
        self
    }

    fn direct_for(&self, at: Sector, len: usize) -> Option<&std::fs::File> {
        let unit = u64::from(self.shape.logical);
        self.direct
            .as_ref()
            .filter(|_| at.byte().is_multiple_of(unit) && (len as u64).is_multiple_of(unit))
    }
}

/// Makes the name of a new file durable.
fn sync_parent_directory(path: &Path) -> io::Result<()> {
    let dir = path
        .parent()
        .filter(|dir| !dir.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let dir = fs::open(
        dir,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    match fs::fsync(&dir) {
        // A file system whose directories are not synced by themselves.
        Ok(()) | Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

fn read_shape(fd: &OwnedFd, is_block: bool, rdev: u64) -> io::Result<DiskShape> {
    let bytes = fs::seek(fd, fs::SeekFrom::End(0))?;
    let (logical, physical) = if is_block {
        (fs::ioctl_blksszget(fd)?, fs::ioctl_blkpbszget(fd)?)
    } else {
        (512, 4096)
    };
    let rotational = is_block && {
        let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
        let base = format!("/sys/dev/block/{major}:{minor}");
        ["queue/rotational", "../queue/rotational"]
            .iter()
            .any(|p| std::fs::read_to_string(format!("{base}/{p}")).is_ok_and(|s| s.trim() == "1"))
    };
    Ok(DiskShape {
        sectors: bytes / SECTOR,
        logical,
        physical: physical.max(logical),
        rotational,
        sparse: !is_block,
    })
}

impl FileDisk {
    /// Returns whether the device can be pointed to this memory.
    fn is_aligned(&self, memory: &[u8]) -> bool {
        memory
            .as_ptr()
            .addr()
            .is_multiple_of(ALIGN.min(self.shape.logical as usize))
            && memory.len().is_multiple_of(self.shape.logical as usize)
    }

    fn read_direct(&self, direct: &std::fs::File, at: Sector, buf: &mut [u8]) -> io::Result<()> {
        if self.is_aligned(buf) {
            return direct.read_exact_at(buf, at.byte());
        }
        let mut aligned = self.buffers.lend(COPY_BUFFER_BYTES);
        let mut at = at.byte();
        for part in buf.chunks_mut(COPY_BUFFER_BYTES) {
            let read = &mut aligned[..part.len()];
            direct.read_exact_at(read, at)?;
            part.copy_from_slice(read);
            at += part.len() as u64;
        }
        Ok(())
    }

    fn write_direct(
        &self,
        direct: &std::fs::File,
        at: Sector,
        parts: &[IoSlice<'_>],
    ) -> io::Result<()> {
        let mut request = GatheredWrite {
            at: at.byte(),
            len: 0,
            pieces: Vec::new(),
            copied: self.buffers.lend(COPY_BUFFER_BYTES),
            filled: 0,
        };
        let unit = self.shape.logical as usize;
        for part in parts {
            if part.len() >= DIRECT_PIECE_MIN
                && self.is_aligned(part)
                && request.len.is_multiple_of(unit)
            {
                request.len += part.len();
                request.pieces.push(WritePiece::Direct(part));
            } else {
                request.append_copy(part, direct)?;
            }
            if request.pieces.len() >= PIECES_MAX && request.len.is_multiple_of(unit) {
                request.write_out(direct)?;
            }
        }
        request.write_out(direct)
    }
}

/// A part of a request: memory the device is pointed to, or so many bytes of what was copied.
enum WritePiece<'a> {
    Direct(&'a [u8]),
    Copied(usize),
}

/// A write that is being gathered.
struct GatheredWrite<'a> {
    at: u64,
    len: usize,
    pieces: Vec<WritePiece<'a>>,
    copied: AlignedBuffer,
    filled: usize,
}

impl GatheredWrite<'_> {
    fn append_copy(&mut self, mut part: &[u8], to: &std::fs::File) -> io::Result<()> {
        while !part.is_empty() {
            let (now, later) = part.split_at(part.len().min(COPY_BUFFER_BYTES - self.filled));
            self.copied[self.filled..self.filled + now.len()].copy_from_slice(now);
            match self.pieces.last_mut() {
                Some(WritePiece::Copied(len)) => *len += now.len(),
                _ => self.pieces.push(WritePiece::Copied(now.len())),
            }
            (self.filled, self.len, part) = (self.filled + now.len(), self.len + now.len(), later);
            if self.filled == COPY_BUFFER_BYTES {
                self.write_out(to)?;
            }
        }
        Ok(())
    }

    fn write_out(&mut self, to: &std::fs::File) -> io::Result<()> {
        let mut copied = &self.copied[..self.filled];
        let pieces = self.pieces.drain(..).map(|piece| match piece {
            WritePiece::Direct(part) => IoSlice::new(part),
            WritePiece::Copied(len) => {
                let (part, rest) = copied.split_at(len);
                copied = rest;
                IoSlice::new(part)
            }
        });
        let mut pieces: Vec<IoSlice<'_>> = pieces.collect();
        let mut rest = &mut pieces[..];
        while !rest.is_empty() {
            match rustix::io::retry_on_intr(|| rustix::io::pwritev(to, rest, self.at))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => {
                    self.at += written as u64;
                    IoSlice::advance_slices(&mut rest, written);
                }
            }
        }
        (self.len, self.filled) = (0, 0);
        Ok(())
    }
}

impl Disk for FileDisk {
    fn shape(&self) -> DiskShape {
        self.shape
    }

    fn read_at(&self, at: Sector, buf: &mut [u8]) -> io::Result<()> {
        if let Some(direct) = self.direct_for(at, buf.len()) {
            match self.read_direct(direct, at, buf) {
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => {}
                done => return done,
            }
        }
        self.file.read_exact_at(buf, at.byte())
    }

    fn write_at(&self, at: Sector, parts: &[IoSlice<'_>]) -> io::Result<()> {
        if let Some(direct) = self.direct_for(at, parts.iter().map(|p| p.len()).sum()) {
            match self.write_direct(direct, at, parts) {
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => {}
                done => return done,
            }
        }
        let mut at = at.byte();
        for part in parts {
            self.file.write_all_at(part, at)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(fs::fdatasync(&self.file)?)
    }

    fn allocate(&self, at: Sector, sectors: u64) -> io::Result<()> {
        if !self.shape.sparse {
            return Ok(());
        }
        match fs::fallocate(
            &self.file,
            FallocateFlags::KEEP_SIZE,
            at.byte(),
            sectors * SECTOR,
        ) {
            Ok(()) => Ok(()),
            // A host without fallocate: writing zeros where nothing is stored yet takes the space
            // as well.
            Err(Errno::OPNOTSUPP) => {
                self.write_at(at, &[IoSlice::new(&vec![0; (sectors * SECTOR) as usize])])?;
                self.sync()
            }
            Err(e) => Err(e.into()),
        }
    }

    fn host_room(&self) -> Option<HostRoom> {
        if !self.shape.sparse {
            return None;
        }
        let host = fs::fstatvfs(&self.file).ok()?;
        let meta = self.file.metadata().ok()?;
        Some(HostRoom {
            free: host.f_bavail.saturating_mul(host.f_frsize),
            allocated: meta.blocks() * 512,
        })
    }

    fn check_present(&self) -> io::Result<()> {
        let meta = self.file.metadata()?;
        match meta.is_file() {
            true if meta.nlink() == 0 => Err(io::Error::new(
                io::ErrorKind::NotFound,
                "its file was deleted",
            )),
            true if meta.len() < self.shape.sectors * SECTOR => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "its file was cut short",
            )),
            _ => Ok(()),
        }
    }

    fn discard(&self, at: Sector, sectors: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fs::fallocate(
            &self.file,
            flags,
            at.byte(),
            sectors * SECTOR,
        )?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temp(bytes: u64) -> (tempfile::TempDir, PathBuf, FileDisk) {
        let dir = tempfile::tempdir_in(
            std::env::var_os("CARGO_TARGET_TMPDIR").unwrap_or("/var/tmp".into()),
        )
        .unwrap();
        let path = dir.path().join("disk");
        let disk = FileDisk::open(&path, OpenMode::Create(bytes)).unwrap();
        (dir, path, disk)
    }

    #[test]
    fn what_is_written_at_any_sector_is_read_back() {
        let (_dir, _path, disk) = temp(1 << 20);
        disk.write_at(
            Sector::new(3),
            &[IoSlice::new(&[1; 512]), IoSlice::new(&[2; 1024])],
        )
        .unwrap();
        disk.sync().unwrap();
        let mut back = vec![0; 2048];
        disk.read_at(Sector::new(2), &mut back).unwrap();
        assert_eq!((back[0], back[512], back[1024], back[2047]), (0, 1, 2, 2));
    }

    #[test]
    fn a_transfer_larger_than_a_buffer_is_whole() {
        let (_dir, _path, disk) = temp(8 << 20);
        let data: Vec<u8> = (0..2 * COPY_BUFFER_BYTES + 3 * 4096)
            .map(|i| (i / 4096 % 251) as u8)
            .collect();
        let (head, tail) = data.split_at(COPY_BUFFER_BYTES - 512);
        disk.write_at(Sector::new(8), &[IoSlice::new(head), IoSlice::new(tail)])
            .unwrap();
        let mut back = vec![0; data.len()];
        disk.read_at(Sector::new(8), &mut back).unwrap();
        assert!(back == data);
    }

    #[test]
    fn aligned_and_other_memory_mix_in_one_write() {
        let (_dir, _path, disk) = temp(4 << 20);
        let stock = BufferPool::new(0);
        let mut aligned = stock.lend(3 * DIRECT_PIECE_MIN);
        aligned
            .iter_mut()
            .enumerate()
            .for_each(|(i, byte)| *byte = (i / 512 % 250) as u8);
        let (one, two) = aligned.split_at(DIRECT_PIECE_MIN);
        let header = [251; 512];
        let odd = [252; 700];
        let parts: Vec<&[u8]> = vec![&header, one, two, &odd, one, &[253; 324], two];
        disk.write_at(
            Sector::new(5),
            &parts
                .iter()
                .map(|part| IoSlice::new(part))
                .collect::<Vec<_>>(),
        )
        .unwrap();
        let whole = parts.concat();
        let mut back = stock.lend(whole.len());
        disk.read_at(Sector::new(5), &mut back).unwrap();
        assert!(back[..] == whole[..]);
        disk.read_at(Sector::new(6), &mut back[1..DIRECT_PIECE_MIN + 1])
            .unwrap();
        assert!(
            back[1..DIRECT_PIECE_MIN + 1] == *one,
            "memory that is not aligned"
        );
    }

    #[test]
    fn a_disk_open_for_writing_is_locked() {
        let (_dir, path, disk) = temp(1 << 16);
        assert!(matches!(
            FileDisk::open(&path, OpenMode::Write),
            Err(DiskOpenError::InUse { .. })
        ));
        let look = FileDisk::open(&path, OpenMode::ReadUnlocked).unwrap();
        drop(disk);
        assert!(
            look.write_at(Sector::new(0), &[IoSlice::new(&[1; 512])])
                .is_err(),
            "looking writes nothing"
        );
        assert!(FileDisk::open(&path, OpenMode::Write).is_ok());
    }

    #[test]
    fn a_file_that_is_deleted_or_cut_short_is_not_there() {
        let (_dir, path, disk) = temp(1 << 20);
        disk.check_present().unwrap();
        disk.file.set_len(1 << 19).unwrap();
        assert_eq!(
            disk.check_present().unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
        disk.file.set_len(1 << 21).unwrap();
        disk.check_present().unwrap();
        std::fs::remove_file(path).unwrap();
        assert_eq!(
            disk.check_present().unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }

    #[test]
    fn odd_paths_are_named_in_the_error() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join("gone");
        let said = FileDisk::open(&gone, OpenMode::Read)
            .unwrap_err()
            .to_string();
        assert!(said.contains("gone"), "{said}");
        assert!(matches!(
            FileDisk::open(Path::new("/dev/null"), OpenMode::Read),
            Err(DiskOpenError::WrongKind { .. })
        ));
    }

    #[test]
    fn allocated_sectors_take_host_space() {
        let (_dir, path, disk) = temp(8 << 20);
        let before = std::fs::metadata(&path).unwrap().blocks();
        disk.allocate(Sector::new(0), 2048).unwrap();
        assert!(std::fs::metadata(&path).unwrap().blocks() >= before + 2048);
    }
}
