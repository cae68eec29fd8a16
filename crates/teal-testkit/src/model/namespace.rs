//! Names in the model: making, linking, removing and moving them.

use super::ReferenceModel;
use super::bytes::SparseBytes;
use super::inode::{Ino, Inode, InodeKind, ROOT};
use rustix::io::Errno;
use std::collections::BTreeMap;
use teal_types::limits::TARGET_MAX;
use teal_types::{FileType, NAME_MAX, RenameMode};

const S_ISGID: u32 = 0o2000;

impl ReferenceModel {
    fn dir_entries(&self, dir: Ino) -> Result<&BTreeMap<Vec<u8>, Ino>, Errno> {
        match &self.inode(dir)?.kind {
            InodeKind::Dir { entries, .. } => Ok(entries),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// Returns the object of this name.
    ///
    /// # Errors
    /// `ENOTDIR`, `ENAMETOOLONG`, `ENOENT`.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Ino, Errno> {
        // The parent's type is checked before the name's length, as Linux does.
        let entries = self.dir_entries(parent)?;
        if name.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        entries.get(name).copied().ok_or(Errno::NOENT)
    }

    /// Returns the names in a directory, in the order of their bytes, without `.` and `..`.
    ///
    /// # Errors
    /// `ENOTDIR`.
    pub fn readdir(&self, dir: Ino) -> Result<impl Iterator<Item = (&[u8], Ino)>, Errno> {
        Ok(self
            .dir_entries(dir)?
            .iter()
            .map(|(name, &ino)| (name.as_slice(), ino)))
    }

    /// Makes an empty file.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT` if the directory was removed, and as [`lookup`](Self::lookup).
    pub fn create(&mut self, parent: Ino, name: &[u8], perm: u32) -> Result<Ino, Errno> {
        self.make_object(
            parent,
            name,
            InodeKind::File(SparseBytes::default()),
            perm & 0o7777,
        )
    }

    /// Makes a pipe, socket, device or empty file.
    ///
    /// # Errors
    /// `EINVAL` for other types, and as [`create`](Self::create).
    pub fn mknod(
        &mut self,
        parent: Ino,
        name: &[u8],
        kind: FileType,
        perm: u32,
        rdev: (u32, u32),
    ) -> Result<Ino, Errno> {
        let kind = match kind {
            FileType::File => InodeKind::File(SparseBytes::default()),
            FileType::Fifo | FileType::Socket => InodeKind::Special(kind, (0, 0)),
            FileType::Char | FileType::Block => InodeKind::Special(kind, rdev),
            FileType::Dir | FileType::Symlink => return Err(Errno::INVAL),
        };
        self.make_object(parent, name, kind, perm & 0o7777)
    }

    /// Makes a directory. Of the upper mode bits only the sticky one counts.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn mkdir(&mut self, parent: Ino, name: &[u8], perm: u32) -> Result<Ino, Errno> {
        self.make_object(
            parent,
            name,
            InodeKind::Dir {
                entries: BTreeMap::new(),
                parent,
            },
            perm & 0o1777,
        )
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// `ENOENT` if the target is empty, `ENAMETOOLONG` if it is too long, and as
    /// [`create`](Self::create).
    pub fn symlink(&mut self, parent: Ino, name: &[u8], target: &[u8]) -> Result<Ino, Errno> {
        match target.len() {
            0 => Err(Errno::NOENT),
            len if len > TARGET_MAX => Err(Errno::NAMETOOLONG),
            _ => self.make_object(parent, name, InodeKind::Symlink(target.to_vec()), 0o777),
        }
    }

    fn make_object(
        &mut self,
        parent: Ino,
        name: &[u8],
        kind: InodeKind,
        perm: u32,
    ) -> Result<Ino, Errno> {
        self.is_free(parent, name)?;
        let dir = self.inode(parent)?;
        let is_dir = matches!(kind, InodeKind::Dir { .. });
        let (gid, perm) = match dir.perm & S_ISGID {
            0 => (0, perm),
            inherited => (dir.gid, if is_dir { perm | inherited } else { perm }),
        };
        let ino = self.next;
        self.next += 1;
        let inode = Inode {
            kind,
            perm,
            uid: 0,
            gid,
            names: 0,
            opens: 0,
            mtime: None,
            xattrs: BTreeMap::new(),
        };
        self.inodes.insert(ino, inode);
        self.attach_name(parent, name, ino);
        Ok(ino)
    }

    fn is_free(&self, parent: Ino, name: &[u8]) -> Result<(), Errno> {
        match self.lookup(parent, name) {
            Ok(_) => Err(Errno::EXIST),
            // Nothing can be made in a directory that was removed.
            Err(Errno::NOENT) if self.inode(parent)?.names > 0 => Ok(()),
            Err(e) => Err(e),
        }
    }

    fn attach_name(&mut self, dir: Ino, name: &[u8], ino: Ino) {
        if let Some(Inode {
            kind: InodeKind::Dir { entries, .. },
            mtime,
            ..
        }) = self.inodes.get_mut(&dir)
        {
            entries.insert(name.to_vec(), ino);
            *mtime = None;
        }
        let inode = self.inodes.get_mut(&ino).expect("attached objects exist");
        inode.names += 1;
        if let InodeKind::Dir { parent, .. } = &mut inode.kind {
            *parent = dir;
        }
    }

    fn detach_name(&mut self, dir: Ino, name: &[u8]) -> Ino {
        let Some(Inode {
            kind: InodeKind::Dir { entries, .. },
            mtime,
            ..
        }) = self.inodes.get_mut(&dir)
        else {
            panic!("names are in directories")
        };
        *mtime = None;
        let ino = entries.remove(name).expect("detached names exist");
        self.inodes
            .get_mut(&ino)
            .expect("named objects exist")
            .names -= 1;
        ino
    }

    /// Gives an object one more name.
    ///
    /// # Errors
    /// `EEXIST`, `EPERM` for a directory, `ENOENT` for an object without names, and as
    /// [`lookup`](Self::lookup).
    pub fn link(&mut self, ino: Ino, parent: Ino, name: &[u8]) -> Result<(), Errno> {
        self.is_free(parent, name)?;
        if self.is_dir(ino) {
            return Err(Errno::PERM);
        }
        if self.inode(ino)?.names == 0 {
            return Err(Errno::NOENT);
        }
        self.attach_name(parent, name, ino);
        Ok(())
    }

    /// Removes a name of what is no directory.
    ///
    /// # Errors
    /// `EISDIR`, and as [`lookup`](Self::lookup).
    pub fn unlink(&mut self, parent: Ino, name: &[u8]) -> Result<(), Errno> {
        if self.is_dir(self.lookup(parent, name)?) {
            return Err(Errno::ISDIR);
        }
        let ino = self.detach_name(parent, name);
        self.reclaim(ino);
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOTDIR`, `ENOTEMPTY`, and as [`lookup`](Self::lookup).
    pub fn rmdir(&mut self, parent: Ino, name: &[u8]) -> Result<(), Errno> {
        let ino = self.lookup(parent, name)?;
        if !self.dir_entries(ino)?.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.detach_name(parent, name);
        self.reclaim(ino);
        Ok(())
    }

    /// Returns whether `ino` is `dir` or lies above it.
    fn is_above(&self, ino: Ino, mut dir: Ino) -> bool {
        loop {
            if dir == ino {
                return true;
            }
            match self.inodes.get(&dir) {
                Some(Inode {
                    kind: InodeKind::Dir { parent, .. },
                    ..
                }) if dir != ROOT => dir = *parent,
                _ => return false,
            }
        }
    }

    /// Moves a name, or exchanges two.
    ///
    /// # Errors
    /// `EEXIST`, `EINVAL` for moving a directory below itself, `ENOTEMPTY`, `EISDIR`, `ENOTDIR`,
    /// and as [`lookup`](Self::lookup).
    pub fn rename(
        &mut self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
    ) -> Result<(), Errno> {
        self.dir_entries(to.0)?;
        let moved = self.lookup(from.0, from.1)?;
        let there = match self.lookup(to.0, to.1) {
            Ok(_) if mode == RenameMode::NoReplace => return Err(Errno::EXIST),
            Ok(ino) => Some(ino),
            Err(Errno::NOENT) if mode != RenameMode::Exchange && self.inode(to.0)?.names > 0 => {
                None
            }
            Err(e) => return Err(e),
        };
        self.check_cycle((from.0, moved), (to.0, there), mode)?;
        if there == Some(moved) {
            return Ok(());
        }
        if mode == RenameMode::Exchange {
            let other = self.detach_name(to.0, to.1);
            self.detach_name(from.0, from.1);
            self.attach_name(to.0, to.1, moved);
            self.attach_name(from.0, from.1, other);
            return Ok(());
        }
        if let Some(there) = there {
            self.check_replaceable(there, moved)?;
            self.detach_name(to.0, to.1);
            self.reclaim(there);
        }
        self.detach_name(from.0, from.1);
        self.attach_name(to.0, to.1, moved);
        Ok(())
    }

    /// Refuses a rename after which a directory would lie inside itself. Both ends are a directory
    /// and the object that its name leads to.
    fn check_cycle(
        &self,
        (from_dir, moved): (Ino, Ino),
        (to_dir, there): (Ino, Option<Ino>),
        mode: RenameMode,
    ) -> Result<(), Errno> {
        if self.is_dir(moved) && self.is_above(moved, to_dir) {
            return Err(Errno::INVAL);
        }
        let Some(there) = there else {
            return Ok(());
        };
        if !self.is_dir(there) || !self.is_above(there, from_dir) {
            return Ok(());
        }
        debug_assert_ne!(there, ROOT, "the root has no name");
        // The target contains the source, so it is not empty; an exchange would make a cycle.
        Err(if mode == RenameMode::Exchange {
            Errno::INVAL
        } else {
            Errno::NOTEMPTY
        })
    }

    /// Refuses to replace `there` by `moved` unless both are directories, of which the first is
    /// empty, or neither is one.
    fn check_replaceable(&self, there: Ino, moved: Ino) -> Result<(), Errno> {
        match (self.is_dir(moved), self.is_dir(there)) {
            (true, false) => Err(Errno::NOTDIR),
            (false, true) => Err(Errno::ISDIR),
            (true, true) if !self.dir_entries(there)?.is_empty() => Err(Errno::NOTEMPTY),
            _ => Ok(()),
        }
    }
}
