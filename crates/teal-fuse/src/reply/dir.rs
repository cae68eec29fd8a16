//! A listing in the form the kernel reads.
//!
//! # Guarantees
//! 1. Never longer than the size the kernel asked for; an entry that does not fit changes nothing.

use super::LookupEntry;
use crate::abi::fuse_entry_out;
use crate::session::InitConfig;
use std::mem::size_of;
use teal_types::{FileType, ObjectNo};
use zerocopy::{Immutable, IntoBytes};

/// `fuse_dirent` without its name, which has no fixed size.
#[repr(C)]
#[derive(IntoBytes, Immutable)]
struct DirentHead {
    ino: u64,
    off: u64,
    namelen: u32,
    kind: u32,
}

/// Collects directory entries for one `READDIR` or `READDIRPLUS`.
#[derive(Debug)]
pub struct DirBuffer {
    bytes: Vec<u8>,
    limit: usize,
}

impl DirBuffer {
    /// Makes a buffer for the `size` of the request, at most [`InitConfig::MAX_WRITE`].
    pub fn new(size: u32) -> Self {
        let limit = size.min(InitConfig::MAX_WRITE) as usize;
        Self {
            bytes: Vec::with_capacity(limit),
            limit,
        }
    }

    /// Appends an entry for `READDIR`. `cookie` is the position behind it, from which a listing
    /// goes on. Returns whether the buffer is full, and the entry not in it.
    #[must_use]
    pub fn push(&mut self, object: ObjectNo, cookie: u64, kind: FileType, name: &[u8]) -> bool {
        self.append_entry(&[], object, cookie, kind, name)
    }

    /// Appends an entry for `READDIRPLUS`; `None` for `.`, `..` and names that the kernel shall
    /// look up itself. Each `Some` that was appended counts one lookup, except `.` and `..`.
    /// Returns as [`DirBuffer::push`].
    #[must_use]
    pub fn push_plus(
        &mut self,
        entry: Option<&LookupEntry>,
        object: ObjectNo,
        cookie: u64,
        kind: FileType,
        name: &[u8],
    ) -> bool {
        let out = entry.map_or_else(fuse_entry_out::default, |entry| entry.to_wire());
        self.append_entry(out.as_bytes(), object, cookie, kind, name)
    }

    /// Returns whether nothing was appended; the kernel takes that for the end of the directory.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends one entry, padded to eight bytes as the kernel reads it. Returns whether it did not
    /// fit.
    fn append_entry(
        &mut self,
        before: &[u8],
        object: ObjectNo,
        cookie: u64,
        kind: FileType,
        name: &[u8],
    ) -> bool {
        let start = self.bytes.len();
        debug_assert!(start.is_multiple_of(8), "entries are padded");
        let unpadded = before.len() + size_of::<DirentHead>() + name.len();
        let end = (start + unpadded).next_multiple_of(8);
        // A name beyond 32 bits does not exist; it counts as one that does not fit.
        let Ok(namelen) = u32::try_from(name.len()) else {
            return true;
        };
        // The kernel asks again from the last cookie, with an empty buffer.
        if end > self.limit {
            return true;
        }
        let head = DirentHead {
            ino: object.get(),
            off: cookie,
            namelen,
            kind: u32::from(kind.code()),
        };
        self.bytes.extend_from_slice(before);
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(end, 0);
        debug_assert!(self.bytes.len() <= self.limit);
        false
    }
}
