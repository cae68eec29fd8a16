//! The operations that the kernel asks for.

use super::{Handle, LockOwner, NodeId, Unique};
use crate::session::InitFlags;
use rustix::fs::{Access, FallocateFlags, OFlags, RenameFlags, XattrFlags};
use std::marker::PhantomData;
use teal_types::{FileType, Timestamp};
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// A decoded request. Answers are named after the methods of [`crate::ReplySender`]; `send_error`
/// is always possible.
#[derive(Debug)]
#[non_exhaustive]
#[allow(
    missing_docs,
    reason = "the fields of an operation are named after what they hold; see its own line"
)]
pub enum FuseOperation<'a> {
    /// Finds `name` in the directory. Answer: `send_entry` (counts one lookup) or
    /// `send_negative_entry`.
    Lookup { name: &'a [u8] },
    /// The kernel gives back `lookups` of the node. No answer.
    Forget { lookups: u64 },
    /// Many forgets at once. No answer.
    BatchForget(FixedRecords<'a, ForgetRecord>),
    /// Answer: `send_attr`.
    Getattr { handle: Option<Handle> },
    /// Answer: `send_attr`.
    Setattr(SetattrRequest),
    /// Answer: `send_data`.
    Readlink,
    /// Answer: `send_entry`.
    Symlink { name: &'a [u8], target: &'a [u8] },
    /// Answer: `send_entry`. `rdev` is in the kernel's `new_encode_dev` form; `umask` counts only
    /// with `DONT_MASK`.
    Mknod {
        name: &'a [u8],
        kind: FileType,
        perm: u16,
        rdev: u32,
        umask: u32,
    },
    /// Answer: `send_entry`.
    Mkdir {
        name: &'a [u8],
        perm: u16,
        umask: u32,
    },
    /// Answer: `send_ok`.
    Unlink { name: &'a [u8] },
    /// Answer: `send_ok`.
    Rmdir { name: &'a [u8] },
    /// Both `RENAME` and `RENAME2`. Answer: `send_ok`.
    Rename {
        name: &'a [u8],
        new_parent: NodeId,
        new_name: &'a [u8],
        flags: RenameFlags,
    },
    /// A new name in the directory for `target`. Answer: `send_entry`.
    Link { target: NodeId, name: &'a [u8] },
    /// Answer: `send_open`.
    Open { flags: OFlags, kill_suidgid: bool },
    /// Answer: `send_data`, shorter only at the end of the file.
    Read {
        handle: Handle,
        offset: u64,
        size: u32,
        flags: OFlags,
        lock_owner: Option<LockOwner>,
    },
    /// Answer: `send_written`. `cached` means a write from the page cache: its handle is a guess,
    /// and its caller is the kernel.
    Write {
        handle: Handle,
        offset: u64,
        data: &'a [u8],
        flags: OFlags,
        lock_owner: Option<LockOwner>,
        cached: bool,
        kill_suidgid: bool,
    },
    /// Answer: `send_statfs`.
    Statfs,
    /// The last reference to an open file is gone. Answer: `send_ok`; no program sees an error.
    Release {
        handle: Handle,
        flags: OFlags,
        lock_owner: LockOwner,
        flush: bool,
        flock_unlock: bool,
    },
    /// Answer: `send_ok`.
    Fsync { handle: Handle, datasync: bool },
    /// Answer: `send_ok`. `kill_sgid` asks to clear the set-group-id bit with a new access ACL.
    Setxattr {
        name: &'a [u8],
        value: &'a [u8],
        flags: XattrFlags,
        kill_sgid: bool,
    },
    /// Answer: `send_xattr_size` when `size` is 0, else `send_data`, or the error `ERANGE`.
    Getxattr { name: &'a [u8], size: u32 },
    /// Answer: as `Getxattr`; the names, each with its NUL.
    Listxattr { size: u32 },
    /// Answer: `send_ok`.
    Removexattr { name: &'a [u8] },
    /// One descriptor is closed. Answer: `send_ok`.
    Flush {
        handle: Handle,
        lock_owner: LockOwner,
    },
    /// Answered by [`crate::FuseSession`]; a server never sees it.
    Init(InitRequest),
    /// Answer: `send_open`.
    Opendir { flags: OFlags },
    /// Answer: `send_directory`, empty at the end. `cookie` is that of the last entry seen, 0 at
    /// first.
    Readdir {
        handle: Handle,
        cookie: u64,
        size: u32,
    },
    /// As `Readdir`, with an [`crate::LookupEntry`] for each name.
    Readdirplus {
        handle: Handle,
        cookie: u64,
        size: u32,
    },
    /// Answer: `send_ok`.
    Releasedir { handle: Handle, flags: OFlags },
    /// Answer: `send_ok`.
    Fsyncdir { handle: Handle, datasync: bool },
    /// Answer: `send_lock`, the one in the way or an unlock.
    Getlk(LockRequest),
    /// `SETLK`, or `SETLKW` when `wait` is set. Answer: `send_ok`.
    Setlk { request: LockRequest, wait: bool },
    /// Answer: `send_ok`.
    Access { mask: Access },
    /// Creates and opens. Answer: `send_create`.
    Create {
        name: &'a [u8],
        flags: OFlags,
        perm: u16,
        umask: u32,
        kill_suidgid: bool,
    },
    /// The caller of `unique` got a signal. Answer: none, or the error `ENOSYS` to see no more of
    /// these.
    Interrupt { unique: Unique },
    /// Answer: `send_block`.
    Bmap { block: u64, block_size: u32 },
    /// The file system goes away (`fuseblk` only). Answer: `send_ok`.
    Destroy,
    /// Answer: `send_ioctl`.
    Ioctl(IoctlRequest<'a>),
    /// Answer: `send_events`. With `schedule_notify`, [`crate::KernelNotifier::poll_wakeup`] of
    /// `wakeup` later.
    Poll {
        handle: Handle,
        wakeup: u64,
        events: u32,
        schedule_notify: bool,
    },
    /// Cached data the server had asked for. No answer.
    NotifyReply { offset: u64, data: &'a [u8] },
    /// Answer: `send_ok`.
    Fallocate {
        handle: Handle,
        offset: u64,
        length: u64,
        mode: FallocateFlags,
    },
    /// `SEEK_DATA` or `SEEK_HOLE` (`whence` 3 or 4). Answer: `send_offset`.
    Lseek {
        handle: Handle,
        offset: u64,
        whence: u32,
    },
    /// Both `COPY_FILE_RANGE` and its 64-bit form. Answer: `send_copied`.
    CopyFileRange {
        handle: Handle,
        offset: u64,
        to_node: NodeId,
        to_handle: Handle,
        to_offset: u64,
        length: u64,
        flags: u64,
    },
    /// DAX windows (virtio-fs only). Answer: `send_ok`.
    SetupMapping {
        handle: Handle,
        file_offset: u64,
        length: u64,
        flags: u64,
        window_offset: u64,
    },
    /// Answer: `send_ok`.
    RemoveMapping(FixedRecords<'a, RemoveMapping>),
    /// `syncfs(2)` (`fuseblk` and virtio-fs only). Answer: `send_ok`.
    Syncfs,
    /// `O_TMPFILE` in the directory. Answer: `send_create`.
    Tmpfile {
        flags: OFlags,
        perm: u16,
        umask: u32,
        kill_suidgid: bool,
    },
    /// Answer: `send_statx`. `mask` and `flags` as in `statx(2)`.
    Statx {
        handle: Option<Handle>,
        flags: u32,
        mask: u32,
    },
    /// A code this protocol version does not define. Answer: the error `ENOSYS`.
    Unknown(u32),
}

/// The first request: the kernel's version and what it offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitRequest {
    /// Major version; the protocol here is 7.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
    /// The most the kernel reads ahead, in bytes.
    pub max_readahead: u32,
    /// The capabilities of the kernel.
    pub flags: InitFlags,
}

/// A node and the number of its lookups that the kernel gives back.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, KnownLayout, Immutable)]
pub struct ForgetRecord {
    /// The node.
    pub node: NodeId,
    /// The number of lookups.
    pub lookups: u64,
}

/// A range of a DAX window to unmap.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, KnownLayout, Immutable)]
pub struct RemoveMapping {
    /// Offset in the window.
    pub window_offset: u64,
    /// Length in bytes.
    pub length: u64,
}

/// The changes of a `SETATTR`; fields that are `None` stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetattrRequest {
    /// The open file it came through (`ftruncate`).
    pub handle: Option<Handle>,
    /// Permission bits.
    pub perm: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<TimeSet>,
    /// Last change of content.
    pub mtime: Option<TimeSet>,
    /// Last change of attributes (sent only with the write-back cache).
    pub ctime: Option<Timestamp>,
    /// The owner that must hold a mandatory lock.
    pub lock_owner: Option<LockOwner>,
    /// True if a change of size or owner also clears set-user-id and set-group-id.
    pub kill_suidgid: bool,
}

/// The new value of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeSet {
    /// The server's present time.
    Now,
    /// This time.
    At(Timestamp),
}

/// A byte-range or whole-file lock to test or change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRequest {
    /// The open file.
    pub handle: Handle,
    /// The owner that asks for the lock.
    pub owner: LockOwner,
    /// The range and kind.
    pub lock: FileLock,
    /// True for a `flock(2)` lock; `flock(2)` and `fcntl(2)` locks do not see each other.
    pub flock: bool,
}

/// A lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLock {
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; `i64::MAX` means the end of any file.
    pub end: u64,
    /// Its kind.
    pub kind: LockKind,
    /// The process that holds or asks for it.
    pub pid: u32,
}

/// The kind of a [`FileLock`], with the codes of `fcntl(2)` on Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// Shared.
    Read = 0,
    /// Exclusive.
    Write = 1,
    /// None.
    Unlock = 2,
}

/// A device control request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoctlRequest<'a> {
    /// The open file.
    pub handle: Handle,
    /// `FUSE_IOCTL_*`.
    pub flags: u32,
    /// The command.
    pub command: u32,
    /// The argument, often an address in the caller.
    pub argument: u64,
    /// The caller's data.
    pub input: &'a [u8],
    /// Room for an answer in bytes.
    pub output_size: u32,
}

/// Fixed-size records at the end of a request, in an unaligned buffer.
#[derive(Debug, Clone)]
pub struct FixedRecords<'a, T> {
    bytes: &'a [u8],
    record: PhantomData<T>,
}

impl<'a, T> FixedRecords<'a, T> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            record: PhantomData,
        }
    }
}

impl<T: FromBytes> Iterator for FixedRecords<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        // The length was checked against the count: too few bytes mean the end.
        let (record, left) = T::read_from_prefix(self.bytes).ok()?;
        self.bytes = left;
        Some(record)
    }
}
