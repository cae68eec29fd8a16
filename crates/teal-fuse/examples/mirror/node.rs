//! The nodes of the mirror: descriptors of inodes of its directory, and their attributes.

use parking_lot::{Mutex, RwLock};
use rustix::fs::{Mode, OFlags, Stat, Timespec, UTIME_NOW, UTIME_OMIT};
use rustix::io::Errno;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use teal_fuse::TimeSet;
use teal_types::{Attr, FileType, ObjectNo, Timestamp};

pub(super) type Answer<T> = Result<T, Errno>;

pub(super) struct Node {
    /// Guards which descriptor it is; nothing but the exchange is done under it.
    open: RwLock<Open>,
    /// Guards the position of the descriptor while a directory is listed.
    pub(super) listing: Mutex<()>,
    pub(super) lookups: AtomicU64,
}

#[derive(Clone)]
pub(super) enum Open {
    /// `O_PATH`: good for names and attributes.
    Path(Arc<OwnedFd>),
    /// Good for data as well.
    Data(Arc<OwnedFd>),
}

impl Node {
    pub(super) fn new(open: Open) -> Self {
        Self {
            open: RwLock::new(open),
            listing: Mutex::default(),
            lookups: AtomicU64::new(0),
        }
    }

    pub(super) fn path(&self) -> Arc<OwnedFd> {
        let (Open::Path(fd) | Open::Data(fd)) = &*self.open.read();
        Arc::clone(fd)
    }

    pub(super) fn data(&self, how: OFlags) -> Answer<Arc<OwnedFd>> {
        if let Open::Data(fd) = &*self.open.read() {
            return Ok(Arc::clone(fd));
        }
        let flags = how | OFlags::CLOEXEC;
        let fd = rustix::fs::open(magic(&self.path()), flags, Mode::empty())?;
        let fd = Arc::new(fd);
        *self.open.write() = Open::Data(Arc::clone(&fd));
        Ok(fd)
    }

    pub(super) fn file(&self) -> Answer<Arc<OwnedFd>> {
        self.data(OFlags::RDWR)
    }

    pub(super) fn stat(&self) -> Answer<Stat> {
        rustix::fs::fstat(self.path())
    }
}

/// A path to the very inode of a descriptor, which follows to it.
pub(super) fn magic(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

pub(super) fn attr(stat: &Stat) -> Attr {
    let time = |secs: i64, nanos: u64| Timestamp::new(secs, nanos as u32);
    Attr {
        object: ObjectNo::new(stat.st_ino),
        kind: FileType::from_code((stat.st_mode >> 12 & 15) as u8).unwrap_or(FileType::File),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        size: stat.st_size.cast_unsigned(),
        sectors: stat.st_blocks.cast_unsigned(),
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        btime: Timestamp::default(),
    }
}

pub(super) fn timespec(set: Option<TimeSet>) -> Timespec {
    match set {
        None => Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        Some(TimeSet::Now) => Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        },
        Some(TimeSet::At(at)) => Timespec {
            tv_sec: at.secs,
            tv_nsec: i64::from(at.nanos),
        },
    }
}
