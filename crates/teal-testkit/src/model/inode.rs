//! Objects of the model, and what `stat` shows of them.

use super::bytes::SparseBytes;
use std::collections::BTreeMap;
use teal_types::{FileType, Timestamp};

/// The number of an object.
pub type Ino = u64;
/// The root directory.
pub const ROOT: Ino = 1;

#[derive(Debug, Clone)]
pub(super) enum InodeKind {
    File(SparseBytes),
    Dir {
        entries: BTreeMap<Vec<u8>, Ino>,
        parent: Ino,
    },
    Symlink(Vec<u8>),
    Special(FileType, (u32, u32)),
}

#[derive(Debug, Clone)]
pub(super) struct Inode {
    pub(super) kind: InodeKind,
    pub(super) perm: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Entries that name it; directories count their subdirectories instead when asked.
    pub(super) names: u32,
    pub(super) opens: u32,
    pub(super) mtime: Option<Timestamp>,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The attributes that `stat` shows, as far as the model knows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectStat {
    /// The type.
    pub kind: FileType,
    /// Low 12 bits of the mode.
    pub perm: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names; for a directory 2 plus its subdirectories, 0 once removed.
    pub nlink: u32,
    /// Bytes of a file or of a symbolic link's target; 0 otherwise.
    pub size: u64,
    /// (major, minor) of a device.
    pub rdev: (u32, u32),
    /// The time of the last change, if an operation set it and none changed it since.
    pub mtime: Option<Timestamp>,
}
