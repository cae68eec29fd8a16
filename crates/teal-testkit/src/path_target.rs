//! A directory of a real file system as an [`OpTarget`], through the system calls of programs.
//!
//! # Guarantees
//! 1. Symbolic links are never followed, and nothing outside the directory is touched.
//! 2. Special files are never opened.

use crate::model::parent_and_name;
use crate::ops::{FsOp, OpTarget};
use crate::tree::{FileContent, TreeNode, TreeSnapshot};
use rustix::fs::{
    self, AtFlags, FallocateFlags, Mode, OFlags, RenameFlags, ResolveFlags, Timespec, XattrFlags,
};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use teal_types::{BLOCK, FileType, RenameMode, Timestamp, XattrMode};

/// A directory of a real file system. Runs as root; sets the umask of the process to 0.
#[derive(Debug)]
pub struct PathTarget {
    root: OwnedFd,
    slots: BTreeMap<u8, OwnedFd>,
}

impl PathTarget {
    /// Opens the directory `root`.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn new(root: &Path) -> Result<Self, Errno> {
        rustix::process::umask(Mode::empty());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            root: fs::open(root, flags, Mode::empty())?,
            slots: BTreeMap::new(),
        })
    }

    fn resolve_path(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = if path == Path::new("") {
            Path::new(".")
        } else {
            path
        };
        // The kernel itself refuses to leave the directory.
        let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        fs::openat2(
            &self.root,
            path,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            how,
        )
    }

    /// Opens the directory of a name; the root, which has no name, gives `at_root`.
    fn resolve_parent<'p>(
        &self,
        path: &'p Path,
        at_root: Errno,
    ) -> Result<(OwnedFd, &'p OsStr), Errno> {
        let (parent, name) = parent_and_name(path).ok_or(at_root)?;
        Ok((
            self.resolve_path(parent, OFlags::PATH | OFlags::DIRECTORY)?,
            name,
        ))
    }

    /// Opens the object itself. The path is its entry in `/proc`, for calls that take no descriptor
    /// of this kind.
    fn open_object(&self, path: &Path) -> Result<(OwnedFd, PathBuf), Errno> {
        let fd = self.resolve_path(path, OFlags::PATH | OFlags::NOFOLLOW)?;
        let entry = proc_path(&fd);
        Ok((fd, entry))
    }

    /// Opens the object's directory, and returns its name; the root is `.` in itself.
    fn parent_entry<'p>(&self, path: &'p Path) -> Result<(OwnedFd, &'p OsStr), Errno> {
        let Some((parent, name)) = parent_and_name(path) else {
            return Ok((
                self.resolve_path(path, OFlags::PATH | OFlags::DIRECTORY)?,
                OsStr::new("."),
            ));
        };
        Ok((
            self.resolve_path(parent, OFlags::PATH | OFlags::DIRECTORY)?,
            name,
        ))
    }

    /// Opens a file, or, when `access` only reads, a directory.
    fn open_file(&self, path: &Path, access: OFlags) -> Result<OwnedFd, Errno> {
        let (fd, _) = self.open_object(path)?;
        // Opening a pipe or a device could block, or act on the machine.
        match fs::FileType::from_raw_mode(fs::fstat(&fd)?.st_mode) {
            fs::FileType::RegularFile | fs::FileType::Directory | fs::FileType::Symlink => {
                self.resolve_path(path, access | OFlags::NOFOLLOW)
            }
            _ => Err(Errno::INVAL),
        }
    }

    fn apply_new(&self, op: &FsOp) -> Result<(), Errno> {
        let mode = |perm: u32| Mode::from_raw_mode(perm);
        match op {
            FsOp::Create { path, perm } => {
                let (dir, name) = self.resolve_parent(path, Errno::EXIST)?;
                fs::openat(
                    &dir,
                    name,
                    OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC,
                    mode(*perm),
                )
                .map(drop)
            }
            FsOp::Mknod {
                path,
                kind,
                perm,
                rdev,
            } => {
                let (dir, name) = self.resolve_parent(path, Errno::EXIST)?;
                let kind = fs::FileType::from_raw_mode(u32::from(kind.code()) << 12);
                fs::mknodat(&dir, name, kind, mode(*perm), fs::makedev(rdev.0, rdev.1))
            }
            FsOp::Mkdir { path, perm } => {
                let (dir, name) = self.resolve_parent(path, Errno::EXIST)?;
                fs::mkdirat(&dir, name, mode(*perm))
            }
            FsOp::Symlink { path, target } => {
                let (dir, name) = self.resolve_parent(path, Errno::EXIST)?;
                fs::symlinkat(OsStr::from_bytes(target), &dir, name)
            }
            _ => unreachable!("called for new objects only"),
        }
    }

    fn apply_name(&self, op: &FsOp) -> Result<(), Errno> {
        match op {
            FsOp::Link { from, to } => {
                let (from, old) = self.resolve_parent(from, Errno::PERM)?;
                let (to, new) = self.resolve_parent(to, Errno::EXIST)?;
                fs::linkat(&from, old, &to, new, AtFlags::empty())
            }
            FsOp::Unlink { path } => {
                let (dir, name) = self.resolve_parent(path, Errno::ISDIR)?;
                fs::unlinkat(&dir, name, AtFlags::empty())
            }
            FsOp::Rmdir { path } => {
                let (dir, name) = self.resolve_parent(path, Errno::BUSY)?;
                fs::unlinkat(&dir, name, AtFlags::REMOVEDIR)
            }
            FsOp::Rename { from, to, mode } => {
                let (from, old) = self.resolve_parent(from, Errno::BUSY)?;
                let (to, new) = self.resolve_parent(to, Errno::BUSY)?;
                let flags = match mode {
                    RenameMode::Replace => RenameFlags::empty(),
                    RenameMode::NoReplace => RenameFlags::NOREPLACE,
                    RenameMode::Exchange => RenameFlags::EXCHANGE,
                };
                fs::renameat_with(&from, old, &to, new, flags)
            }
            _ => unreachable!("called for names only"),
        }
    }

    fn apply_attributes(&self, op: &FsOp) -> Result<(), Errno> {
        match op {
            FsOp::SetMode { path, perm } => {
                let (_fd, entry) = self.open_object(path)?;
                fs::chmod(&entry, Mode::from_raw_mode(*perm))
            }
            FsOp::SetOwner { path, uid, gid } => {
                let (dir, name) = self.parent_entry(path)?;
                let (uid, gid) = (uid.map(fs::Uid::from_raw), gid.map(fs::Gid::from_raw));
                fs::chownat(&dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
            }
            FsOp::SetMtime { path, mtime } => {
                let (dir, name) = self.parent_entry(path)?;
                let time = Timespec {
                    tv_sec: mtime.secs,
                    tv_nsec: i64::from(mtime.nanos),
                };
                let times = fs::Timestamps {
                    last_access: time,
                    last_modification: time,
                };
                fs::utimensat(&dir, name, &times, AtFlags::SYMLINK_NOFOLLOW)
            }
            FsOp::SetXattr {
                path,
                name,
                value,
                mode,
            } => {
                let (dir, entry) = self.parent_entry(path)?;
                let flags = match mode {
                    XattrMode::Any => XattrFlags::empty(),
                    XattrMode::Create => XattrFlags::CREATE,
                    XattrMode::Replace => XattrFlags::REPLACE,
                };
                fs::lsetxattr(
                    proc_path(&dir).join(entry),
                    OsStr::from_bytes(name),
                    value,
                    flags,
                )
            }
            FsOp::RemoveXattr { path, name } => {
                let (dir, entry) = self.parent_entry(path)?;
                fs::lremovexattr(proc_path(&dir).join(entry), OsStr::from_bytes(name))
            }
            _ => unreachable!("called for attributes only"),
        }
    }

    fn apply_content(&self, op: &FsOp) -> Result<(), Errno> {
        match op {
            FsOp::Write { path, offset, data } => {
                let file = self.open_file(path, OFlags::WRONLY)?;
                write_all(&file, *offset, &data.to_bytes())
            }
            FsOp::Truncate { path, size } => {
                fs::ftruncate(&self.open_file(path, OFlags::WRONLY)?, *size)
            }
            FsOp::Punch { path, offset, len } => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fs::fallocate(&self.open_file(path, OFlags::WRONLY)?, flags, *offset, *len)
            }
            FsOp::Copy {
                from,
                offset,
                to,
                to_offset,
                len,
            } => {
                let from = self.open_file(from, OFlags::RDONLY)?;
                let to = self.open_file(to, OFlags::WRONLY)?;
                copy_all((&from, *offset), (&to, *to_offset), *len)
            }
            FsOp::Fsync { path } => fs::fsync(&self.open_file(path, OFlags::RDONLY)?),
            _ => unreachable!("called for content only"),
        }
    }

    fn apply_open(&mut self, op: &FsOp) -> Result<(), Errno> {
        match op {
            FsOp::Open { slot, path } => {
                let fd = self.open_file(path, OFlags::RDWR)?;
                self.slots.insert(*slot, fd);
                Ok(())
            }
            FsOp::WriteOpen { slot, offset, data } => {
                let file = self.slots.get(slot).ok_or(Errno::BADF)?;
                write_all(file, *offset, &data.to_bytes())
            }
            FsOp::TruncateOpen { slot, size } => {
                fs::ftruncate(self.slots.get(slot).ok_or(Errno::BADF)?, *size)
            }
            FsOp::Close { slot } => self.slots.remove(slot).map(drop).ok_or(Errno::BADF),
            _ => unreachable!("called for open files only"),
        }
    }

    /// Reads the object and its number. The first of its names is not known yet.
    fn read_node(&self, path: &Path) -> Result<(u64, TreeNode), Errno> {
        let (dir, name) = self.parent_entry(path)?;
        let stat = fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = FileType::from_code((stat.st_mode >> 12) as u8).ok_or(Errno::PROTO)?;
        let is_device = matches!(kind, FileType::Char | FileType::Block);
        let node = TreeNode {
            kind,
            perm: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            nlink: u32::try_from(stat.st_nlink).map_err(|_| Errno::OVERFLOW)?,
            same_as: PathBuf::new(),
            content: if kind == FileType::File {
                read_content(&self.open_file(path, OFlags::RDONLY)?)?
            } else {
                FileContent::default()
            },
            target: if kind == FileType::Symlink {
                fs::readlinkat(&dir, name, vec![])?.into_bytes()
            } else {
                vec![]
            },
            rdev: if is_device {
                (fs::major(stat.st_rdev), fs::minor(stat.st_rdev))
            } else {
                (0, 0)
            },
            xattrs: read_xattrs(&proc_path(&dir).join(name))?,
            mtime: Some(Timestamp::new(
                stat.st_mtime,
                u32::try_from(stat.st_mtime_nsec).map_err(|_| Errno::OVERFLOW)?,
            )),
        };
        Ok((stat.st_ino, node))
    }

    fn list_names(&self, dir: &Path) -> Result<Vec<OsString>, Errno> {
        let fd = self.resolve_path(dir, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in fs::Dir::new(fd)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        names.sort();
        Ok(names)
    }

    /// Reads the tree.
    ///
    /// # Errors
    /// The first error on the way, with its path.
    pub fn read_tree(&self) -> Result<TreeSnapshot, (PathBuf, Errno)> {
        let mut tree = TreeSnapshot::default();
        let mut numbers = BTreeMap::new();
        let mut todo = vec![PathBuf::new()];
        while let Some(path) = todo.pop() {
            let (number, node) = self.read_node(&path).map_err(|e| (path.clone(), e))?;
            if node.kind.is_dir() {
                let names = self.list_names(&path).map_err(|e| (path.clone(), e))?;
                todo.extend(names.into_iter().map(|name| path.join(name)));
            }
            numbers.insert(path.clone(), number);
            tree.nodes.insert(path, node);
        }
        let mut first = BTreeMap::new();
        for (path, node) in &mut tree.nodes {
            node.same_as
                .clone_from(first.entry(numbers[path]).or_insert_with(|| path.clone()));
        }
        for (&slot, fd) in &self.slots {
            let open = fs::fstat(fd).and_then(|stat| Ok((stat.st_nlink as u32, read_content(fd)?)));
            tree.open.insert(
                slot,
                open.map_err(|e| (PathBuf::from(format!("(open in slot {slot})")), e))?,
            );
        }
        Ok(tree)
    }
}

impl OpTarget for PathTarget {
    fn apply(&mut self, op: &FsOp) -> Result<(), Errno> {
        match op {
            FsOp::Create { .. }
            | FsOp::Mknod { .. }
            | FsOp::Mkdir { .. }
            | FsOp::Symlink { .. } => self.apply_new(op),
            FsOp::Link { .. } | FsOp::Unlink { .. } | FsOp::Rmdir { .. } | FsOp::Rename { .. } => {
                self.apply_name(op)
            }
            FsOp::SetMode { .. }
            | FsOp::SetOwner { .. }
            | FsOp::SetMtime { .. }
            | FsOp::SetXattr { .. }
            | FsOp::RemoveXattr { .. } => self.apply_attributes(op),
            FsOp::Open { .. }
            | FsOp::WriteOpen { .. }
            | FsOp::TruncateOpen { .. }
            | FsOp::Close { .. } => self.apply_open(op),
            FsOp::Write { .. }
            | FsOp::Truncate { .. }
            | FsOp::Punch { .. }
            | FsOp::Copy { .. }
            | FsOp::Fsync { .. } => self.apply_content(op),
        }
    }

    fn snapshot(&mut self) -> TreeSnapshot {
        self.read_tree()
            .unwrap_or_else(|(path, e)| panic!("{}: {e}", path.display()))
    }
}

fn proc_path(fd: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

fn write_all(fd: &OwnedFd, mut offset: u64, mut data: &[u8]) -> Result<(), Errno> {
    while !data.is_empty() {
        let done = rustix::io::pwrite(fd, data, offset)?;
        data = &data[done..];
        offset += done as u64;
    }
    Ok(())
}

fn copy_all(from: (&OwnedFd, u64), to: (&OwnedFd, u64), mut len: u64) -> Result<(), Errno> {
    let (mut at, mut into) = (from.1, to.1);
    // Within one file the source would grow under the copy.
    let stat = fs::fstat(from.0)?;
    if fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::RegularFile {
        len = len
            .min(stat.st_size.unsigned_abs().saturating_sub(at))
            .max(1);
    }
    while len > 0 {
        match fs::copy_file_range(
            from.0,
            Some(&mut at),
            to.0,
            Some(&mut into),
            len.min(1 << 30) as usize,
        )? {
            0 => break,
            n => len -= n as u64,
        }
    }
    Ok(())
}

/// Reads the data of a file, without its holes.
fn read_content(fd: &OwnedFd) -> Result<FileContent, Errno> {
    let mut content = FileContent {
        size: fs::fstat(fd)?.st_size.unsigned_abs(),
        ..FileContent::default()
    };
    let mut at = 0;
    while at < content.size {
        // Holes are skipped, so that sparse files of any size can be read.
        at = match fs::seek(fd, fs::SeekFrom::Data(at)) {
            Ok(data) => data / BLOCK * BLOCK,
            Err(Errno::NXIO) => break,
            Err(e) => return Err(e),
        };
        let mut block = [0; BLOCK as usize];
        let mut filled = 0;
        while filled < block.len() {
            match rustix::io::pread(fd, &mut block[filled..], at + filled as u64)? {
                0 => break,
                n => filled += n,
            }
        }
        // The last block may be short; the digest counts it as filled up with zeros.
        content.add_block(at / BLOCK, &block[..filled]);
        at += BLOCK;
    }
    Ok(content)
}

fn read_xattrs(path: &Path) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Errno> {
    let mut list = vec![0; 65536];
    // Some file systems have no extended attributes at all.
    let len = match fs::llistxattr(path, &mut list) {
        Err(Errno::OPNOTSUPP) => 0,
        other => other?,
    };
    let names = list[..len]
        .split(|&b| b == 0)
        .filter(|n| n.starts_with(b"user.") || n.starts_with(b"trusted."));
    let get = |name: &[u8]| {
        let mut value = vec![0; 65536];
        let len = fs::lgetxattr(path, OsStr::from_bytes(name), &mut value)?;
        value.truncate(len);
        Ok((name.to_vec(), value))
    };
    names.map(get).collect()
}

#[cfg(test)]
mod tests;
