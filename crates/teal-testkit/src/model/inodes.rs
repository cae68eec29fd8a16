//! The objects of the reference file system, and who keeps them.

use super::bytes::SparseBytes;
use rustix::io::Errno;
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

/// The reference file system.
#[derive(Debug, Clone)]
pub struct ReferenceModel {
    pub(super) inodes: BTreeMap<Ino, Inode>,
    pub(super) next: Ino,
    /// Files held open by the operations on paths.
    pub(crate) slots: BTreeMap<u8, Ino>,
}

impl Default for ReferenceModel {
    fn default() -> Self {
        Self::new()
    }
}

impl ReferenceModel {
    /// An empty tree whose root is root's, mode 755.
    pub fn new() -> Self {
        let kind = InodeKind::Dir {
            entries: BTreeMap::new(),
            parent: ROOT,
        };
        let root = Inode {
            kind,
            perm: 0o755,
            uid: 0,
            gid: 0,
            names: 1,
            opens: 0,
            mtime: None,
            xattrs: BTreeMap::new(),
        };
        Self {
            inodes: BTreeMap::from([(ROOT, root)]),
            next: ROOT + 1,
            slots: BTreeMap::new(),
        }
    }

    /// One more user of the object, who keeps it when its names are gone.
    ///
    /// # Errors
    /// `ESTALE` if there is no such object.
    pub fn open(&mut self, ino: Ino) -> Result<(), Errno> {
        self.inode_mut(ino)?.opens += 1;
        Ok(())
    }

    /// One user less.
    ///
    /// # Panics
    /// If it was not opened as often.
    pub fn forget(&mut self, ino: Ino) {
        let inode = self
            .inodes
            .get_mut(&ino)
            .expect("forgotten only while known");
        inode.opens = inode
            .opens
            .checked_sub(1)
            .expect("forgotten as often as opened");
        self.reclaim(ino);
    }

    /// Returns how many objects exist, those without names included.
    pub fn object_count(&self) -> usize {
        self.inodes.len()
    }

    pub(super) fn reclaim(&mut self, ino: Ino) {
        if self
            .inodes
            .get(&ino)
            .is_some_and(|inode| inode.names == 0 && inode.opens == 0)
        {
            self.inodes.remove(&ino);
        }
    }

    pub(super) fn inode(&self, ino: Ino) -> Result<&Inode, Errno> {
        self.inodes.get(&ino).ok_or(Errno::STALE)
    }

    pub(super) fn inode_mut(&mut self, ino: Ino) -> Result<&mut Inode, Errno> {
        self.inodes.get_mut(&ino).ok_or(Errno::STALE)
    }
}
