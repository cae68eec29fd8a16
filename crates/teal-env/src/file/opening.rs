//! The ways to open a file or device as a disk, and the reasons for which that fails.

use rustix::fs::{FlockOperation, OFlags};
use std::io;
use std::path::PathBuf;

/// The way in which a store's file or device is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// Reads only, and takes no lock: another process may be writing, so that parts that are read
    /// one after the other may not fit together.
    ReadUnlocked,
    /// Reads only; takes a shared lock.
    Read,
    /// Reads and writes; takes the exclusive lock.
    Write,
    /// Makes a new file of this many bytes; refuses one that exists.
    Create(u64),
}

impl OpenMode {
    pub(super) fn flags(self) -> OFlags {
        let access = match self {
            Self::ReadUnlocked | Self::Read => OFlags::RDONLY,
            Self::Write => OFlags::RDWR,
            Self::Create(_) => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
        };
        access | OFlags::CLOEXEC
    }

    pub(super) fn lock_operation(self) -> Option<FlockOperation> {
        match self {
            Self::ReadUnlocked => None,
            Self::Read => Some(FlockOperation::NonBlockingLockShared),
            Self::Write | Self::Create(_) => Some(FlockOperation::NonBlockingLockExclusive),
        }
    }

    /// Returns the verb for messages.
    pub(super) fn verb(self) -> &'static str {
        match self {
            Self::Create(_) => "make",
            Self::ReadUnlocked | Self::Read | Self::Write => "open",
        }
    }
}

/// The reason for which a path cannot be used as a disk.
#[derive(Debug, thiserror::Error)]
pub enum DiskOpenError {
    /// The host refused.
    #[error("cannot {doing} {path}")]
    Io {
        /// The attempt, as a verb.
        doing: &'static str,
        /// The path as given.
        path: PathBuf,
        /// The host's reason.
        #[source]
        source: io::Error,
    },
    /// Another process has it open.
    #[error("{path} is in use by another process (mounted already?)")]
    InUse {
        /// The path as given.
        path: PathBuf,
    },
    /// The file or device beneath the device is open elsewhere, itself or under another name.
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
