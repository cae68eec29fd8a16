//! Content and attributes of objects in the model.

use super::ReferenceModel;
use super::bytes::SparseBytes;
use super::inode::{Ino, Inode, InodeKind, ObjectStat};
use rustix::io::Errno;
use teal_types::limits::{XATTR_NAME_MAX, XATTR_VALUE_MAX};
use teal_types::{FileType, Timestamp, XattrMode};

const S_ISUID: u32 = 0o4000;
const S_ISGID: u32 = 0o2000;
const S_IXGRP: u32 = 0o0010;

impl ReferenceModel {
    /// Returns the attributes that `stat` shows.
    ///
    /// # Errors
    /// `ESTALE` if there is no such object.
    pub fn stat(&self, ino: Ino) -> Result<ObjectStat, Errno> {
        let inode = self.inode(ino)?;
        let (kind, size, rdev) = match &inode.kind {
            InodeKind::File(bytes) => (FileType::File, bytes.size(), (0, 0)),
            InodeKind::Dir { .. } => (FileType::Dir, 0, (0, 0)),
            InodeKind::Symlink(target) => (FileType::Symlink, target.len() as u64, (0, 0)),
            InodeKind::Special(kind, rdev) => (*kind, 0, *rdev),
        };
        // A directory counts itself, its entry in the parent, and the `..` of each subdirectory.
        let nlink = match &inode.kind {
            InodeKind::Dir { entries, .. } if inode.names > 0 => {
                2 + entries.values().filter(|&&e| self.is_dir(e)).count() as u32
            }
            _ => inode.names,
        };
        let Inode {
            perm,
            uid,
            gid,
            mtime,
            ..
        } = *inode;
        Ok(ObjectStat {
            kind,
            perm,
            uid,
            gid,
            nlink,
            size,
            rdev,
            mtime,
        })
    }

    pub(super) fn is_dir(&self, ino: Ino) -> bool {
        matches!(
            self.inodes.get(&ino),
            Some(Inode {
                kind: InodeKind::Dir { .. },
                ..
            })
        )
    }

    /// Returns at most `len` bytes from `offset`; fewer at the end of the file.
    ///
    /// # Errors
    /// `EISDIR`, `ELOOP` for a symbolic link, `EINVAL` for anything else that is no file.
    pub fn read(&self, ino: Ino, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
        match &self.inode(ino)?.kind {
            InodeKind::File(bytes) => Ok(bytes.read(offset, len)),
            other => Err(not_a_file(other)),
        }
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL` for anything else.
    pub fn readlink(&self, ino: Ino) -> Result<&[u8], Errno> {
        match &self.inode(ino)?.kind {
            InodeKind::Symlink(target) => Ok(target),
            _ => Err(Errno::INVAL),
        }
    }

    /// Writes `data` at `offset`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn write(&mut self, ino: Ino, offset: u64, data: &[u8]) -> Result<(), Errno> {
        self.change_content(ino, |bytes| bytes.write(offset, data))
    }

    /// Sets the length.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn truncate(&mut self, ino: Ino, size: u64) -> Result<(), Errno> {
        self.change_content(ino, |bytes| bytes.truncate(size))
    }

    /// Makes a hole; the length stays.
    ///
    /// # Errors
    /// `EINVAL` if `len` is 0, and as [`read`](Self::read).
    pub fn punch(&mut self, ino: Ino, offset: u64, len: u64) -> Result<(), Errno> {
        // The type is checked before the length, as Linux does.
        self.change_content(ino, |_| ())?;
        if len == 0 {
            return Err(Errno::INVAL);
        }
        self.change_content(ino, |bytes| bytes.punch(offset, len))
    }

    /// Copies at most `len` bytes: up to the end of the source.
    ///
    /// # Errors
    /// `EINVAL` for overlapping ranges of one file, and as [`read`](Self::read).
    pub fn copy(&mut self, from: (Ino, u64), to: (Ino, u64), len: u64) -> Result<(), Errno> {
        // The target's type is checked first, as Linux opens it first.
        self.read(to.0, 0, 0)?;
        let size = match &self.inode(from.0)?.kind {
            InodeKind::File(bytes) => bytes.size(),
            other => return Err(not_a_file(other)),
        };
        let len = len.min(size.saturating_sub(from.1));
        // Overlapping ranges of one file are refused.
        if from.0 == to.0 && from.1.abs_diff(to.1) < len {
            return Err(Errno::INVAL);
        }
        if len == 0 {
            return Ok(());
        }
        let bytes = self.read(from.0, from.1, len as usize)?;
        self.write(to.0, to.1, &bytes)
    }

    fn change_content(
        &mut self,
        ino: Ino,
        how: impl FnOnce(&mut SparseBytes),
    ) -> Result<(), Errno> {
        let inode = self.inode_mut(ino)?;
        match &mut inode.kind {
            InodeKind::File(bytes) => how(bytes),
            other => return Err(not_a_file(other)),
        }
        // The time of the change is not known to the model.
        inode.mtime = None;
        Ok(())
    }

    /// Sets the permission bits.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a symbolic link.
    pub fn set_mode(&mut self, ino: Ino, perm: u32) -> Result<(), Errno> {
        let inode = self.inode_mut(ino)?;
        if matches!(inode.kind, InodeKind::Symlink(_)) {
            return Err(Errno::OPNOTSUPP);
        }
        inode.perm = perm & 0o7777;
        Ok(())
    }

    /// Sets owner and group. Objects other than directories lose their set-user-id bit, and their
    /// set-group-id bit if the group may execute them.
    ///
    /// # Errors
    /// `ESTALE` if there is no such object.
    pub fn set_owner(&mut self, ino: Ino, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
        let inode = self.inode_mut(ino)?;
        inode.uid = uid.unwrap_or(inode.uid);
        inode.gid = gid.unwrap_or(inode.gid);
        if !matches!(inode.kind, InodeKind::Dir { .. }) {
            inode.perm &= !S_ISUID;
            if inode.perm & S_IXGRP != 0 {
                inode.perm &= !S_ISGID;
            }
        }
        Ok(())
    }

    /// Sets the time of the last change.
    ///
    /// # Errors
    /// `ESTALE` if there is no such object.
    pub fn set_mtime(&mut self, ino: Ino, mtime: Timestamp) -> Result<(), Errno> {
        self.inode_mut(ino)?.mtime = Some(mtime);
        Ok(())
    }

    /// Sets an extended attribute of the namespace `user` or `trusted`.
    ///
    /// # Errors
    /// `ERANGE`, `E2BIG`, `EOPNOTSUPP` (namespace), `EPERM` (`user` on what is neither file nor
    /// directory), `EEXIST`, `ENODATA`.
    pub fn setxattr(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), Errno> {
        let inode = self.inode_mut(ino)?;
        if name.is_empty() || name.len() > XATTR_NAME_MAX {
            return Err(Errno::RANGE);
        }
        if value.len() > XATTR_VALUE_MAX {
            return Err(Errno::TOOBIG);
        }
        debug_assert!(!name.is_empty(), "an empty name was refused");
        may_change_xattr(inode, name)?;
        match (mode, inode.xattrs.contains_key(name)) {
            (XattrMode::Create, true) => Err(Errno::EXIST),
            (XattrMode::Replace, false) => Err(Errno::NODATA),
            _ => {
                inode.xattrs.insert(name.to_vec(), value.to_vec());
                Ok(())
            }
        }
    }

    /// Returns the value of an extended attribute.
    ///
    /// # Errors
    /// `ENODATA`.
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<&[u8], Errno> {
        self.inode(ino)?
            .xattrs
            .get(name)
            .map(Vec::as_slice)
            .ok_or(Errno::NODATA)
    }

    /// Returns the names of the extended attributes.
    ///
    /// # Errors
    /// `ESTALE` if there is no such object.
    pub fn listxattr(&self, ino: Ino) -> Result<impl Iterator<Item = &[u8]>, Errno> {
        Ok(self.inode(ino)?.xattrs.keys().map(Vec::as_slice))
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `ENODATA`, and as [`setxattr`](Self::setxattr).
    pub fn removexattr(&mut self, ino: Ino, name: &[u8]) -> Result<(), Errno> {
        let inode = self.inode_mut(ino)?;
        if name.is_empty() || name.len() > XATTR_NAME_MAX {
            return Err(Errno::RANGE);
        }
        may_change_xattr(inode, name)?;
        inode.xattrs.remove(name).map(drop).ok_or(Errno::NODATA)
    }
}

fn not_a_file(kind: &InodeKind) -> Errno {
    match kind {
        InodeKind::Dir { .. } => Errno::ISDIR,
        InodeKind::Symlink(_) => Errno::LOOP,
        InodeKind::File(_) | InodeKind::Special(..) => Errno::INVAL,
    }
}

fn may_change_xattr(inode: &Inode, name: &[u8]) -> Result<(), Errno> {
    let is_user = name.starts_with(b"user.");
    if is_user && !matches!(inode.kind, InodeKind::File(_) | InodeKind::Dir { .. }) {
        return Err(Errno::PERM);
    }
    if !is_user && !name.starts_with(b"trusted.") {
        return Err(Errno::OPNOTSUPP);
    }
    if name == b"user." || name == b"trusted." {
        return Err(Errno::INVAL);
    }
    Ok(())
}
