//! A pack: every byte of it, and its golden bytes.
//!
//! A pack is an immutable object of a store, `[header][chunk]*[table][footer]`. All integers are
//! little-endian, checksums are CRC32C, offsets count from the pack's start. It describes itself:
//! the table says where every chunk lies, and without it (a pack cut short, a damaged table) the
//! chunks are found one by one by their own headers. `docs/format-chunks.md` is the same in prose.
//!
//! | module | structure | magic |
//! |---|---|---|
//! | [`header`] | the first bytes of a pack | `TEALPK\0\x01` |
//! | [`chunk`] | a chunk's header; its payload follows | `TCHK` |
//! | [`table`] | where every chunk of the pack lies; the footer, the last bytes of a pack | `TEND` |

pub(crate) mod chunk;
pub(crate) mod header;
pub(crate) mod table;

use crate::index::{ChunkPlace, PackSlot};
use teal_types::ChunkId;

/// Names a pack: random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackId([u8; 16]);

impl PackId {
    /// Wraps the raw bytes.
    pub const fn new(raw: [u8; 16]) -> Self {
        Self(raw)
    }
    /// Returns the raw bytes, as stored.
    pub const fn get(&self) -> &[u8; 16] {
        &self.0
    }
    /// Returns the object's name in a store: `packs/`, two digits, `/`, all 32 digits, `.pack`.
    pub(crate) fn object_name(self) -> String {
        format!("packs/{:02x}/{self}.pack", self.0[0])
    }
    /// Returns the pack that an object of this name is.
    pub(crate) fn from_object_name(name: &str) -> Option<Self> {
        let after_prefix = name.strip_prefix("packs/")?.get(3..)?;
        let digits = after_prefix.strip_suffix(".pack")?;
        let mut raw = [0; 16];
        for (at, byte) in raw.iter_mut().enumerate() {
            *byte = u8::from_str_radix(digits.get(at * 2..at * 2 + 2)?, 16).ok()?;
        }
        let pack = Self(raw);
        // Signs, capitals or more digits are another name, and not ours.
        (pack.object_name() == name).then_some(pack)
    }
}

impl std::fmt::Display for PackId {
    /// 32 hexadecimal digits.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for PackId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PackId({self})")
    }
}

/// The identity of a pack and of its domain: in its header and again in its footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PackIdentity {
    pub(crate) domain: [u8; 16],
    pub(crate) key_check: [u8; 8],
    pub(crate) pack: PackId,
}

/// The place of a chunk in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableEntry {
    pub(crate) id: ChunkId,
    /// Offset of the chunk's header.
    pub(crate) offset: u32,
    /// Bytes of the payload, behind the header.
    pub(crate) stored: u32,
    /// Bytes of the content.
    pub(crate) bytes: u32,
}

impl TableEntry {
    /// Returns the range of header and payload. The codecs keep entries inside `u32`.
    pub(crate) fn byte_range(&self) -> std::ops::Range<u64> {
        let start = u64::from(self.offset);
        start..start + chunk::BYTES as u64 + u64::from(self.stored)
    }

    /// Returns the place in the pack of this slot.
    pub(crate) fn place_in(&self, slot: PackSlot) -> ChunkPlace {
        ChunkPlace {
            slot,
            offset: self.offset,
            stored: self.stored,
        }
    }
}

#[cfg(test)]
mod tests;
