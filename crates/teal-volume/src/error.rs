//! Why an operation is refused, and the error number a program sees.
//!
//! # Guarantees
//! 1. Every variant has exactly one error number, and damage is always `EIO`: never an empty file,
//!    a missing name or a deletion.

use rustix::io::Errno;
use teal_log::StoreError;
use teal_types::NameError;

/// Why an operation is refused. A variant exists because a caller branches on it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FsError {
    /// No such name, or the directory was removed.
    #[error("no such file or directory")]
    NotFound,
    /// The object number names nothing (any more).
    #[error("the object is gone")]
    Stale,
    /// The name is taken, or the attribute is there already.
    #[error("exists already")]
    Exists,
    /// A directory was needed.
    #[error("not a directory")]
    NotDir,
    /// Anything but a directory was needed.
    #[error("is a directory")]
    IsDir,
    /// The directory has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// The arguments make no sense for this object.
    #[error("invalid argument")]
    Invalid,
    /// A name or symlink target is too long.
    #[error("the name is too long")]
    NameTooLong,
    /// The object has as many names as it can have.
    #[error("too many links")]
    TooManyLinks,
    /// No such extended attribute.
    #[error("no such attribute")]
    NoData,
    /// The name of an extended attribute is empty or too long.
    #[error("out of range")]
    Range,
    /// An offset lies behind the end of the file.
    #[error("no data or hole behind this offset")]
    BehindEnd,
    /// Not offered for this object, or not at all.
    #[error("not supported")]
    NotSupported,
    /// Not allowed to anyone.
    #[error("not permitted")]
    Permission,
    /// Only directories can have this.
    #[error("only for directories")]
    OnlyDir,
    /// The volume, or a limit of the object, is full.
    #[error("no space left")]
    NoSpace,
    /// The file would be longer than files can be.
    #[error("the file is too large")]
    FileTooBig,
    /// The value of an extended attribute is too long.
    #[error("the value is too large")]
    ValueTooBig,
    /// The volume takes no changes.
    #[error("the volume is read-only")]
    ReadOnly,
    /// Only the server has it, and the server cannot be asked now.
    #[error("not here, and the server cannot be asked: {0}")]
    Unreachable(String),
    /// The server, or the way to it, does not accept this machine: asking again does not help.
    #[error("the server does not accept this machine: {0}")]
    Denied(String),
    /// The server was asked, and cannot do it now: asking again later may help.
    #[error("{0}")]
    NotNow(String),
    /// The server was asked, and refuses for good, or cannot read what it must; or one side does
    /// not understand the other.
    #[error("{0}")]
    Refused(String),
    /// Durable here, and not at the server in time.
    #[error("durable here, but the server does not have it: {0}")]
    OnlyHere(String),
    /// A limit of the object or its directory is reached that has no error number of its own.
    #[error("{0} cannot be more than it is")]
    LimitReached(&'static str),
    /// Everything is at the server and here, but what these words name.
    #[error("{0}")]
    Stuck(String),
    /// The store cannot read or write what it must.
    #[error(transparent)]
    Io(StoreError),
}

impl FsError {
    /// Returns the number that a system call returns for the error.
    pub fn errno(&self) -> i32 {
        match self {
            Self::NotFound => Errno::NOENT,
            Self::Stale => Errno::STALE,
            Self::Exists => Errno::EXIST,
            Self::NotDir => Errno::NOTDIR,
            Self::IsDir => Errno::ISDIR,
            Self::NotEmpty => Errno::NOTEMPTY,
            Self::Invalid => Errno::INVAL,
            Self::NameTooLong => Errno::NAMETOOLONG,
            Self::TooManyLinks => Errno::MLINK,
            Self::NoData => Errno::NODATA,
            Self::Range => Errno::RANGE,
            Self::BehindEnd => Errno::NXIO,
            Self::NotSupported => Errno::OPNOTSUPP,
            Self::Permission => Errno::PERM,
            Self::OnlyDir => Errno::ACCESS,
            Self::NoSpace | Self::LimitReached(_) => Errno::NOSPC,
            Self::FileTooBig => Errno::FBIG,
            Self::ValueTooBig => Errno::TOOBIG,
            Self::ReadOnly => Errno::ROFS,
            Self::Unreachable(_) | Self::Denied(_) | Self::NotNow(_) => Errno::HOSTUNREACH,
            Self::Refused(_) | Self::OnlyHere(_) | Self::Stuck(_) | Self::Io(_) => Errno::IO,
        }
        .raw_os_error()
    }

    /// Returns the words of a failure that lies with the server or on the way to it; any other
    /// comes back as it is.
    ///
    /// # Errors
    /// A failure of this machine.
    pub fn into_words_of_server(self) -> Result<String, Self> {
        match self {
            Self::Unreachable(words)
            | Self::Denied(words)
            | Self::NotNow(words)
            | Self::Refused(words)
            | Self::Stuck(words) => Ok(words),
            of_this_machine => Err(of_this_machine),
        }
    }
}

impl From<StoreError> for FsError {
    fn from(e: StoreError) -> Self {
        match e {
            StoreError::NotFound(_) => Self::Stale,
            // The limits with an error number of their own are checked before the store is asked.
            StoreError::NoSpace => Self::NoSpace,
            StoreError::TooBig(what) => Self::LimitReached(what),
            StoreError::ReadOnly => Self::ReadOnly,
            e @ (StoreError::Io { .. }
            | StoreError::Corrupt { .. }
            | StoreError::Poisoned
            | StoreError::WrittenElsewhere) => Self::Io(e),
        }
    }
}

impl From<NameError> for FsError {
    fn from(e: NameError) -> Self {
        match e {
            NameError::TooLong => Self::NameTooLong,
            NameError::Invalid => Self::Invalid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use teal_types::ObjectNo;

    #[test]
    fn damage_is_always_eio() {
        let damaged = StoreError::Corrupt {
            what: "a page",
            at: 7,
            object: None,
        };
        for (from, errno) in [
            (damaged, Errno::IO),
            (StoreError::Poisoned, Errno::IO),
            (StoreError::ReadOnly, Errno::ROFS),
            (StoreError::NoSpace, Errno::NOSPC),
            (StoreError::NotFound(ObjectNo::ROOT), Errno::STALE),
        ] {
            assert_eq!(FsError::from(from).errno(), errno.raw_os_error());
        }
    }
}
