//! Counters of a store.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The work of a store since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChunkCounts {
    /// Chunks that clients added.
    pub added: u64,
    /// Bytes of content of these.
    pub added_bytes: u64,
    /// Chunks of these that were durable here already.
    pub hits: u64,
    /// Packs put on the shelf.
    pub packs: u64,
    /// Bytes of these.
    pub pack_bytes: u64,
    /// Chunks read.
    pub reads: u64,
    /// Bytes of content of these.
    pub read_bytes: u64,
    /// Reads that found damage.
    pub damaged: u64,
}

#[derive(Debug, Default)]
pub(crate) struct ChunkCounters {
    added: AtomicU64,
    added_bytes: AtomicU64,
    hits: AtomicU64,
    packs: AtomicU64,
    pack_bytes: AtomicU64,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    damaged: AtomicU64,
}

impl ChunkCounters {
    pub(crate) fn count_added(&self, bytes: usize) {
        self.added.fetch_add(1, Relaxed);
        self.added_bytes.fetch_add(bytes as u64, Relaxed);
    }
    pub(crate) fn count_hit(&self) {
        self.hits.fetch_add(1, Relaxed);
    }
    pub(crate) fn count_pack(&self, bytes: u64) {
        self.packs.fetch_add(1, Relaxed);
        self.pack_bytes.fetch_add(bytes, Relaxed);
    }
    pub(crate) fn count_read(&self, bytes: usize) {
        self.reads.fetch_add(1, Relaxed);
        self.read_bytes.fetch_add(bytes as u64, Relaxed);
    }
    pub(crate) fn count_damage(&self) {
        self.damaged.fetch_add(1, Relaxed);
    }
    pub(crate) fn counts(&self) -> ChunkCounts {
        ChunkCounts {
            added: self.added.load(Relaxed),
            added_bytes: self.added_bytes.load(Relaxed),
            hits: self.hits.load(Relaxed),
            packs: self.packs.load(Relaxed),
            pack_bytes: self.pack_bytes.load(Relaxed),
            reads: self.reads.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            damaged: self.damaged.load(Relaxed),
        }
    }
}
