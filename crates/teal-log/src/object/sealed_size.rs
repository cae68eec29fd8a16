//! What changes take in the log, at most: bounds that are known without looking at the disk.
//!
//! # Invariants
//! 1. An object in the open batch makes sealing write at most [`State::weight`] bytes, its pages not counted.
//! 2. A checkpoint writes at most [`Store::fold_bytes`] more.
//! 3. Both are checked at every commit, where assertions are on: a batch takes no more of the free segments than
//!    [`Store::batch_takes`] says.
//!
//! # How
//! Sealing turns pages in memory, which are counted exactly, into a little more of them: every block may split an extent. That and the
//! headers of deltas are part of the weights. Ends of segments that are too short for what follows are covered by [`with_waste`].

use crate::format::record::SECTORS_MAX;
use crate::object::state::{Blocks, Content, State};
use crate::store::Store;
use crate::tree::page_bounds::{LEVELS, MAP_ITEM, PAGE, SMALL_PAGE, SPANNED};
use std::sync::atomic::Ordering;
use teal_types::{BLOCK, SECTOR};

/// A block, its delta, its checksum, and what two more items in half full pages take.
const BLOCK_TAKES: u64 = BLOCK + 64 + 192;
/// Header of a delta and the fixed part of an inode record.
const RECORD: u64 = 192;
/// Most content an inode record holds beside what is counted apart.
const CONTENT: u64 = 1024 + 64;
/// An entry set, with the longest name.
const ENTRY: u64 = 320;
const HOLE: u64 = 40;
/// A part of a shared extent: its delta, and an item in a half full page.
const PART: u64 = 160;
/// Sealing a block may change two counts of shared extents: one part in this many of it.
const COUNTS_PART: u64 = 40;
/// Header of an item of an inode record.
const ITEM: u64 = 32;
/// Records larger than this do not just fill the rest of a segment: they may leave as much unused as they take.
const LARGE: u64 = 4096;
/// What objects add to the open batch, and the pages that only memory holds of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weight {
    pub(crate) pages: usize,
    pub(crate) bytes: u64,
}

impl Weight {
    pub(crate) fn of<'s>(states: impl Iterator<Item = &'s State>) -> Self {
        let none = Self { pages: 0, bytes: 0 };
        states.fold(none, |sum, state| Self {
            pages: sum.pages + state.pages(),
            bytes: sum.bytes + state.weight(),
        })
    }
}

impl State {
    /// Bytes of names and extended attributes in a record, at most.
    fn head_weight(&self) -> u64 {
        let links: usize = self.links.iter().map(|l| l.name.as_bytes().len()).sum();
        let xattrs: usize = self
            .xattrs
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        let items = (self.links.len() + self.xattrs.len()) as u64;
        (links + xattrs) as u64 + items * ITEM
    }

    /// The whole record, at most, once blocks and entries have found their places.
    pub(crate) fn record_weight(&self) -> u64 {
        let inline = match &self.content {
            Content::Inline(data) => data.len() as u64,
            _ => CONTENT,
        };
        let record = RECORD + inline + self.head_weight();
        if record > LARGE { 2 * record } else { record }
    }

    /// What sealing this object writes, at most, pages not counted; nothing if the open batch has not changed it.
    fn weight(&self) -> u64 {
        if !self.in_batch {
            return 0;
        }
        let content = match &self.content {
            Content::Blocks(Blocks {
                dirty,
                moving,
                holes,
                remapped,
                ..
            }) => {
                // A block or a hole may split a part in two.
                let splits = if remapped.ranges.is_empty() {
                    0
                } else {
                    dirty.len() + holes.len()
                };
                let parts = remapped.parts + 2 * remapped.ranges.len() + splits;
                let blocks = (dirty.len() + moving.len()) as u64 * BLOCK_TAKES;
                blocks + holes.len() as u64 * HOLE + parts as u64 * PART + CONTENT
            }
            Content::Dir(dir) => dir.changed.len() as u64 * ENTRY,
            Content::Inline(_) | Content::None => 0,
        };
        // A head or the attributes, then the whole record, now or when a checkpoint folds it.
        content + 2 * RECORD + self.head_weight() + self.record_weight()
    }

    /// Pages that the next checkpoint will write for this object.
    fn pages(&self) -> usize {
        if self.in_batch || self.unfolded {
            self.mem_pages()
        } else {
            0
        }
    }
}

/// What writing this much takes, with what the ends of segments and records waste.
pub(crate) fn with_waste(bytes: u64, segment: u64) -> u64 {
    // The end of a segment that is shorter than a block with its delta, or than the shortest run.
    let each = 16 << 10;
    let record = segment.min(SECTORS_MAX * SECTOR);
    bytes + (bytes / record + 2) * each + bytes / 64
}

impl Store {
    /// What a checkpoint writes at most for what is changed now and not in the open batch.
    pub(crate) fn fold_bytes(&self) -> u64 {
        self.fold_with(self.deferred.reserve(), self.deferred.leaves())
    }

    /// The same, with so many bytes and leaves of the inode map for what is not up to date.
    pub(crate) fn fold_with(&self, reserve: u64, leaves: u64) -> u64 {
        let objects = self.objects.load(Ordering::Relaxed).max(0) as u64;
        // One lock at a time: a checkpoint takes them in the other order.
        let unfolded = self.unfolded.lock().leaves();
        let changed = self.imap.read().changed_leaves();
        let spread = unfolded + changed + leaves;
        // Leaves are as many as changes, or hold all there is; above them stand at most as many pages as the whole tree has.
        let leaves = (spread * PAGE).min(spread * SMALL_PAGE + objects * MAP_ITEM);
        let above = spread.min(self.pages_above()) * PAGE;
        self.fold_in_memory() + reserve + leaves + above
    }

    /// The same, but for pages of the inode map that are not in memory yet.
    fn fold_in_memory(&self) -> u64 {
        let map = self.imap.read().tree.mem_pages();
        let orphans = self.orphans.lock().mem_pages();
        let notes = self.notes.lock().mem_pages();
        let records = self.unfolded.lock().bytes();
        let pages =
            self.mem_pages.load(Ordering::Relaxed).max(0) as u64 + (map + orphans + notes) as u64;
        records + pages * PAGE + self.usage_bytes() + self.shared_bytes()
    }

    /// Pages of the inode map above its leaves, at most.
    pub(crate) fn pages_above(&self) -> u64 {
        let objects = self.objects.load(Ordering::Relaxed).max(0) as u64;
        objects
            .div_ceil(1000)
            .min(self.next_object.load(Ordering::Relaxed) / SPANNED)
            + LEVELS
    }

    /// What is to be written of the table of shared extents, and of what is moving, at most.
    fn shared_bytes(&self) -> u64 {
        let shared = &self.reader.shared;
        if shared.is_empty() && shared.takes() == 0 {
            return 0;
        }
        // Two counts for each block that replaces parts.
        shared.takes() + self.gathered.load(Ordering::Relaxed).max(0) as u64 / COUNTS_PART
    }

    /// What the usage table and the roots take in a checkpoint, at most.
    pub(crate) fn usage_bytes(&self) -> u64 {
        (u64::from(self.geometry.segments) / 40 + 8) * PAGE
    }

    /// What sealing the open batch as a checkpoint takes of the free segments, at most.
    pub(crate) fn batch_takes(&self) -> u64 {
        let gathered = self.gathered.load(Ordering::Relaxed).max(0) as u64;
        with_waste(gathered + self.fold_bytes(), self.geometry.segment_bytes())
    }

    /// The same for a checkpoint whose pages are in memory: how many there are is known, and each object may split a leaf.
    pub(crate) fn warm_takes(&self) -> u64 {
        let gathered = self.gathered.load(Ordering::Relaxed).max(0) as u64;
        let unfolded = self.unfolded.lock().len();
        let open = self.open.lock().objects.len();
        let items = (unfolded + open) as u64;
        let map = items * (SMALL_PAGE + MAP_ITEM) + LEVELS * PAGE;
        let fold = self.fold_in_memory() + self.deferred.reserve() + map;
        with_waste(gathered + fold, self.geometry.segment_bytes())
    }

    /// Counts pages of objects that have come or gone in memory.
    pub(crate) fn pages_changed(&self, from: usize, to: usize) {
        self.mem_pages
            .fetch_add(to as i64 - from as i64, Ordering::Relaxed);
    }
}
