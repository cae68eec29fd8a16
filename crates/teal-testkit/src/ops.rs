//! Operations on a tree by path, and the targets that carry them out.

mod generate;
mod operation;

pub use generate::{OpWeights, generate_op};
pub use operation::{FsOp, SeededBytes};

use crate::model::{ReferenceModel, parent_and_name};
use crate::tree::TreeSnapshot;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// A target that carries out operations: the model, a mounted file system, a server without a
/// kernel.
pub trait OpTarget {
    /// Carries out one operation.
    ///
    /// # Errors
    /// The error number of the operation.
    fn apply(&mut self, op: &FsOp) -> Result<(), Errno>;

    /// Returns the tree as it is now.
    fn snapshot(&mut self) -> TreeSnapshot;
}

impl OpTarget for ReferenceModel {
    fn apply(&mut self, op: &FsOp) -> Result<(), Errno> {
        match op {
            FsOp::Create { .. }
            | FsOp::Mknod { .. }
            | FsOp::Mkdir { .. }
            | FsOp::Symlink { .. } => self.apply_new(op),
            FsOp::Link { .. } | FsOp::Unlink { .. } | FsOp::Rmdir { .. } | FsOp::Rename { .. } => {
                self.apply_name(op)
            }
            FsOp::Open { .. }
            | FsOp::WriteOpen { .. }
            | FsOp::TruncateOpen { .. }
            | FsOp::Close { .. } => self.apply_open(op),
            FsOp::SetMode { .. }
            | FsOp::SetOwner { .. }
            | FsOp::SetMtime { .. }
            | FsOp::SetXattr { .. }
            | FsOp::RemoveXattr { .. } => self.apply_attributes(op),
            FsOp::Write { path, offset, data } => {
                self.write(self.find_path(path)?, *offset, &data.to_bytes())
            }
            FsOp::Truncate { path, size } => self.truncate(self.find_path(path)?, *size),
            FsOp::Punch { path, offset, len } => self.punch(self.find_path(path)?, *offset, *len),
            FsOp::Copy {
                from,
                offset,
                to,
                to_offset,
                len,
            } => {
                let from = self.find_path(from)?;
                self.check_opening(from)?;
                self.copy((from, *offset), (self.find_path(to)?, *to_offset), *len)
            }
            FsOp::Fsync { path } => self.check_opening(self.find_path(path)?),
        }
    }

    fn snapshot(&mut self) -> TreeSnapshot {
        self.to_tree()
    }
}

impl ReferenceModel {
    fn resolve_parent<'p>(&self, path: &'p Path, at_root: Errno) -> Result<(u64, &'p [u8]), Errno> {
        let (parent, name) = parent_and_name(path).ok_or(at_root)?;
        Ok((self.find_dir(parent)?, OsStr::as_bytes(name)))
    }

    /// Refuses what cannot be opened for reading, as a directory can.
    fn check_opening(&self, ino: u64) -> Result<(), Errno> {
        match self.read(ino, 0, 0) {
            Ok(_) | Err(Errno::ISDIR) => Ok(()),
            Err(e) => Err(e),
        }
    }

    fn apply_new(&mut self, op: &FsOp) -> Result<(), Errno> {
        let (FsOp::Create { path, .. }
        | FsOp::Mknod { path, .. }
        | FsOp::Mkdir { path, .. }
        | FsOp::Symlink { path, .. }) = op
        else {
            unreachable!("called for new objects only")
        };
        let (parent, name) = self.resolve_parent(path, Errno::EXIST)?;
        match op {
            FsOp::Create { perm, .. } => self.create(parent, name, *perm),
            FsOp::Mknod {
                kind, perm, rdev, ..
            } => self.mknod(parent, name, *kind, *perm, *rdev),
            FsOp::Mkdir { perm, .. } => self.mkdir(parent, name, *perm),
            FsOp::Symlink { target, .. } => self.symlink(parent, name, target),
            _ => unreachable!("called for new objects only"),
        }
        .map(drop)
    }

    fn apply_name(&mut self, op: &FsOp) -> Result<(), Errno> {
        match op {
            FsOp::Link { from, to } => {
                let (from, name) = self.resolve_parent(from, Errno::PERM)?;
                let to = self.resolve_parent(to, Errno::EXIST)?;
                self.link(self.lookup(from, name)?, to.0, to.1)
            }
            FsOp::Unlink { path } => {
                let (parent, name) = self.resolve_parent(path, Errno::ISDIR)?;
                self.unlink(parent, name)
            }
            FsOp::Rmdir { path } => {
                let (parent, name) = self.resolve_parent(path, Errno::BUSY)?;
                self.rmdir(parent, name)
            }
            FsOp::Rename { from, to, mode } => {
                let from = self.resolve_parent(from, Errno::BUSY)?;
                let to = self.resolve_parent(to, Errno::BUSY)?;
                self.rename(from, to, *mode)
            }
            _ => unreachable!("called for names only"),
        }
    }

    fn apply_attributes(&mut self, op: &FsOp) -> Result<(), Errno> {
        match op {
            FsOp::SetMode { path, perm } => self.set_mode(self.find_path(path)?, *perm),
            FsOp::SetOwner { path, uid, gid } => self.set_owner(self.find_path(path)?, *uid, *gid),
            FsOp::SetMtime { path, mtime } => self.set_mtime(self.find_path(path)?, *mtime),
            FsOp::SetXattr {
                path,
                name,
                value,
                mode,
            } => self.setxattr(self.find_path(path)?, name, value, *mode),
            FsOp::RemoveXattr { path, name } => self.removexattr(self.find_path(path)?, name),
            _ => unreachable!("called for attributes only"),
        }
    }

    fn apply_open(&mut self, op: &FsOp) -> Result<(), Errno> {
        let open = |model: &Self, slot: &u8| model.slots.get(slot).copied().ok_or(Errno::BADF);
        match op {
            FsOp::Open { slot, path } => {
                let ino = self.find_path(path)?;
                self.read(ino, 0, 0)?;
                self.open(ino)?;
                if let Some(before) = self.slots.insert(*slot, ino) {
                    self.forget(before);
                }
                Ok(())
            }
            FsOp::WriteOpen { slot, offset, data } => {
                self.write(open(self, slot)?, *offset, &data.to_bytes())
            }
            FsOp::TruncateOpen { slot, size } => self.truncate(open(self, slot)?, *size),
            FsOp::Close { slot } => {
                let ino = open(self, slot)?;
                self.slots.remove(slot);
                self.forget(ino);
                Ok(())
            }
            _ => unreachable!("called for open files only"),
        }
    }
}
