//! The limits of what a volume can hold, the same for every store, every client and every server.
//!
//! A state that one side accepts is sent to all others. So a limit has one value for all of them,
//! and it is here; how much a message, a cache or a batch may hold concerns one side only, and is
//! in the `limits` of that side.
//!
//! # Guarantees
//! 1. No other crate has a constant of these meanings (a test reads their sources).
//! 2. What two machines have made, and what together exceeds a limit, is a conflict of the
//!    server's; no client is given it.
//!
//! The length of a name is [`NAME_MAX`](crate::NAME_MAX), and object numbers end at
//! [`REPLICATED_LIMIT`](crate::REPLICATED_LIMIT).

use crate::{ObjectVersion, ReplicatedAttributes, Timestamp};

/// The most names of one object.
pub const LINKS_MAX: usize = 1000;

/// The longest target of a symbolic link, in bytes.
pub const TARGET_MAX: usize = 4095;

/// The longest file, in bytes: block numbers stay far from the end of 64 bits, and offsets fit into
/// every database.
pub const FILE_MAX: u64 = 1 << 60;

/// The longest name of an extended attribute, in bytes.
pub const XATTR_NAME_MAX: usize = 255;

/// The longest value of an extended attribute, in bytes.
pub const XATTR_VALUE_MAX: usize = 64 << 10;

/// The most bytes that the extended attributes of one object take together, each as [`xattr_bytes`]
/// counts it.
pub const XATTRS_BYTES_MAX: usize = 128 << 10;

/// Bytes that an extended attribute takes beside its name and value.
pub const XATTR_EACH: usize = 16;

/// The permission bits that an object can have.
pub const PERM_MAX: u16 = 0o7777;

/// The nanoseconds of a second: those of a time are fewer.
pub const NANOS_END: u32 = 1_000_000_000;

/// The longest chunk of content, and so the longest piece of a file that has one source, in bytes.
pub const CHUNK_MAX: usize = 4 << 20;

/// The most bytes of the operations of one batch: a client makes no larger ones, and a server keeps
/// so many for each client.
pub const BATCH_BYTES_MAX: u64 = 256 << 20;

/// The most parts in which the operations of one batch are sent.
pub const BATCH_PARTS_MAX: u32 = 4096;

/// Returns the bytes that an extended attribute with a name and a value of these lengths counts for
/// [`XATTRS_BYTES_MAX`].
pub const fn xattr_bytes(name: usize, value: usize) -> usize {
    name + value + XATTR_EACH
}

/// Returns the bytes of all extended attributes of an object, as they count for
/// [`XATTRS_BYTES_MAX`].
pub fn xattrs_bytes<'a>(all: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> usize {
    let mut bytes = 0;
    for (name, value) in all {
        bytes += xattr_bytes(name.len(), value.len());
    }
    bytes
}

impl Timestamp {
    /// Returns whether it is a time: its nanoseconds are less than a second.
    pub const fn is_valid(&self) -> bool {
        self.nanos < NANOS_END
    }
}

impl ReplicatedAttributes {
    /// Returns whether an object can have these.
    pub const fn are_valid(&self) -> bool {
        self.perm <= PERM_MAX
            && self.mtime.is_valid()
            && self.ctime.is_valid()
            && self.btime.is_valid()
    }
}

impl ObjectVersion {
    /// Returns in words which limit a state exceeds: servers of earlier versions had others.
    pub fn beyond_limits(&self) -> Option<String> {
        let excess = self.excess()?;
        Some(format!(
            "at the server it is beyond what a volume can hold ({excess})"
        ))
    }

    /// Returns the first limit that the state exceeds, with both figures.
    fn excess(&self) -> Option<String> {
        let mut longest_name = 0;
        let mut longest_value = 0;
        let mut total = 0;
        for (name, value) in &self.xattrs {
            longest_name = longest_name.max(name.len());
            longest_value = longest_value.max(value.len());
            total += xattr_bytes(name.len(), value.len());
        }
        let sizes = [
            ("names", self.links.len(), LINKS_MAX),
            ("bytes of its symbolic link", self.target.len(), TARGET_MAX),
            (
                "bytes of the name of an extended attribute",
                longest_name,
                XATTR_NAME_MAX,
            ),
            (
                "bytes of an extended attribute",
                longest_value,
                XATTR_VALUE_MAX,
            ),
            ("bytes of extended attributes", total, XATTRS_BYTES_MAX),
        ];
        // The first one is enough for a message.
        for (what, size, limit) in sizes {
            if size > limit {
                return Some(format!("{what}: {size}, at most {limit}"));
            }
        }
        // Apart from the others: a size of a file is no `usize`.
        if self.size > FILE_MAX {
            return Some(format!("bytes: {}, at most {FILE_MAX}", self.size));
        }
        if !self.attributes.are_valid() {
            return Some("permissions or times that no object has".to_owned());
        }
        None
    }
}

#[cfg(test)]
mod tests;
