//! Operations on a tree by path, and the targets that carry them out.

mod generate;

pub use generate::{OpWeights, generate_op};

use crate::model::{ReferenceModel, RenameKind, XattrFlag, parent_and_name};
use crate::rng::Rng;
use crate::tree::TreeSnapshot;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use teal_types::{FileType, Timestamp};

/// Bytes to write, by seed: short to print, the same everywhere, never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeededBytes {
    /// The seed of the bytes.
    pub seed: u64,
    /// The number of bytes.
    pub len: usize,
}

impl SeededBytes {
    /// Returns the bytes.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        Rng::new(self.seed).fill(&mut bytes);
        bytes.iter_mut().filter(|b| **b == 0).for_each(|b| *b = 1);
        bytes
    }
}

/// An operation. Paths are relative to the root; symbolic links are never followed: on the way they
/// are `ELOOP`, at the end they are the object.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the fields are the arguments of the system call of that name"
)]
pub enum FsOp {
    /// `open(O_CREAT | O_EXCL)`.
    Create { path: PathBuf, perm: u32 },
    /// `mknod`.
    Mknod {
        path: PathBuf,
        kind: FileType,
        perm: u32,
        rdev: (u32, u32),
    },
    /// `mkdir`.
    Mkdir { path: PathBuf, perm: u32 },
    /// `symlink`.
    Symlink { path: PathBuf, target: Vec<u8> },
    /// `link`.
    Link { from: PathBuf, to: PathBuf },
    /// `unlink`.
    Unlink { path: PathBuf },
    /// `rmdir`.
    Rmdir { path: PathBuf },
    /// `renameat2`.
    Rename {
        from: PathBuf,
        to: PathBuf,
        mode: RenameKind,
    },
    /// `pwrite`. Here and below: `EISDIR` for a directory, `ELOOP` for a symbolic link, `EINVAL`
    /// for a special file.
    Write {
        path: PathBuf,
        offset: u64,
        data: SeededBytes,
    },
    /// `ftruncate`.
    Truncate { path: PathBuf, size: u64 },
    /// `fallocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)`.
    Punch {
        path: PathBuf,
        offset: u64,
        len: u64,
    },
    /// `copy_file_range`, again and again until all is copied or the source, as long as it was,
    /// ends.
    Copy {
        from: PathBuf,
        offset: u64,
        to: PathBuf,
        to_offset: u64,
        len: u64,
    },
    /// `chmod`.
    SetMode { path: PathBuf, perm: u32 },
    /// `lchown`.
    SetOwner {
        path: PathBuf,
        uid: Option<u32>,
        gid: Option<u32>,
    },
    /// `utimensat`.
    SetMtime { path: PathBuf, mtime: Timestamp },
    /// `lsetxattr`.
    SetXattr {
        path: PathBuf,
        name: Vec<u8>,
        value: Vec<u8>,
        mode: XattrFlag,
    },
    /// `lremovexattr`.
    RemoveXattr { path: PathBuf, name: Vec<u8> },
    /// `fsync` of a file or directory.
    Fsync { path: PathBuf },
    /// Opens a file and keeps it open in `slot`; what was open there is closed.
    Open { slot: u8, path: PathBuf },
    /// `pwrite` to the file in `slot`; `EBADF` if there is none.
    WriteOpen {
        slot: u8,
        offset: u64,
        data: SeededBytes,
    },
    /// `ftruncate` of the file in `slot`; `EBADF` if there is none.
    TruncateOpen { slot: u8, size: u64 },
    /// Closes the file in `slot`; `EBADF` if there is none.
    Close { slot: u8 },
}

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
                match self.read(from, 0, 0) {
                    // A directory can be opened for reading.
                    Ok(_) | Err(Errno::ISDIR) => {}
                    Err(e) => return Err(e),
                }
                self.copy((from, *offset), (self.find_path(to)?, *to_offset), *len)
            }
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
            FsOp::Fsync { path } => match self.read(self.find_path(path)?, 0, 0) {
                Ok(_) | Err(Errno::ISDIR) => Ok(()),
                Err(e) => Err(e),
            },
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
