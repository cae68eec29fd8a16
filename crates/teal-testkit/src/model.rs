//! A reference file system in memory: what POSIX and Linux say, as plainly as possible.
//!
//! # Guarantees
//! 1. Every operation gives the result and the error that Linux gives to root with umask 0, names
//!    and attributes included.
//! 2. An object without names lives on until it is [forgotten](ReferenceModel::forget) as often as
//!    it was [opened](ReferenceModel::open).
//! 3. Cloning is cheap: contents are shared until changed.
//!
//! # How
//! Objects are addressed as a FUSE server would: by number, and by parent and name. Paths are in
//! [`crate::ops`]. Times are known only where an operation set them: nothing here reads a clock.

mod attributes;
mod bytes;
mod inode;
mod namespace;

pub use inode::{Ino, ObjectStat, ROOT};

use crate::tree::{TreeNode, TreeSnapshot};
use inode::{Inode, InodeKind};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The reference file system.
#[derive(Debug, Clone)]
pub struct ReferenceModel {
    inodes: BTreeMap<Ino, Inode>,
    next: Ino,
    /// Files held open by the operations on paths.
    pub(crate) slots: BTreeMap<u8, Ino>,
}

impl Default for ReferenceModel {
    fn default() -> Self {
        Self::new()
    }
}

impl ReferenceModel {
    /// Makes an empty tree with a root directory of owner root and mode 755.
    pub fn new() -> Self {
        let kind = InodeKind::Dir {
            entries: BTreeMap::new(),
            parent: ROOT,
        };
        // The root counts one name, so that it is never reclaimed.
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

    /// Adds a user of the object, which lives on as long as it has one.
    ///
    /// # Errors
    /// `ESTALE` if there is no such object.
    pub fn open(&mut self, ino: Ino) -> Result<(), Errno> {
        self.inode_mut(ino)?.opens += 1;
        Ok(())
    }

    /// Takes a user of the object away.
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

    /// Returns the number of objects, those without names included.
    pub fn object_count(&self) -> usize {
        self.inodes.len()
    }

    fn reclaim(&mut self, ino: Ino) {
        if self
            .inodes
            .get(&ino)
            .is_some_and(|inode| inode.names == 0 && inode.opens == 0)
        {
            self.inodes.remove(&ino);
        }
    }

    fn inode(&self, ino: Ino) -> Result<&Inode, Errno> {
        self.inodes.get(&ino).ok_or(Errno::STALE)
    }

    fn inode_mut(&mut self, ino: Ino) -> Result<&mut Inode, Errno> {
        self.inodes.get_mut(&ino).ok_or(Errno::STALE)
    }

    /// Returns the object at a path relative to the root. Symbolic links on the way are `ELOOP`;
    /// one at the end is the object.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ELOOP`, `ENAMETOOLONG`.
    pub fn find_path(&self, path: &Path) -> Result<Ino, Errno> {
        match parent_and_name(path) {
            None => Ok(ROOT),
            Some((parent, name)) => self.lookup(self.find_dir(parent)?, name.as_bytes()),
        }
    }

    /// Returns the directory at a path, for operations on names inside it.
    ///
    /// # Errors
    /// As [`find_path`](Self::find_path).
    pub fn find_dir(&self, path: &Path) -> Result<Ino, Errno> {
        path.iter().try_fold(ROOT, |dir, name| {
            let ino = self.lookup(dir, name.as_bytes())?;
            match self.inode(ino)?.kind {
                InodeKind::Dir { .. } => Ok(ino),
                InodeKind::Symlink(_) => Err(Errno::LOOP),
                _ => Err(Errno::NOTDIR),
            }
        })
    }

    /// Returns every name in the tree with its object, the root first.
    pub fn list_paths(&self) -> Vec<(PathBuf, Ino)> {
        let mut found = vec![(PathBuf::new(), ROOT)];
        let mut at = 0;
        while at < found.len() {
            if let InodeKind::Dir { entries, .. } = &self.inodes[&found[at].1].kind {
                let dir = found[at].0.clone();
                // Directories are appended and visited in turn (breadth first).
                found.extend(
                    entries
                        .iter()
                        .map(|(name, &ino)| (dir.join(OsStr::from_bytes(name)), ino)),
                );
            }
            at += 1;
        }
        found
    }

    /// Returns the whole tree as a value.
    ///
    /// # Panics
    /// If the model is broken.
    pub fn to_tree(&self) -> TreeSnapshot {
        let mut paths = self.list_paths();
        paths.sort();
        let mut first = BTreeMap::new();
        let mut tree = TreeSnapshot::default();
        for (path, ino) in paths {
            // Paths are sorted, so that the first name is the same in every tree that is compared.
            let same_as = first.entry(ino).or_insert_with(|| path.clone()).clone();
            let inode = &self.inodes[&ino];
            let stat = self.stat(ino).expect("it has a name");
            let node = TreeNode {
                kind: stat.kind,
                perm: stat.perm,
                uid: stat.uid,
                gid: stat.gid,
                nlink: stat.nlink,
                same_as,
                content: if let InodeKind::File(bytes) = &inode.kind {
                    bytes.to_content()
                } else {
                    Default::default()
                },
                target: if let InodeKind::Symlink(target) = &inode.kind {
                    target.clone()
                } else {
                    vec![]
                },
                rdev: stat.rdev,
                xattrs: inode.xattrs.clone(),
                mtime: inode.mtime,
            };
            tree.nodes.insert(path, node);
        }
        for (&slot, &ino) in &self.slots {
            if let InodeKind::File(bytes) = &self.inodes[&ino].kind {
                tree.open
                    .insert(slot, (self.inodes[&ino].names, bytes.to_content()));
            }
        }
        tree
    }
}

/// Splits off the last component; `None` for the root.
pub(crate) fn parent_and_name(path: &Path) -> Option<(&Path, &OsStr)> {
    Some((path.parent()?, path.file_name()?))
}

#[cfg(test)]
mod tests;
