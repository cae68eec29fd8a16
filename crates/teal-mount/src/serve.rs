//! Each request, in the words of the client.

use crate::Mount;
use rustix::fs::{FallocateFlags, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use std::ops::ControlFlow;
use std::time::Duration;
use teal_fuse::{
    Delivery, DirBuffer, Entry, Handle, Header, NodeId, OpenFlags, Operation, Reply, Request,
    Serve, SetAttr, StatFs, TimeSet,
};
use teal_posix::{
    Caller, FallocateMode, FsError, Moment, RenameMode, Seek, SetAttrRequest, TimeChange,
    WriteFlags, XattrMode,
};
use teal_types::{Attr, FileType, ObjectNo};

/// Nothing times out: only this mount changes the volume.
const EVER: Duration = Duration::MAX;
/// No open file has a handle of its own.
const NO_HANDLE: Handle = Handle::new(0);
const SEEK_DATA: u32 = 3;
/// Pieces the kernel takes in one answer, less the header.
const PIECES_MAX: usize = 1023;

fn errno(error: &FsError) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

fn object(node: NodeId) -> ObjectNo {
    ObjectNo::new(node.get())
}

fn caller(header: &Header) -> Caller {
    Caller {
        uid: header.uid,
        gid: header.gid,
        pid: header.pid,
        umask: 0,
    }
}

/// Returns who makes something. The kernel leaves the umask to us (`DONT_MASK`).
fn maker(header: &Header, umask: u32) -> Caller {
    Caller {
        umask: (umask & 0o777) as u16,
        ..caller(header)
    }
}

/// Returns where a store is a copy, a number can come to mean another object, of another birth:
/// then the kernel keeps nothing of the one before.
fn generation(attr: &Attr) -> u64 {
    if attr.object == ObjectNo::ROOT {
        return 0;
    }
    let birth = attr
        .btime
        .secs
        .cast_unsigned()
        .wrapping_mul(1_000_000_000)
        .wrapping_add(attr.btime.nanos.into());
    birth & u64::from(u32::MAX >> 1)
}

fn until_full(full: bool) -> ControlFlow<()> {
    if full {
        ControlFlow::Break(())
    } else {
        ControlFlow::Continue(())
    }
}

fn time(set: TimeSet) -> TimeChange {
    match set {
        TimeSet::Now => TimeChange::Now,
        TimeSet::At(at) => TimeChange::Set(at),
    }
}

fn changes(set: &SetAttr) -> SetAttrRequest {
    // The kernel sends a change of nothing for `chown(path, -1, -1)`, without a word of the bits
    // that it takes away elsewhere.
    let is_empty = set.perm.is_none()
        && set.uid.is_none()
        && set.gid.is_none()
        && set.size.is_none()
        && set.atime.is_none()
        && set.mtime.is_none()
        && set.ctime.is_none();
    SetAttrRequest {
        perm: set.perm,
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        is_held: set.handle.is_some(),
        atime: set.atime.map(time),
        mtime: set.mtime.map(time),
        ctime: set.ctime,
        kill_suidgid: set.kill_suidgid || is_empty,
    }
}

impl Serve for Mount {
    fn serve(&self, request: Request<'_>, reply: Reply) {
        let header = request.header;
        self.requests.count(header.opcode);
        let reply = self.watch.show(&request, reply);
        let since = self.client.moment();
        let done = match request.operation {
            Operation::Lookup { .. }
            | Operation::Symlink { .. }
            | Operation::Mknod { .. }
            | Operation::Mkdir { .. }
            | Operation::Link { .. }
            | Operation::Tmpfile { .. }
            | Operation::Unlink { .. }
            | Operation::Rmdir { .. }
            | Operation::Rename { .. } => {
                return self.names(&header, &request.operation, since, reply);
            }
            Operation::Forget { lookups } => {
                self.client.release(object(header.node), lookups);
                return;
            }
            Operation::BatchForget(forgets) => {
                forgets.for_each(|f| self.client.release(object(f.node), f.lookups));
                return;
            }
            Operation::Setxattr { .. }
            | Operation::Getxattr { .. }
            | Operation::Listxattr { .. }
            | Operation::Removexattr { .. } => {
                return self.xattrs(&header, &request.operation, reply);
            }
            Operation::Readdir { cookie, size, .. } => self.readdir(&header, cookie, size),
            Operation::Readdirplus { cookie, size, .. } => {
                return self.readdirplus(&header, cookie, size, since, reply);
            }
            Operation::Read { .. } => {
                self.content(&header, &request.operation, reply);
                return self.client.was_given(&[object(header.node)], since);
            }
            Operation::Getattr { .. } | Operation::Statx { .. } => {
                self.attributes(&header, &request.operation, reply);
                return self.client.was_given(&[object(header.node)], since);
            }
            Operation::Write { .. }
            | Operation::Fallocate { .. }
            | Operation::Lseek { .. }
            | Operation::CopyFileRange { .. } => {
                return self.content(&header, &request.operation, reply);
            }
            _ => return self.attributes(&header, &request.operation, reply),
        };
        match done {
            Ok(buffer) => reply.directory(&buffer),
            Err(error) => reply.error(errno(&error)),
        }
    }
}

impl Mount {
    /// How long the kernel may keep attributes.
    fn attr_ttl(&self, attr: &Attr) -> Duration {
        if self.observed && attr.kind == FileType::File {
            Duration::ZERO
        } else {
            EVER
        }
    }

    fn to_entry(&self, attr: &Attr) -> Entry {
        let (node, generation) = (NodeId::new(attr.object.get()), generation(attr));
        Entry {
            node,
            generation,
            attr: *attr,
            attr_ttl: self.attr_ttl(attr),
            entry_ttl: EVER,
        }
    }

    /// Returns what the kernel may do with a file that is opened.
    fn open_flags(&self) -> OpenFlags {
        if self.observed {
            OpenFlags::DIRECT_IO | OpenFlags::NOFLUSH
        } else {
            OpenFlags::KEEP_CACHE | OpenFlags::NOFLUSH
        }
    }

    /// Answers with an object, which the client has counted once for the kernel.
    fn entry(&self, found: Result<Attr, FsError>, since: Moment, reply: Reply) {
        match found {
            Ok(attr) => match reply.entry(&self.to_entry(&attr)) {
                Delivery::Delivered => self.client.was_given(&[attr.object], since),
                Delivery::Lost => self.client.release(attr.object, 1),
            },
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn done(result: Result<(), FsError>, reply: Reply) {
        match result {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn names(&self, header: &Header, operation: &Operation<'_>, since: Moment, reply: Reply) {
        let (client, dir) = (&self.client, object(header.node));
        match *operation {
            Operation::Lookup { name } => match client.lookup(dir, name) {
                Err(FsError::NotFound) => reply.negative_entry(EVER),
                found => self.entry(found, since, reply),
            },
            Operation::Symlink { name, target } => self.entry(
                client.symlink(&caller(header), dir, name, target),
                since,
                reply,
            ),
            Operation::Mknod {
                name,
                kind,
                perm,
                rdev,
                umask,
            } => {
                let mode = u32::from(kind.code()) << 12 | u32::from(perm);
                self.entry(
                    client.mknod(&maker(header, umask), dir, name, mode, rdev),
                    since,
                    reply,
                );
            }
            Operation::Mkdir { name, perm, umask } => {
                self.entry(
                    client.mkdir(&maker(header, umask), dir, name, perm),
                    since,
                    reply,
                );
            }
            Operation::Link { target, name } => {
                self.entry(client.link(object(target), dir, name), since, reply)
            }
            Operation::Tmpfile { perm, umask, .. } => {
                match client.tmpfile(&maker(header, umask), dir, perm) {
                    Ok(attr) => {
                        if reply.create(&self.to_entry(&attr), NO_HANDLE, self.open_flags())
                            == Delivery::Lost
                        {
                            client.release(attr.object, 1);
                        }
                    }
                    Err(error) => reply.error(errno(&error)),
                }
            }
            Operation::Unlink { name } => Self::done(client.unlink(dir, name), reply),
            Operation::Rmdir { name } => Self::done(client.rmdir(dir, name), reply),
            Operation::Rename {
                name,
                new_parent,
                new_name,
                flags,
            } => {
                let mode = RenameMode::from_flags(RenameFlags::bits(&flags));
                Self::done(
                    mode.and_then(|mode| {
                        client.rename(dir, name, object(new_parent), new_name, mode)
                    }),
                    reply,
                );
            }
            _ => reply.error(Errno::NOSYS),
        }
    }

    fn xattrs(&self, header: &Header, operation: &Operation<'_>, reply: Reply) {
        let (client, no) = (&self.client, object(header.node));
        match *operation {
            Operation::Setxattr {
                name,
                value,
                flags,
                kill_sgid,
            } => {
                let mode = XattrMode::from_flags(XattrFlags::bits(&flags));
                Self::done(
                    mode.and_then(|mode| client.setxattr(no, name, value, mode, kill_sgid)),
                    reply,
                );
            }
            Operation::Getxattr { name, size } => {
                Self::sized(client.getxattr(no, name), size, reply)
            }
            Operation::Listxattr { size } => {
                let list = client.listxattr(&caller(header), no).map(|names| {
                    names
                        .into_iter()
                        .flat_map(|name| name.into_iter().chain([0]))
                        .collect()
                });
                Self::sized(list, size, reply);
            }
            Operation::Removexattr { name } => Self::done(client.removexattr(no, name), reply),
            _ => reply.error(Errno::NOSYS),
        }
    }

    fn sized(value: Result<Vec<u8>, FsError>, size: u32, reply: Reply) {
        match value {
            Ok(value) if size == 0 => reply.xattr_size(value.len() as u32),
            Ok(value) if value.len() > size as usize => reply.error(Errno::RANGE),
            Ok(value) => reply.data(&value),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readdir(&self, header: &Header, cookie: u64, size: u32) -> Result<DirBuffer, FsError> {
        let mut buffer = DirBuffer::new(size);
        self.client.readdir(object(header.node), cookie, &mut |e| {
            until_full(buffer.push(e.object, e.cookie, e.kind, &e.name))
        })?;
        Ok(buffer)
    }

    fn readdirplus(&self, header: &Header, cookie: u64, size: u32, since: Moment, reply: Reply) {
        let mut buffer = DirBuffer::new(size);
        let mut given = Vec::new();
        let listed = self
            .client
            .readdirplus(object(header.node), cookie, &mut |e, attr| {
                given.extend(attr.map(|attr| attr.object));
                let entry = attr.map(|attr| self.to_entry(attr));
                until_full(buffer.push_plus(entry.as_ref(), e.object, e.cookie, e.kind, &e.name))
            });
        match listed {
            Ok(()) => reply.directory(&buffer),
            Err(error) => return reply.error(errno(&error)),
        }
        self.client.was_given(&given, since);
    }

    fn content(&self, header: &Header, operation: &Operation<'_>, reply: Reply) {
        let (client, no) = (&self.client, object(header.node));
        match *operation {
            Operation::Read { offset, size, .. } => {
                client.read_then(no, offset, size as usize, |read| match read {
                    Ok(parts) => match &parts.pieces()[..] {
                        pieces if pieces.len() <= PIECES_MAX => reply.data_vectored(pieces),
                        pieces => reply.data(&pieces.concat()),
                    },
                    Err(error) => reply.error(errno(&error)),
                });
            }
            Operation::Write {
                offset,
                data,
                kill_suidgid,
                flags,
                cached,
                ..
            } => {
                // The kernel takes the size it holds for the end. It does not say of single writes
                // that they append, or do not (RWF_APPEND, RWF_NOAPPEND): only their offset tells.
                // What comes out of its cache has its place.
                let asks_for_end = flags.contains(OFlags::APPEND) && !cached;
                let flags = WriteFlags {
                    asks_for_end,
                    kill_suidgid,
                    ..WriteFlags::default()
                };
                match client.write(no, offset, data, flags) {
                    Ok(count) => reply.written(count as u32),
                    Err(error) => reply.error(errno(&error)),
                }
            }
            Operation::Fallocate {
                offset,
                length,
                mode,
                ..
            } => {
                let mode = FallocateMode::from_flags(FallocateFlags::bits(&mode));
                Self::done(
                    mode.and_then(|mode| client.fallocate(no, mode, offset, length)),
                    reply,
                );
            }
            Operation::Lseek { offset, whence, .. } => {
                let what = if whence == SEEK_DATA {
                    Seek::Data
                } else {
                    Seek::Hole
                };
                match client.seek(no, offset, what) {
                    Ok(at) => reply.seek(at),
                    Err(error) => reply.error(errno(&error)),
                }
            }
            Operation::CopyFileRange {
                offset,
                to_node,
                to_offset,
                length,
                ..
            } => {
                // The kernel does not say whether the caller may keep them: root may.
                let flags = WriteFlags {
                    kill_suidgid: header.uid != 0,
                    ..WriteFlags::default()
                };
                match client.copy_file_range(
                    (no, offset),
                    (object(to_node), to_offset),
                    length,
                    flags,
                ) {
                    Ok(copied) => reply.copied(copied),
                    Err(error) => reply.error(errno(&error)),
                }
            }
            _ => reply.error(Errno::NOSYS),
        }
    }

    fn attributes(&self, header: &Header, operation: &Operation<'_>, reply: Reply) {
        let (client, no) = (&self.client, object(header.node));
        let attr = |found: Result<Attr, FsError>, reply: Reply| match found {
            Ok(attr) => reply.attr(&attr, self.attr_ttl(&attr)),
            Err(error) => reply.error(errno(&error)),
        };
        match operation {
            Operation::Getattr { .. } => attr(client.getattr(no), reply),
            Operation::Setattr(set) => attr(client.setattr(no, &changes(set)), reply),
            Operation::Statx { .. } => match client.getattr(no) {
                Ok(attr) => reply.statx(&attr, self.attr_ttl(&attr)),
                Err(error) => reply.error(errno(&error)),
            },
            Operation::Readlink => match client.readlink(no) {
                Ok(target) => reply.data(&target),
                Err(error) => reply.error(errno(&error)),
            },
            // The last request of a mount on a block device: `umount` waits for its answer.
            Operation::Fsync { .. }
            | Operation::Fsyncdir { .. }
            | Operation::Syncfs
            | Operation::Destroy => {
                client.sync_then(move |result| Self::done(result, reply));
            }
            Operation::Statfs => {
                let s = client.statfs();
                reply.statfs(&StatFs {
                    block_size: s.block_size,
                    blocks: s.blocks,
                    free: s.free,
                    available: s.available,
                    files: s.files,
                    files_free: s.files_free,
                    name_max: s.name_max,
                });
            }
            Operation::Open { .. } if self.observed => {
                let _delivery = reply.open(NO_HANDLE, self.open_flags());
            }
            Operation::Release { .. } | Operation::Releasedir { .. } => reply.ok(),
            Operation::Ioctl(_) => reply.error(Errno::NOTTY),
            // OPEN, OPENDIR, CREATE and FLUSH among them: the kernel asks once and never again.
            _ => reply.error(Errno::NOSYS),
        }
    }
}
