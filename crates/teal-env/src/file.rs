//! A disk in a file of a host file system, or a raw block device.
//!
//! # How
//! 1. The file is locked exclusively (`flock`) for as long as it is open for writing, so that a
//!    store is never mounted twice; of a loop device also the file it lies on ([`backing`]).
//! 2. Whole, aligned transfers bypass the page cache through a second, `O_DIRECT` descriptor:
//!    memory that is aligned goes as it is, the rest through an aligned buffer ([`gather`]). If the
//!    host refuses `O_DIRECT`, everything goes through the page cache.
//! 3. A block device that is mounted or otherwise held by the kernel is refused with `O_EXCL`, and
//!    claimed by a descriptor of its own until it is mounted itself.

mod backing;
mod gather;
mod opening;

pub use opening::{DiskOpenError, OpenMode};

use crate::buffer::{ALIGN, BufferPool};
use crate::disk::{Disk, DiskShape, HostRoom};
use gather::{COPY_BUFFER_BYTES, GatheredWrite};
use rustix::fs::{self, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use teal_types::{SECTOR, Sector};

/// The number of buffers kept for the next transfers.
const BUFFERS_MAX: usize = 4;
/// The least bytes of a part that the device is pointed to: below this, a copy costs less than a
/// piece of the request of its own.
const DIRECT_PIECE_MIN: usize = 16 << 10;

/// A file or block device as a [`Disk`].
#[derive(Debug)]
pub struct FileDisk {
    file: File,
    direct: Option<File>,
    shape: DiskShape,
    /// The descriptor that keeps others from mounting the block device.
    claim: Mutex<Option<OwnedFd>>,
    /// The locks on the layers beneath the block device.
    backing: Mutex<Vec<OwnedFd>>,
    buffers: Arc<BufferPool>,
}

impl FileDisk {
    /// Opens `path`.
    ///
    /// # Errors
    /// [`DiskOpenError`], naming the path.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Self, DiskOpenError> {
        let failed = |source: io::Error| DiskOpenError::Io {
            doing: mode.verb(),
            path: path.to_owned(),
            source,
        };
        let is_block = is_block_device(path)?;
        let flags = mode.flags();
        // Claimed before it is opened for use: a mounted device is refused here.
        let claim = if is_block && mode == OpenMode::Write {
            Some(open_descriptor(path, mode, flags | OFlags::EXCL)?)
        } else {
            None
        };
        let file = File::from(open_descriptor(path, mode, flags)?);
        lock_file(&file, path, mode)?;
        // The path may lead elsewhere by now: the descriptor counts.
        let meta = file.metadata().map_err(failed)?;
        if !meta.is_file() && !meta.file_type().is_block_device() {
            return Err(DiskOpenError::WrongKind {
                path: path.to_owned(),
            });
        }
        let backing = if is_block && mode != OpenMode::ReadUnlocked {
            backing::lock_backing(path, meta.rdev(), mode)?
        } else {
            Vec::new()
        };
        if let OpenMode::Create(bytes) = mode {
            if let Err(errno) = fs::ftruncate(&file, bytes / SECTOR * SECTOR) {
                let _ = fs::unlink(path);
                return Err(failed(errno.into()));
            }
            sync_parent_directory(path).map_err(failed)?;
        }
        let shape = read_shape(&file, is_block, meta.rdev()).map_err(failed)?;
        debug_assert!(shape.logical <= shape.physical);
        let direct_flags = (flags & !(OFlags::CREATE | OFlags::EXCL)) | OFlags::DIRECT;
        let direct = fs::open(path, direct_flags, Mode::empty());
        Ok(Self {
            file,
            direct: direct.ok().map(File::from),
            shape,
            claim: Mutex::new(claim),
            backing: Mutex::new(backing),
            buffers: BufferPool::new(BUFFERS_MAX * COPY_BUFFER_BYTES),
        })
    }

    /// Lets the block device be mounted: the kernel claims it then, until it is unmounted. The lock
    /// stays.
    pub fn release_claim(&self) {
        *self.claim.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Lets other processes open the file or device, while this one may still read it. Nothing may
    /// be written from then on.
    pub fn release_locks(&self) {
        self.release_claim();
        self.backing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
        // A failure leaves the lock to the end of the process.
        let _ = fs::flock(&self.file, fs::FlockOperation::Unlock);
    }

    /// Forces all transfers through the page cache (for hosts on which `O_DIRECT` is slow or
    /// broken).
    #[must_use]
    pub fn without_direct_io(mut self) -> Self {
        self.direct = None;
        self
    }

    /// Returns the descriptor for direct transfers, if this one is of whole logical blocks.
    fn direct_for(&self, at: Sector, len: usize) -> Option<&File> {
        let unit = u64::from(self.shape.logical);
        let is_whole = at.byte_offset().is_multiple_of(unit) && (len as u64).is_multiple_of(unit);
        self.direct.as_ref().filter(|_| is_whole)
    }
}

/// Returns whether a path leads to a block device. A path that leads nowhere is left to the
/// opening, which may make it.
fn is_block_device(path: &Path) -> Result<bool, DiskOpenError> {
    let Ok(meta) = std::fs::metadata(path) else {
        return Ok(false);
    };
    let kind = meta.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        // Not opened: a pipe would wait for a process at its other end.
        return Err(DiskOpenError::WrongKind {
            path: path.to_owned(),
        });
    }
    Ok(kind.is_block_device())
}

fn open_descriptor(path: &Path, mode: OpenMode, flags: OFlags) -> Result<OwnedFd, DiskOpenError> {
    fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(|errno| match errno {
        Errno::BUSY => DiskOpenError::InUse {
            path: path.to_owned(),
        },
        errno => DiskOpenError::Io {
            doing: mode.verb(),
            path: path.to_owned(),
            source: errno.into(),
        },
    })
}

fn lock_file(file: &File, path: &Path, mode: OpenMode) -> Result<(), DiskOpenError> {
    let Some(operation) = mode.lock_operation() else {
        return Ok(());
    };
    fs::flock(file, operation).map_err(|errno| match errno {
        // Another process holds a lock that excludes this one.
        Errno::AGAIN => DiskOpenError::InUse {
            path: path.to_owned(),
        },
        errno => DiskOpenError::Io {
            doing: mode.verb(),
            path: path.to_owned(),
            source: errno.into(),
        },
    })
}

/// Makes the name of a new file durable.
fn sync_parent_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let dir = fs::open(
        parent.unwrap_or(Path::new(".")),
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    match fs::fsync(&dir) {
        // Some file systems do not sync directories by themselves.
        Ok(()) | Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Asks the kernel for the properties of the disk.
fn read_shape(file: &File, is_block: bool, rdev: u64) -> io::Result<DiskShape> {
    // A device has no length in its metadata.
    let bytes = fs::seek(file, fs::SeekFrom::End(0))?;
    let (logical, physical) = if is_block {
        (fs::ioctl_blksszget(file)?, fs::ioctl_blkpbszget(file)?)
    } else {
        (512, 4096)
    };
    Ok(DiskShape {
        sectors: bytes / SECTOR,
        logical,
        physical: physical.max(logical),
        rotational: is_block && is_rotational(rdev),
        sparse: !is_block,
    })
}

/// Returns whether a block device, or the disk of which it is a partition, has platters.
fn is_rotational(rdev: u64) -> bool {
    let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
    let base = format!("/sys/dev/block/{major}:{minor}");
    let mut files = ["queue/rotational", "../queue/rotational"].iter();
    files.any(|file| {
        let text = std::fs::read_to_string(format!("{base}/{file}"));
        text.is_ok_and(|text| text.trim() == "1")
    })
}

impl FileDisk {
    /// Returns whether the device can be pointed to this memory.
    fn is_aligned(&self, memory: &[u8]) -> bool {
        let unit = self.shape.logical as usize;
        let address = memory.as_ptr().addr();
        address.is_multiple_of(ALIGN.min(unit)) && memory.len().is_multiple_of(unit)
    }

    fn read_direct(&self, direct: &File, at: Sector, buf: &mut [u8]) -> io::Result<()> {
        if self.is_aligned(buf) {
            return direct.read_exact_at(buf, at.byte_offset());
        }
        // Memory that is not aligned is read by way of a buffer.
        let mut aligned = self.buffers.lend(COPY_BUFFER_BYTES);
        let mut at = at.byte_offset();
        for part in buf.chunks_mut(COPY_BUFFER_BYTES) {
            let read = &mut aligned[..part.len()];
            direct.read_exact_at(read, at)?;
            part.copy_from_slice(read);
            at += part.len() as u64;
        }
        Ok(())
    }

    fn write_direct(&self, direct: &File, at: Sector, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let copies = self.buffers.lend(COPY_BUFFER_BYTES);
        let mut request = GatheredWrite::new(at.byte_offset(), copies);
        let unit = self.shape.logical as usize;
        for part in parts {
            // A part may only be passed on as it is where a block begins: the device takes pieces
            // of whole blocks.
            let is_at_block = request.len().is_multiple_of(unit);
            if part.len() >= DIRECT_PIECE_MIN && self.is_aligned(part) && is_at_block {
                request.append_direct(part);
            } else {
                request.append_copy(part, direct)?;
            }
            if request.is_full() && request.len().is_multiple_of(unit) {
                request.write_out(direct)?;
            }
        }
        request.write_out(direct)
    }
}

impl Disk for FileDisk {
    fn shape(&self) -> DiskShape {
        self.shape
    }

    fn read_at(&self, at: Sector, buf: &mut [u8]) -> io::Result<()> {
        if let Some(direct) = self.direct_for(at, buf.len()) {
            match self.read_direct(direct, at, buf) {
                // The host refuses this direct transfer; the page cache takes it.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                result => return result,
            }
        }
        self.file.read_exact_at(buf, at.byte_offset())
    }

    fn write_at(&self, at: Sector, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let len = parts.iter().map(|part| part.len()).sum();
        if let Some(direct) = self.direct_for(at, len) {
            match self.write_direct(direct, at, parts) {
                // As when reading. A part that has been written is written again.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                result => return result,
            }
        }
        let mut at = at.byte_offset();
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
        let bytes = sectors * SECTOR;
        let keep_size = FallocateFlags::KEEP_SIZE;
        match fs::fallocate(&self.file, keep_size, at.byte_offset(), bytes) {
            Ok(()) => Ok(()),
            // A host without fallocate: writing zeros into a range without content takes the space
            // as well.
            Err(Errno::OPNOTSUPP) => {
                self.write_at(at, &[IoSlice::new(&vec![0; bytes as usize])])?;
                self.sync()
            }
            Err(errno) => Err(errno.into()),
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
        if !meta.is_file() {
            return Ok(());
        }
        // An open file lives on without a name, but no later opening finds it.
        if meta.nlink() == 0 {
            let what = "its file was deleted";
            return Err(io::Error::new(io::ErrorKind::NotFound, what));
        }
        if meta.len() < self.shape.sectors * SECTOR {
            let what = "its file was cut short";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
        }
        Ok(())
    }

    fn discard(&self, at: Sector, sectors: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let bytes = sectors * SECTOR;
        Ok(fs::fallocate(&self.file, flags, at.byte_offset(), bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

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
