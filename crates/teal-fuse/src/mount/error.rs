//! The reasons for which mounting and unmounting fail.

use crate::transport::DEV_FUSE;
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// The reason for which nothing is mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel has no FUSE.
    #[error(
        "{DEV_FUSE} is missing: load the kernel module `fuse`, \
         or pass the device into the container"
    )]
    NoDevice,
    /// A user cannot mount without it.
    #[error("fusermount3 is missing: install fuse3, or mount as root")]
    NoFusermount,
    /// There is nothing at the mount point.
    #[error("{point} does not exist")]
    Missing {
        /// The mount point.
        point: PathBuf,
    },
    /// There is something else than a directory.
    #[error("{point} is not a directory")]
    NotDirectory {
        /// The mount point.
        point: PathBuf,
    },
    /// A dead mount lies there: the process that served it has died.
    #[error("{point} holds a dead mount: unmount it first (`umount -l` or `fusermount3 -u`)")]
    Dead {
        /// The mount point.
        point: PathBuf,
    },
    /// The mount point or the block device is in use.
    #[error("{point} or its device is busy")]
    Busy {
        /// The mount point.
        point: PathBuf,
    },
    /// This user may not mount, or not there, or not with these options.
    #[error(
        "mounting at {point} is not permitted{}{message}",
        if message.is_empty() { "" } else { ": " }
    )]
    Denied {
        /// The mount point.
        point: PathBuf,
        /// The message of `fusermount3`, if it was asked.
        message: String,
    },
    /// `fusermount3` failed for another reason.
    #[error("fusermount3: {message}")]
    Fusermount {
        /// The message of the program.
        message: String,
    },
    /// The system failed for another reason.
    #[error("mounting at {point}")]
    System {
        /// The mount point.
        point: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
}

impl MountError {
    pub(super) fn from_errno(point: &Path, errno: Errno) -> Self {
        let point = point.to_owned();
        match errno {
            Errno::NOENT => Self::Missing { point },
            Errno::NOTDIR => Self::NotDirectory { point },
            // `stat` of a mount that has lost its server fails like this.
            Errno::NOTCONN => Self::Dead { point },
            Errno::BUSY => Self::Busy { point },
            Errno::ACCESS | Errno::PERM => Self::Denied {
                point,
                message: String::new(),
            },
            other => Self::System {
                point,
                source: other.into(),
            },
        }
    }
}

/// The reason for which a mount is still there.
#[derive(Debug, thiserror::Error)]
pub enum UnmountError {
    /// Files are open or directories in use.
    #[error("{point} is busy")]
    Busy {
        /// The mount point.
        point: PathBuf,
    },
    /// Anything else.
    #[error("unmounting {point}")]
    System {
        /// The mount point.
        point: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
}
