//! The structs of answers, from the types of TealFS.

use crate::abi;
use crate::request::{FileLock, Handle, NodeId};
use std::time::Duration;
use teal_types::{Attr, BLOCK, Timestamp};

/// `STATX_BASIC_STATS | STATX_BTIME`: the fields that [`Attr`] has.
const STATX_MASK: u32 = 0x0fff;

bitflags::bitflags! {
    /// The kernel's treatment of an open file or directory.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct OpenFlags: u32 {
        /// Reads and writes bypass the page cache.
        const DIRECT_IO = abi::FOPEN_DIRECT_IO;
        /// Keeps the cached pages of the file.
        const KEEP_CACHE = abi::FOPEN_KEEP_CACHE;
        /// The file cannot seek.
        const NONSEEKABLE = abi::FOPEN_NONSEEKABLE;
        /// The listing may be cached.
        const CACHE_DIR = abi::FOPEN_CACHE_DIR;
        /// The file has no position at all.
        const STREAM = abi::FOPEN_STREAM;
        /// No `FLUSH` at close (unless the write-back cache is on).
        const NOFLUSH = abi::FOPEN_NOFLUSH;
        /// Direct writes of one file in parallel.
        const PARALLEL_DIRECT_WRITES = abi::FOPEN_PARALLEL_DIRECT_WRITES;
    }
}

/// An object under a name, as the kernel is to remember it. [`Duration::MAX`] means: until it is
/// told otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookupEntry {
    /// The node, by which later requests name it.
    pub node: NodeId,
    /// Tells apart two objects that had the same node number one after the other.
    pub generation: u64,
    /// The attributes.
    pub attr: Attr,
    /// The time for which the attributes hold.
    pub attr_ttl: Duration,
    /// The time for which the name holds.
    pub entry_ttl: Duration,
}

impl LookupEntry {
    pub(super) fn to_wire(self) -> abi::fuse_entry_out {
        abi::fuse_entry_out {
            nodeid: self.node.get(),
            generation: self.generation,
            entry_valid: self.entry_ttl.as_secs(),
            attr_valid: self.attr_ttl.as_secs(),
            entry_valid_nsec: self.entry_ttl.subsec_nanos(),
            attr_valid_nsec: self.attr_ttl.subsec_nanos(),
            attr: attr_to_wire(&self.attr),
        }
    }
}

/// The answer to `statfs(2)`. Counts of blocks are in units of `block_size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatfsReply {
    /// Bytes of a block.
    pub block_size: u32,
    /// All blocks.
    pub blocks: u64,
    /// Free ones.
    pub free: u64,
    /// Free ones for users other than root.
    pub available: u64,
    /// All objects.
    pub files: u64,
    /// Objects that can still be made.
    pub files_free: u64,
    /// The longest name in bytes.
    pub name_max: u32,
}

impl StatfsReply {
    pub(super) fn to_wire(self) -> abi::fuse_statfs_out {
        let st = abi::fuse_kstatfs {
            blocks: self.blocks,
            bfree: self.free,
            bavail: self.available,
            files: self.files,
            ffree: self.files_free,
            bsize: self.block_size,
            namelen: self.name_max,
            frsize: self.block_size,
            ..Default::default()
        };
        abi::fuse_statfs_out { st }
    }
}

/// Returns `st_mode`: the type above the permission bits.
fn mode_bits(attr: &Attr) -> u16 {
    // `S_IFMT` is the upper four bits.
    u16::from(attr.kind.code()) << 12 | attr.perm & 0o7777
}

/// Returns the attributes in the kernel's form.
fn attr_to_wire(attr: &Attr) -> abi::fuse_attr {
    abi::fuse_attr {
        ino: attr.object.get(),
        size: attr.size,
        blocks: attr.sectors,
        atime: attr.atime.secs.cast_unsigned(),
        mtime: attr.mtime.secs.cast_unsigned(),
        ctime: attr.ctime.secs.cast_unsigned(),
        atimensec: attr.atime.nanos,
        mtimensec: attr.mtime.nanos,
        ctimensec: attr.ctime.nanos,
        // The kernel's `mode` is `st_mode`, the type included.
        mode: u32::from(mode_bits(attr)),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BLOCK as u32,
        flags: 0,
    }
}

pub(super) fn attr_out(of: &Attr, ttl: Duration) -> abi::fuse_attr_out {
    abi::fuse_attr_out {
        attr_valid: ttl.as_secs(),
        attr_valid_nsec: ttl.subsec_nanos(),
        dummy: 0,
        attr: attr_to_wire(of),
    }
}

pub(super) fn statx_out(attr: &Attr, ttl: Duration) -> abi::fuse_statx_out {
    let time = |t: Timestamp| abi::fuse_sx_time {
        tv_sec: t.secs,
        tv_nsec: t.nanos,
        __reserved: 0,
    };
    let stat = abi::fuse_statx {
        mask: STATX_MASK,
        blksize: BLOCK as u32,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        mode: mode_bits(attr),
        ino: attr.object.get(),
        size: attr.size,
        blocks: attr.sectors,
        atime: time(attr.atime),
        btime: time(attr.btime),
        ctime: time(attr.ctime),
        mtime: time(attr.mtime),
        // `new_encode_dev`: minor low byte, 12 bits major, the rest of the minor.
        rdev_major: attr.rdev >> 8 & 0xfff,
        rdev_minor: attr.rdev & 0xff | attr.rdev >> 12 & 0xfff00,
        ..Default::default()
    };
    abi::fuse_statx_out {
        attr_valid: ttl.as_secs(),
        attr_valid_nsec: ttl.subsec_nanos(),
        stat,
        ..Default::default()
    }
}

pub(super) fn open_out(handle: Handle, flags: OpenFlags) -> abi::fuse_open_out {
    abi::fuse_open_out {
        fh: handle.get(),
        open_flags: flags.bits(),
        backing_id: 0,
    }
}

pub(super) fn lk_out(lock: &FileLock) -> abi::fuse_lk_out {
    abi::fuse_lk_out {
        lk: abi::fuse_file_lock {
            start: lock.start,
            end: lock.end,
            type_: lock.kind as u32,
            pid: lock.pid,
        },
    }
}

/// Returns the number in an answer to this operation; see [`super::ReplyOutcome::value`].
pub(super) fn outcome_value(opcode: u32, parts: &[&[u8]]) -> u64 {
    use abi::opcode::*;
    match opcode {
        // The node of an entry, an offset, a count of bytes: first in the answer.
        FUSE_LOOKUP
        | FUSE_SYMLINK
        | FUSE_MKNOD
        | FUSE_MKDIR
        | FUSE_LINK
        | FUSE_CREATE
        | FUSE_TMPFILE
        | FUSE_LSEEK
        | FUSE_COPY_FILE_RANGE_64 => first_number(parts, 8),
        FUSE_WRITE | FUSE_COPY_FILE_RANGE => first_number(parts, 4),
        FUSE_READ | FUSE_READLINK | FUSE_READDIR | FUSE_READDIRPLUS | FUSE_GETXATTR
        | FUSE_LISTXATTR => parts.iter().map(|part| part.len() as u64).sum(),
        _ => 0,
    }
}

/// Reads the first `bytes` bytes of an answer as a little-endian number; 0 if it is shorter.
fn first_number(parts: &[&[u8]], bytes: usize) -> u64 {
    debug_assert!(bytes <= size_of::<u64>());
    let field = parts.first().and_then(|part| part.get(..bytes));
    let mut value = 0;
    for byte in field.unwrap_or_default().iter().rev() {
        value = value << 8 | u64::from(*byte);
    }
    value
}
