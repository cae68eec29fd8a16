//! Operations on a tree by path, as values that can be printed and repeated.

use crate::rng::Rng;
use std::path::PathBuf;
use teal_types::{FileType, RenameMode, Timestamp, XattrMode};

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
        mode: RenameMode,
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
        mode: XattrMode,
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
