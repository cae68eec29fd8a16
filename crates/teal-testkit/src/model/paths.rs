//! Paths of the reference file system, and its whole tree as a value.

use super::inodes::{Ino, InodeKind, ROOT, ReferenceModel};
use crate::tree::{TreeNode, TreeSnapshot};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

impl ReferenceModel {
    /// The object at a path relative to the root. Symbolic links on the way are `ELOOP`; one at the
    /// end is the object.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ELOOP`, `ENAMETOOLONG`.
    pub fn find_path(&self, path: &Path) -> Result<Ino, Errno> {
        match parent_and_name(path) {
            None => Ok(ROOT),
            Some((parent, name)) => self.lookup(self.find_dir(parent)?, name.as_bytes()),
        }
    }

    /// The directory at a path, for operations on names inside it.
    ///
    /// # Errors
    /// As [`find`](Self::find).
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

    /// Every name in the tree with its object, the root first.
    pub fn list_paths(&self) -> Vec<(PathBuf, Ino)> {
        let mut found = vec![(PathBuf::new(), ROOT)];
        let mut at = 0;
        while at < found.len() {
            if let InodeKind::Dir { entries, .. } = &self.inodes[&found[at].1].kind {
                let dir = found[at].0.clone();
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

    /// The whole tree as a value.
    ///
    /// # Panics
    /// If the model is broken.
    pub fn to_tree(&self) -> TreeSnapshot {
        let mut paths = self.list_paths();
        paths.sort();
        let mut first = BTreeMap::new();
        let mut tree = TreeSnapshot::default();
        for (path, ino) in paths {
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
