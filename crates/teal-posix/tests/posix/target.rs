//! The client as a [`Target`] of operations on paths: what the kernel does around it, references
//! included.

use crate::fixture::{CALLER, ROOT, Volume, errno};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use teal_posix::{
    FallocateMode, FileSystem, FsError, SeekTarget, SetAttrRequest, TimeChange, WriteFlags,
};
use teal_testkit::ops::{FsOp, OpTarget};
use teal_testkit::tree::{FileContent, TreeNode, TreeSnapshot};
use teal_types::{Attr, BLOCK, FileType, ObjectNo};

pub(crate) struct ClientTarget {
    pub(crate) volume: Volume,
    slots: BTreeMap<u8, ObjectNo>,
}

type Done<T = ()> = Result<T, Errno>;

impl ClientTarget {
    pub(crate) fn new(volume: Volume) -> Self {
        Self {
            volume,
            slots: BTreeMap::new(),
        }
    }

    fn client(&self) -> &Arc<FileSystem> {
        &self.volume.client
    }

    /// The slots with an open file.
    pub(crate) fn open_slots(&self) -> Vec<u8> {
        self.slots.keys().copied().collect()
    }

    fn find(&self, path: &Path) -> Done<Attr> {
        match split(path) {
            None => Ok(self.volume.attr(ROOT)),
            Some((parent, name)) => self.look(self.dir(parent)?, name),
        }
    }

    fn look(&self, dir: ObjectNo, name: &[u8]) -> Done<Attr> {
        let attr = done(self.client().lookup(dir, name))?;
        self.client().release(attr.object, 1);
        Ok(attr)
    }

    fn dir(&self, path: &Path) -> Done<ObjectNo> {
        path.iter().try_fold(ROOT, |dir, name| {
            let attr = self.look(dir, name.as_bytes())?;
            match attr.kind {
                FileType::Dir => Ok(attr.object),
                FileType::Symlink => Err(Errno::LOOP),
                _ => Err(Errno::NOTDIR),
            }
        })
    }

    fn place<'p>(&self, path: &'p Path, at_root: Errno) -> Done<(ObjectNo, &'p [u8])> {
        let (parent, name) = split(path).ok_or(at_root)?;
        Ok((self.dir(parent)?, name))
    }

    /// Returns what opening a file for writing finds.
    fn file(&self, path: &Path) -> Done<ObjectNo> {
        let attr = self.find(path)?;
        match attr.kind {
            FileType::File => Ok(attr.object),
            FileType::Dir => Err(Errno::ISDIR),
            FileType::Symlink => Err(Errno::LOOP),
            _ => Err(Errno::INVAL),
        }
    }

    fn open(&self, slot: u8) -> Done<ObjectNo> {
        self.slots.get(&slot).copied().ok_or(Errno::BADF)
    }

    fn make(&self, op: &FsOp) -> Done {
        let (FsOp::Create { path, .. }
        | FsOp::Mknod { path, .. }
        | FsOp::Mkdir { path, .. }
        | FsOp::Symlink { path, .. }) = op
        else {
            unreachable!("called for new objects only")
        };
        let (dir, name) = self.place(path, Errno::EXIST)?;
        let made = match op {
            FsOp::Create { perm, .. } => {
                self.client().create(&CALLER, dir, name, *perm as u16, true)
            }
            FsOp::Mknod {
                kind, perm, rdev, ..
            } => {
                let mode = u32::from(kind.code()) << 12 | perm;
                self.client()
                    .mknod(&CALLER, dir, name, mode, encode_dev(*rdev))
            }
            FsOp::Mkdir { perm, .. } => self.client().mkdir(&CALLER, dir, name, *perm as u16),
            FsOp::Symlink { target, .. } => self.client().symlink(&CALLER, dir, name, target),
            _ => unreachable!("called for new objects only"),
        };
        let attr = done(made)?;
        self.client().release(attr.object, 1);
        Ok(())
    }

    fn names(&self, op: &FsOp) -> Done {
        match op {
            FsOp::Link { from, to } => {
                let (from, name) = self.place(from, Errno::PERM)?;
                let to = self.place(to, Errno::EXIST)?;
                let attr = done(
                    self.client()
                        .link(self.look(from, name)?.object, to.0, to.1),
                )?;
                self.client().release(attr.object, 1);
                Ok(())
            }
            FsOp::Unlink { path } => {
                let (dir, name) = self.place(path, Errno::ISDIR)?;
                done(self.client().unlink(dir, name))
            }
            FsOp::Rmdir { path } => {
                let (dir, name) = self.place(path, Errno::BUSY)?;
                done(self.client().rmdir(dir, name))
            }
            FsOp::Rename { from, to, mode } => {
                let from = self.place(from, Errno::BUSY)?;
                let to = self.place(to, Errno::BUSY)?;
                done(self.client().rename(from.0, from.1, to.0, to.1, *mode))
            }
            _ => unreachable!("called for names only"),
        }
    }

    fn set(&self, path: &Path, set: &SetAttrRequest) -> Done {
        done(self.client().setattr(self.find(path)?.object, set)).map(drop)
    }

    fn attributes(&self, op: &FsOp) -> Done {
        let none = SetAttrRequest::default();
        match op {
            FsOp::SetMode { path, perm } => self.set(
                path,
                &SetAttrRequest {
                    perm: Some(*perm as u16),
                    ..none
                },
            ),
            FsOp::SetOwner { path, uid, gid } => self.set(
                path,
                &SetAttrRequest {
                    uid: *uid,
                    gid: *gid,
                    kill_suidgid: true,
                    ..none
                },
            ),
            FsOp::SetMtime { path, mtime } => self.set(
                path,
                &SetAttrRequest {
                    mtime: Some(TimeChange::Set(*mtime)),
                    ..none
                },
            ),
            FsOp::SetXattr {
                path,
                name,
                value,
                mode,
            } => done(
                self.client()
                    .setxattr(self.find(path)?.object, name, value, *mode, false),
            ),
            FsOp::RemoveXattr { path, name } => {
                done(self.client().removexattr(self.find(path)?.object, name))
            }
            _ => unreachable!("called for attributes only"),
        }
    }

    fn write(&self, no: ObjectNo, offset: u64, data: &[u8]) -> Done {
        let n = done(self.client().write(no, offset, data, WriteFlags::default()))?;
        assert_eq!(n, data.len(), "small writes are whole");
        Ok(())
    }

    fn copy(&self, mut from: (ObjectNo, u64), mut to: (ObjectNo, u64), mut len: u64) -> Done {
        // Within one file the source would grow under the copy.
        let source = done(self.client().getattr(from.0))?;
        if source.kind == FileType::File {
            len = len.min(source.size.saturating_sub(from.1)).max(1);
        }
        while len > 0 {
            match done(
                self.client()
                    .copy_file_range(from, to, len, WriteFlags::default()),
            )? {
                0 => break,
                n => (from.1, to.1, len) = (from.1 + n, to.1 + n, len - n),
            }
        }
        Ok(())
    }

    fn truncate(&self, no: ObjectNo, size: u64) -> Done {
        done(self.client().setattr(
            no,
            &SetAttrRequest {
                size: Some(size),
                ..SetAttrRequest::default()
            },
        ))
        .map(drop)
    }

    fn close(&mut self, slot: u8) -> Done {
        let no = self.slots.remove(&slot).ok_or(Errno::BADF)?;
        self.client().release(no, 1);
        Ok(())
    }

    /// Reads everything, and checks that what is no hole is found by seeking.
    fn content(&self, no: ObjectNo) -> FileContent {
        let size = self.volume.attr(no).size;
        let (mut all, mut found) = (
            FileContent {
                size,
                ..FileContent::default()
            },
            FileContent {
                size,
                ..FileContent::default()
            },
        );
        let mut at = 0;
        while at < size {
            let bytes = self.client().read(no, at, 64 * BLOCK as usize).unwrap();
            assert_eq!(bytes.len() as u64, (size - at).min(64 * BLOCK));
            bytes
                .chunks(BLOCK as usize)
                .zip(at / BLOCK..)
                .for_each(|(block, n)| all.add_block(n, block));
            at += bytes.len() as u64;
        }
        at = 0;
        loop {
            match self.client().seek(no, at, SeekTarget::Data) {
                Ok(data) => at = data / BLOCK * BLOCK,
                Err(FsError::BehindEnd) => break,
                Err(e) => panic!("seeking in {no}: {e}"),
            }
            found.add_block(
                at / BLOCK,
                &self.client().read(no, at, BLOCK as usize).unwrap(),
            );
            at += BLOCK;
        }
        assert_eq!(all, found, "seeking misses data of {no}");
        all
    }

    fn node(&self, attr: &Attr, same_as: PathBuf) -> TreeNode {
        let no = attr.object;
        let names = self.client().listxattr(&CALLER, no).unwrap();
        let value = |name: Vec<u8>| {
            let value = self.client().getxattr(no, &name).unwrap();
            (name, value)
        };
        TreeNode {
            kind: attr.kind,
            perm: u32::from(attr.perm),
            uid: attr.uid,
            gid: attr.gid,
            nlink: attr.nlink,
            same_as,
            content: if attr.kind == FileType::File {
                self.content(no)
            } else {
                FileContent::default()
            },
            target: if attr.kind == FileType::Symlink {
                self.client().readlink(no).unwrap()
            } else {
                Vec::new()
            },
            rdev: decode_dev(attr.rdev),
            xattrs: names.into_iter().map(value).collect(),
            mtime: Some(attr.mtime),
        }
    }

    fn list(
        &self,
        dir: ObjectNo,
        path: &Path,
        parent: ObjectNo,
        found: &mut Vec<(PathBuf, ObjectNo)>,
    ) {
        let mut dirs = Vec::new();
        let mut dots = Vec::new();
        let visit = &mut |entry: &teal_posix::DirEntry, attr: Option<&Attr>| {
            let Some(attr) = attr else {
                dots.push(entry.object);
                return ControlFlow::Continue(());
            };
            assert_eq!((attr.object, attr.kind), (entry.object, entry.kind));
            self.client().release(entry.object, 1);
            let path = path.join(OsStr::from_bytes(&entry.name));
            if entry.kind.is_dir() {
                dirs.push((entry.object, path.clone()));
            }
            found.push((path, entry.object));
            ControlFlow::Continue(())
        };
        self.client().readdirplus(dir, 0, visit).unwrap();
        assert_eq!(dots, [dir, parent], "`.` and `..` of {}", path.display());
        for (no, path) in dirs {
            self.list(no, &path, dir, found);
        }
    }
}

impl OpTarget for ClientTarget {
    fn apply(&mut self, op: &FsOp) -> Done {
        match op {
            FsOp::Create { .. }
            | FsOp::Mknod { .. }
            | FsOp::Mkdir { .. }
            | FsOp::Symlink { .. } => self.make(op),
            FsOp::Link { .. } | FsOp::Unlink { .. } | FsOp::Rmdir { .. } | FsOp::Rename { .. } => {
                self.names(op)
            }
            FsOp::Copy {
                from,
                offset,
                to,
                to_offset,
                len,
            } => {
                let from = match self.file(from) {
                    Err(Errno::ISDIR) => self.find(from)?.object,
                    from => from?,
                };
                self.copy((from, *offset), (self.file(to)?, *to_offset), *len)
            }
            FsOp::SetMode { .. }
            | FsOp::SetOwner { .. }
            | FsOp::SetMtime { .. }
            | FsOp::SetXattr { .. }
            | FsOp::RemoveXattr { .. } => self.attributes(op),
            FsOp::Write { path, offset, data } => {
                self.write(self.file(path)?, *offset, &data.to_bytes())
            }
            FsOp::Truncate { path, size } => self.truncate(self.file(path)?, *size),
            FsOp::Punch { path, offset, len } => done(self.client().fallocate(
                self.file(path)?,
                FallocateMode::PunchHole,
                *offset,
                *len,
                Default::default(),
            )),
            FsOp::Fsync { path } => match self.file(path) {
                Ok(_) | Err(Errno::ISDIR) => done(self.client().sync()),
                Err(e) => Err(e),
            },
            FsOp::Open { slot, path } => {
                let no = self.file(path)?;
                self.client().hold(no, 1);
                if let Some(before) = self.slots.insert(*slot, no) {
                    self.client().release(before, 1);
                }
                Ok(())
            }
            FsOp::WriteOpen { slot, offset, data } => {
                self.write(self.open(*slot)?, *offset, &data.to_bytes())
            }
            FsOp::TruncateOpen { slot, size } => self.truncate(self.open(*slot)?, *size),
            FsOp::Close { slot } => self.close(*slot),
        }
    }

    fn snapshot(&mut self) -> TreeSnapshot {
        let mut paths = vec![(PathBuf::new(), ROOT)];
        self.list(ROOT, Path::new(""), ROOT, &mut paths);
        paths.sort();
        let mut first = BTreeMap::new();
        let mut tree = TreeSnapshot::default();
        for (path, no) in paths {
            let same_as = first.entry(no).or_insert_with(|| path.clone()).clone();
            tree.nodes
                .insert(path, self.node(&self.volume.attr(no), same_as));
        }
        for (slot, no) in &self.slots {
            tree.open
                .insert(*slot, (self.volume.attr(*no).nlink, self.content(*no)));
        }
        tree
    }
}

fn done<T>(result: Result<T, FsError>) -> Done<T> {
    result.map_err(|e| errno(&e))
}

fn split(path: &Path) -> Option<(&Path, &[u8])> {
    Some((path.parent()?, path.file_name()?.as_bytes()))
}

fn encode_dev((major, minor): (u32, u32)) -> u32 {
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

fn decode_dev(dev: u32) -> (u32, u32) {
    (dev >> 8 & 0xfff, dev & 0xff | dev >> 12 & 0xfff00)
}
