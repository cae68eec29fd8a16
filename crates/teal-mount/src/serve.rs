//! Serves each request by calls of the file system.

mod content;
mod flags;

use crate::VolumeMount;
use crate::convert::{
    node_generation, to_caller, to_creator, to_errno, to_object, to_read_access,
    to_setattr_request, until_full,
};
use rustix::fs::{RenameFlags, XattrFlags};
use rustix::io::Errno;
use std::time::Duration;
use teal_fuse::{
    Delivery, DirBuffer, FuseOperation, Handle, KernelRequest, LookupEntry, NodeId, OpenFlags,
    ReplySender, RequestHandler, RequestHeader, StatfsReply,
};
use teal_posix::{FsError, Moment, RenameMode, XattrMode, split_whiteout};
use teal_types::{Attr, FileType, ObjectNo};

/// Nothing times out: only this mount changes the volume.
const EVER: Duration = Duration::MAX;
/// No open file has a handle of its own.
const NO_HANDLE: Handle = Handle::new(0);

impl RequestHandler for VolumeMount {
    fn handle_request(&self, request: KernelRequest<'_>, reply: ReplySender) {
        let header = request.header;
        self.requests.count_request(header.opcode);
        // Shown before it is served: a watcher sees requests in the order in which they come.
        let reply = self.watch.observe(&request, reply);
        // Taken before the file system is asked: a change from elsewhere after this moment may be
        // in the answer or not, and the kernel is told of it in either case.
        let since = self.file_system.current_moment();
        match request.operation {
            FuseOperation::Lookup { .. }
            | FuseOperation::Symlink { .. }
            | FuseOperation::Mknod { .. }
            | FuseOperation::Mkdir { .. }
            | FuseOperation::Link { .. }
            | FuseOperation::Tmpfile { .. }
            | FuseOperation::Unlink { .. }
            | FuseOperation::Rmdir { .. }
            | FuseOperation::Rename { .. } => {
                self.serve_names(&header, &request.operation, since, reply);
            }
            // No answer is due to the two kinds of forgets.
            FuseOperation::Forget { lookups } => {
                self.file_system.release(to_object(header.node), lookups);
            }
            FuseOperation::BatchForget(forgets) => {
                for forget in forgets {
                    let object = to_object(forget.node);
                    self.file_system.release(object, forget.lookups);
                }
            }
            FuseOperation::Setxattr { .. }
            | FuseOperation::Getxattr { .. }
            | FuseOperation::Listxattr { .. }
            | FuseOperation::Removexattr { .. } => {
                self.serve_xattrs(&header, &request.operation, reply);
            }
            FuseOperation::Readdir { cookie, size, .. } => {
                self.serve_readdir(&header, cookie, size, reply);
            }
            FuseOperation::Readdirplus { cookie, size, .. } => {
                self.serve_readdirplus(&header, cookie, size, since, reply);
            }
            // The kernel keeps content and attributes that it was given: changes since must reach
            // it.
            FuseOperation::Read {
                offset,
                size,
                flags,
                ..
            } => {
                let access = to_read_access(flags);
                self.serve_read(&header, (offset, size), access, since, reply);
            }
            FuseOperation::Getattr { .. } | FuseOperation::Statx { .. } => {
                self.serve_getattr(&header, &request.operation, since, reply);
            }
            FuseOperation::Write { .. }
            | FuseOperation::Fallocate { .. }
            | FuseOperation::Lseek { .. }
            | FuseOperation::CopyFileRange { .. } => {
                self.serve_content(&header, &request.operation, reply);
            }
            _ => self.serve_attributes(&header, &request.operation, reply),
        }
    }
}

impl VolumeMount {
    /// Returns the time for which the kernel may keep attributes.
    fn attr_ttl(&self, attr: &Attr) -> Duration {
        // A recording wants every question for a file's attributes to come as a request.
        if self.observed && attr.kind == FileType::File {
            Duration::ZERO
        } else {
            EVER
        }
    }

    fn to_entry(&self, attr: &Attr) -> LookupEntry {
        // A node has the number of its object, so that nothing needs to be kept for it.
        let (node, generation) = (NodeId::new(attr.object.get()), node_generation(attr));
        LookupEntry {
            node,
            generation,
            attr: *attr,
            attr_ttl: self.attr_ttl(attr),
            entry_ttl: EVER,
        }
    }

    /// Returns the flags of a file that is opened.
    fn open_flags(&self) -> OpenFlags {
        if self.observed {
            OpenFlags::DIRECT_IO | OpenFlags::NOFLUSH
        } else {
            OpenFlags::KEEP_CACHE | OpenFlags::NOFLUSH
        }
    }

    /// Sends an answer with attributes or content of these objects to a request that began at
    /// `since`.
    fn answer_given(&self, objects: &[ObjectNo], since: Moment, send: impl FnOnce()) {
        self.file_system.note_given(objects, since);
        send();
        self.file_system.recall_outdated(objects, since);
    }

    /// Answers with an object, which the file system has counted once for the kernel.
    fn reply_entry(&self, found: Result<Attr, FsError>, since: Moment, reply: ReplySender) {
        match found {
            Ok(attr) => self.answer_given(&[attr.object], since, || {
                // The kernel does not hold the lookup, and will not give it back.
                if reply.send_entry(&self.to_entry(&attr)) == Delivery::Lost {
                    self.file_system.release(attr.object, 1);
                }
            }),
            Err(error) => reply.send_error(to_errno(&error)),
        }
    }

    /// Answers with an object that is open, and which the file system has counted once for the
    /// kernel.
    fn reply_created(&self, made: Result<Attr, FsError>, reply: ReplySender) {
        let attr = match made {
            Ok(attr) => attr,
            Err(error) => return reply.send_error(to_errno(&error)),
        };
        let delivery = reply.send_create(&self.to_entry(&attr), NO_HANDLE, self.open_flags());
        // The kernel does not hold the lookup, and will not give it back.
        if delivery == Delivery::Lost {
            self.file_system.release(attr.object, 1);
        }
    }

    /// Answers with attributes.
    fn reply_attr(&self, found: Result<Attr, FsError>, reply: ReplySender) {
        match found {
            Ok(attr) => reply.send_attr(&attr, self.attr_ttl(&attr)),
            Err(error) => reply.send_error(to_errno(&error)),
        }
    }

    /// Answers with bytes, such as the target of a symbolic link.
    fn reply_data(value: Result<Vec<u8>, FsError>, reply: ReplySender) {
        match value {
            Ok(value) => reply.send_data(&value),
            Err(error) => reply.send_error(to_errno(&error)),
        }
    }

    /// Answers an operation without a result.
    fn reply_done(result: Result<(), FsError>, reply: ReplySender) {
        match result {
            Ok(()) => reply.send_ok(),
            Err(error) => reply.send_error(to_errno(&error)),
        }
    }

    /// Serves operations on names.
    fn serve_names(
        &self,
        header: &RequestHeader,
        operation: &FuseOperation<'_>,
        since: Moment,
        reply: ReplySender,
    ) {
        let (file_system, dir) = (&self.file_system, to_object(header.node));
        match *operation {
            FuseOperation::Lookup { name } => match file_system.lookup(dir, name) {
                Err(FsError::NotFound) => reply.send_negative_entry(EVER),
                found => self.reply_entry(found, since, reply),
            },
            FuseOperation::Link { target, name } => {
                self.reply_entry(file_system.link(to_object(target), dir, name), since, reply)
            }
            FuseOperation::Tmpfile { perm, umask, .. } => {
                let made = file_system.tmpfile(&to_creator(header, umask), dir, perm);
                self.reply_created(made, reply);
            }
            FuseOperation::Unlink { name } => {
                Self::reply_done(file_system.unlink(dir, name), reply)
            }
            FuseOperation::Rmdir { name } => Self::reply_done(file_system.rmdir(dir, name), reply),
            FuseOperation::Rename {
                name,
                new_parent,
                new_name,
                flags,
            } => {
                let (flags, leaves_whiteout) = split_whiteout(RenameFlags::bits(&flags));
                let Some(mode) = RenameMode::from_flags(flags) else {
                    return Self::reply_done(Err(FsError::Invalid), reply);
                };
                let new_parent = to_object(new_parent);
                let renamed = if leaves_whiteout {
                    let to = (new_parent, new_name);
                    file_system.rename_leaving_whiteout(&to_caller(header), dir, name, to, mode)
                } else {
                    file_system.rename(dir, name, new_parent, new_name, mode)
                };
                Self::reply_done(renamed, reply);
            }
            _ => self.reply_entry(self.make_object(header, operation), since, reply),
        }
    }

    /// Makes an object with a name: a symbolic link, a file or special file, or a directory.
    fn make_object(
        &self,
        header: &RequestHeader,
        operation: &FuseOperation<'_>,
    ) -> Result<Attr, FsError> {
        let (file_system, dir) = (&self.file_system, to_object(header.node));
        match *operation {
            FuseOperation::Symlink { name, target } => {
                file_system.symlink(&to_caller(header), dir, name, target)
            }
            FuseOperation::Mknod {
                name,
                kind,
                perm,
                rdev,
                umask,
            } => {
                // The mode as `mknod(2)` takes it, with the type in its upper bits.
                let mode = u32::from(kind.code()) << 12 | u32::from(perm);
                file_system.mknod(&to_creator(header, umask), dir, name, mode, rdev)
            }
            FuseOperation::Mkdir { name, perm, umask } => {
                file_system.mkdir(&to_creator(header, umask), dir, name, perm)
            }
            _ => unreachable!("an operation that makes no object"),
        }
    }

    /// Serves operations on extended attributes.
    fn serve_xattrs(
        &self,
        header: &RequestHeader,
        operation: &FuseOperation<'_>,
        reply: ReplySender,
    ) {
        let (file_system, no) = (&self.file_system, to_object(header.node));
        match *operation {
            FuseOperation::Setxattr {
                name,
                value,
                flags,
                kill_sgid,
            } => {
                let mode = XattrMode::from_flags(XattrFlags::bits(&flags)).ok_or(FsError::Invalid);
                Self::reply_done(
                    mode.and_then(|mode| file_system.setxattr(no, name, value, mode, kill_sgid)),
                    reply,
                );
            }
            FuseOperation::Getxattr { name, size } => {
                Self::reply_sized(file_system.getxattr(no, name), size, reply)
            }
            FuseOperation::Listxattr { size } => {
                let list = file_system.listxattr(&to_caller(header), no).map(|names| {
                    names
                        .into_iter()
                        .flat_map(|name| name.into_iter().chain([0]))
                        .collect()
                });
                Self::reply_sized(list, size, reply);
            }
            FuseOperation::Removexattr { name } => {
                Self::reply_done(file_system.removexattr(no, name), reply)
            }
            _ => reply.send_error(Errno::NOSYS),
        }
    }

    /// Answers with a value, or with its size if the caller has no room yet.
    fn reply_sized(value: Result<Vec<u8>, FsError>, size: u32, reply: ReplySender) {
        match value {
            // The program asks for the size first, and then for the value.
            Ok(value) if size == 0 => reply.send_xattr_size(value.len() as u32),
            Ok(value) if value.len() > size as usize => reply.send_error(Errno::RANGE),
            Ok(value) => reply.send_data(&value),
            Err(error) => reply.send_error(to_errno(&error)),
        }
    }

    /// Lists a directory from `cookie` on, without attributes: the listing counts no lookups.
    fn serve_readdir(&self, header: &RequestHeader, cookie: u64, size: u32, reply: ReplySender) {
        let mut buffer = DirBuffer::new(size);
        let listed = self
            .file_system
            .readdir(to_object(header.node), cookie, &mut |e| {
                until_full(buffer.push(e.object, e.cookie, e.kind, &e.name))
            });
        match listed {
            Ok(()) => reply.send_directory(&buffer),
            Err(error) => reply.send_error(to_errno(&error)),
        }
    }

    /// Lists a directory with the attributes of its entries, each of which counts a lookup.
    fn serve_readdirplus(
        &self,
        header: &RequestHeader,
        cookie: u64,
        size: u32,
        since: Moment,
        reply: ReplySender,
    ) {
        let mut buffer = DirBuffer::new(size);
        // Each entry with attributes counts a lookup, and is content that the kernel was given.
        let mut given = Vec::new();
        let listed =
            self.file_system
                .readdirplus(to_object(header.node), cookie, &mut |e, attr| {
                    given.extend(attr.map(|attr| attr.object));
                    let entry = attr.map(|attr| self.to_entry(attr));
                    until_full(buffer.push_plus(
                        entry.as_ref(),
                        e.object,
                        e.cookie,
                        e.kind,
                        &e.name,
                    ))
                });
        if let Err(error) = listed {
            return reply.send_error(to_errno(&error));
        }
        self.answer_given(&given, since, || reply.send_directory(&buffer));
    }

    /// Serves a question for attributes.
    fn serve_getattr(
        &self,
        header: &RequestHeader,
        operation: &FuseOperation<'_>,
        since: Moment,
        reply: ReplySender,
    ) {
        let no = to_object(header.node);
        let attr = match self.file_system.getattr(no) {
            Ok(attr) => attr,
            Err(error) => return reply.send_error(to_errno(&error)),
        };
        self.answer_given(&[no], since, || match operation {
            FuseOperation::Statx { .. } => reply.send_statx(&attr, self.attr_ttl(&attr)),
            _ => reply.send_attr(&attr, self.attr_ttl(&attr)),
        });
    }

    /// Serves operations on attributes, and all others.
    fn serve_attributes(
        &self,
        header: &RequestHeader,
        operation: &FuseOperation<'_>,
        reply: ReplySender,
    ) {
        let (file_system, no) = (&self.file_system, to_object(header.node));
        match operation {
            FuseOperation::Setattr(set) => {
                self.reply_attr(file_system.setattr(no, &to_setattr_request(set)), reply)
            }
            FuseOperation::Readlink => Self::reply_data(file_system.readlink(no), reply),
            // The last request of a mount on a block device: `umount` waits for its answer.
            FuseOperation::Fsync { .. }
            | FuseOperation::Fsyncdir { .. }
            | FuseOperation::Syncfs => {
                file_system.sync_then(move |result| Self::reply_done(result, reply));
            }
            FuseOperation::Destroy => {
                if let Some(hook) = self.destroy_hook.get() {
                    (hook.0)();
                }
                file_system.sync_then(move |result| Self::reply_done(result, reply));
            }
            FuseOperation::Statfs => {
                let s = file_system.statfs();
                reply.send_statfs(&StatfsReply {
                    block_size: s.block_size,
                    blocks: s.blocks,
                    free: s.free,
                    available: s.available,
                    files: s.files,
                    files_free: s.files_free,
                    name_max: s.name_max,
                });
            }
            // Only a recording wants opens: otherwise they are refused below, once and for all.
            FuseOperation::Open { .. } if self.observed => {
                let _delivery = reply.send_open(NO_HANDLE, self.open_flags());
            }
            FuseOperation::Release { .. } | FuseOperation::Releasedir { .. } => reply.send_ok(),
            FuseOperation::Ioctl(request) => self.serve_ioctl(header, request, reply),
            // OPEN, OPENDIR, CREATE and FLUSH among them: the kernel asks once and never again.
            _ => reply.send_error(Errno::NOSYS),
        }
    }
}
