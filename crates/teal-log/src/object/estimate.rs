//! What sealing and folding take in the log, at most, for all that is changed now: bounds that are
//! known without looking at the disk.
//!
//! # Invariants
//! 1. A checkpoint writes at most [`ObjectStore::fold_bytes`] beside what the open batch takes.
//! 2. Sealing takes no more of the free segments than [`ObjectStore::batch_takes`] says; each
//!    commit compares.

use crate::format::record::SECTORS_MAX;
use crate::object::objects::ObjectStore;
use crate::tree::page_bounds::{LEVELS, MAP_ITEM, PAGE, SMALL_PAGE, SPANNED};
use teal_types::SECTOR;

/// Sealing a block may change two counts of shared extents: one part in this many of it.
const COUNTS_PART: u64 = 40;

/// Returns what writing this much takes, with what the ends of segments and records waste.
pub(crate) fn with_waste(bytes: u64, segment: u64) -> u64 {
    // The end of a segment that is shorter than a block with its delta, or than the shortest run.
    let each = 16 << 10;
    let record = segment.min(SECTORS_MAX * SECTOR);
    bytes + (bytes / record + 2) * each + bytes / 64
}

impl ObjectStore {
    /// Returns what a checkpoint writes at most for what is changed now and not in the open batch.
    pub(crate) fn fold_bytes(&self) -> u64 {
        self.fold_with(self.deferred.reserve(), self.deferred.leaves())
    }

    /// The same, with so many bytes and leaves of the inode map for what is not up to date.
    pub(crate) fn fold_with(&self, reserve: u64, leaves: u64) -> u64 {
        let objects = self.numbers.object_count();
        // One lock at a time: a checkpoint takes them in the other order.
        let unfolded = self.unfolded.leaves();
        let changed = self.inode_map.read().changed_leaves();
        let spread = unfolded + changed + leaves;
        // Leaves are as many as changes, or hold all there is; above them stand at most as many
        // pages as the whole tree has.
        let leaves = (spread * PAGE).min(spread * SMALL_PAGE + objects * MAP_ITEM);
        let above = spread.min(self.pages_above()) * PAGE;
        self.fold_in_memory() + reserve + leaves + above
    }

    /// The same, but for pages of the inode map that are not in memory yet.
    fn fold_in_memory(&self) -> u64 {
        let map = self.inode_map.read().tree.mem_pages();
        let orphans = self.orphans.lock().mem_pages();
        let notes = self.notes.lock().mem_pages();
        let records = self.unfolded.bytes();
        let pages = self.ledger.memory_pages() + (map + orphans + notes) as u64;
        records + pages * PAGE + self.usage_bytes() + self.shared_bytes()
    }

    /// Pages of the inode map above its leaves, at most.
    pub(crate) fn pages_above(&self) -> u64 {
        let objects = self.numbers.object_count();
        objects
            .div_ceil(1000)
            .min(self.numbers.next_object() / SPANNED)
            + LEVELS
    }

    /// Returns what is to be written of the table of shared extents, and of what is moving, at
    /// most.
    fn shared_bytes(&self) -> u64 {
        let shared = &self.reader.shared;
        if shared.is_empty() && shared.bytes_taken() == 0 {
            return 0;
        }
        // Two counts for each block that replaces parts.
        shared.bytes_taken() + self.ledger.batch_bytes() / COUNTS_PART
    }

    /// Returns what the usage table and the roots take in a checkpoint, at most.
    pub(crate) fn usage_bytes(&self) -> u64 {
        (u64::from(self.geometry.segments) / 40 + 8) * PAGE
    }

    /// Returns what sealing the open batch as a checkpoint takes of the free segments, at most.
    pub(crate) fn batch_takes(&self) -> u64 {
        let gathered = self.ledger.batch_bytes();
        with_waste(gathered + self.fold_bytes(), self.geometry.segment_bytes())
    }

    /// The same for a checkpoint whose pages are in memory: how many there are is known, and each
    /// object may split a leaf.
    pub(crate) fn warm_takes(&self) -> u64 {
        let gathered = self.ledger.batch_bytes();
        let unfolded = self.unfolded.len();
        let open = self.open.object_count();
        let items = (unfolded + open) as u64;
        let map = items * (SMALL_PAGE + MAP_ITEM) + LEVELS * PAGE;
        let fold = self.fold_in_memory() + self.deferred.reserve() + map;
        with_waste(gathered + fold, self.geometry.segment_bytes())
    }
}
