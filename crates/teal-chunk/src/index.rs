//! The place of every chunk: a compact table in memory.
//!
//! # Guarantees
//! 1. *Bounded*: at most [`INDEX_BYTES_PER_CHUNK`](crate::limits::INDEX_BYTES_PER_CHUNK) for each
//!    chunk, and little else.
//! 2. *Half a name is enough*: 128 bits of a name find its place, and two contents cannot be made
//!    to agree in them; reading compares all 256.
//!
//! Names are chosen by clients, so that buckets are drawn with a key of ours; the table is divided,
//! so that growing moves little at once.

use siphasher::sip::SipHasher13;
use std::collections::HashMap;
use std::hash::BuildHasher;
use teal_types::ChunkId;

const PARTS: usize = 64;
/// A collection has found the chunk alive.
const MARKED: u32 = 1 << 31;
/// Reading the chunk has found damage.
const DAMAGED: u32 = 1 << 30;

/// The half of a name that is kept in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ChunkIdPrefix([u8; 16]);

impl ChunkIdPrefix {
    pub(crate) fn from_id(id: &ChunkId) -> Self {
        Self(*id.get().first_chunk().expect("a name has 32 bytes"))
    }
}

/// A pack's place in the store's table of packs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PackSlot(pub(crate) u32);

/// The place of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkPlace {
    pub(crate) slot: PackSlot,
    /// Offset of the chunk's header.
    pub(crate) offset: u32,
    /// Bytes of the payload.
    pub(crate) stored: u32,
}

/// The record of a chunk in the index: its place and two flags.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexEntry {
    slot: PackSlot,
    offset: u32,
    /// Bytes of payload (at most 4 MiB) and the two flags.
    stored: u32,
}

impl IndexEntry {
    pub(crate) fn new(place: ChunkPlace) -> Self {
        debug_assert!(
            place.stored < DAMAGED,
            "a payload is at most CHUNK_MAX long"
        );
        Self {
            slot: place.slot,
            offset: place.offset,
            stored: place.stored,
        }
    }
    pub(crate) fn place(self) -> ChunkPlace {
        ChunkPlace {
            slot: self.slot,
            offset: self.offset,
            stored: self.stored & !(MARKED | DAMAGED),
        }
    }
    pub(crate) fn is_marked(self) -> bool {
        self.stored & MARKED != 0
    }
    pub(crate) fn is_damaged(self) -> bool {
        self.stored & DAMAGED != 0
    }
    pub(crate) fn mark(&mut self) {
        self.stored |= MARKED;
    }
    pub(crate) fn unmark(&mut self) {
        self.stored &= !MARKED;
    }
    pub(crate) fn mark_damaged(&mut self) {
        self.stored |= DAMAGED;
    }
    /// Sets another place, after the chunk was moved; its mark stays, and it is not damaged any
    /// more.
    pub(crate) fn set_place(&mut self, place: ChunkPlace) {
        // The damaged copy was elsewhere: only the mark is taken along.
        *self = Self {
            stored: place.stored | self.stored & MARKED,
            ..Self::new(place)
        };
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyedHashBuilder([u64; 2]);

impl KeyedHashBuilder {
    /// `seed` is random and kept from clients.
    pub(crate) fn new(seed: [u8; 16]) -> Self {
        let (keys, _) = seed.as_chunks::<8>();
        Self([u64::from_le_bytes(keys[0]), u64::from_le_bytes(keys[1])])
    }
}

impl BuildHasher for KeyedHashBuilder {
    type Hasher = SipHasher13;
    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0[0], self.0[1])
    }
}

/// Every chunk that can be had, and where.
#[derive(Debug)]
pub(crate) struct Index {
    parts: Vec<HashMap<ChunkIdPrefix, IndexEntry, KeyedHashBuilder>>,
    hash_builder: KeyedHashBuilder,
}

impl Index {
    pub(crate) fn new(hash_builder: KeyedHashBuilder) -> Self {
        Self {
            parts: (0..PARTS)
                .map(|_| HashMap::with_hasher(hash_builder))
                .collect(),
            hash_builder,
        }
    }

    fn part_of(&self, chunk: &ChunkIdPrefix) -> usize {
        // The upper bits, which the parts do not use for their buckets.
        (self.hash_builder.hash_one(chunk) >> 32) as usize % PARTS
    }

    pub(crate) fn get(&self, chunk: &ChunkIdPrefix) -> Option<&IndexEntry> {
        self.parts[self.part_of(chunk)].get(chunk)
    }

    pub(crate) fn get_mut(&mut self, chunk: &ChunkIdPrefix) -> Option<&mut IndexEntry> {
        let part = self.part_of(chunk);
        self.parts[part].get_mut(chunk)
    }

    pub(crate) fn insert(&mut self, chunk: ChunkIdPrefix, known: IndexEntry) {
        let part = self.part_of(&chunk);
        self.parts[part].insert(chunk, known);
    }

    pub(crate) fn remove(&mut self, chunk: &ChunkIdPrefix) {
        let part = self.part_of(chunk);
        self.parts[part].remove(chunk);
    }

    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(HashMap::len).sum()
    }

    /// In no order that means anything.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ChunkIdPrefix, &IndexEntry)> {
        self.parts.iter().flatten()
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut IndexEntry> {
        self.parts.iter_mut().flat_map(HashMap::values_mut)
    }
}

#[cfg(test)]
mod tests;
