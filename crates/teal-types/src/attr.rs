//! The attributes of an object, as `stat` shows them.

use crate::{ObjectNo, Timestamp};
use serde::{Deserialize, Serialize};

/// The kind of an object, fixed when it is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileType {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    Char,
    /// A block device.
    Block,
}

impl FileType {
    /// Returns the stored code: the `S_IFMT` bits of `st_mode` shifted right by 12, which is also
    /// the
    /// `d_type` of readdir.
    pub const fn code(self) -> u8 {
        match self {
            Self::Fifo => 1,
            Self::Char => 2,
            Self::Dir => 4,
            Self::Block => 6,
            Self::File => 8,
            Self::Symlink => 10,
            Self::Socket => 12,
        }
    }
    /// Returns the type of a stored code.
    pub const fn from_code(code: u8) -> Option<Self> {
        // The gaps are codes that Linux does not use, or uses for nothing that is stored.
        Some(match code {
            1 => Self::Fifo,
            2 => Self::Char,
            4 => Self::Dir,
            6 => Self::Block,
            8 => Self::File,
            10 => Self::Symlink,
            12 => Self::Socket,
            _ => return None,
        })
    }
    /// Returns whether this is a directory.
    pub const fn is_dir(self) -> bool {
        matches!(self, Self::Dir)
    }
}

/// The attributes of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// The object.
    pub object: ObjectNo,
    /// Its type.
    pub kind: FileType,
    /// Permission bits: the low 12 bits of `st_mode`.
    pub perm: u16,
    /// Number of names; for a directory 2 plus its subdirectories.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of character and block devices, in the kernel's 32-bit `new_encode_dev` form.
    pub rdev: u32,
    /// Length in bytes.
    pub size: u64,
    /// Space taken, in 512-byte units (`st_blocks`).
    pub sectors: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of content or attributes.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
}
