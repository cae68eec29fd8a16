//! Upper bounds on the space that changes take in the log. They are known without looking at the
//! disk.
//!
//! # Invariants
//! 1. An object in the open batch makes sealing write at most [`ObjectState::sealed_bytes`] bytes,
//!    its pages not counted.
//! 2. The additional bytes of a checkpoint are in [`estimate`](crate::object::estimate). Each
//!    commit compares both bounds with the bytes it took.
//!
//! # How
//! Sealing turns pages in memory, which are counted exactly, into a little more of them: every
//! block may split an extent. That and the headers of deltas are part of the sizes. Ends of
//! segments that are too short for what follows are covered by
//! [`with_waste`](crate::object::estimate::with_waste).

use crate::object::state::{BlockContent, ObjectContent, ObjectState};
use crate::space::cost::BLOCK_TAKES;

/// Header of a delta and the fixed part of an inode record.
const RECORD: u64 = 192;
/// Most content an inode record holds beside what is counted apart.
const CONTENT: u64 = 1024 + 64;
/// An entry set, with the longest name.
const ENTRY: u64 = 320;
const HOLE: u64 = 40;
/// A part of a shared extent: its delta, and an item in a half full page.
const PART: u64 = 160;
/// Header of an item of an inode record.
const ITEM: u64 = 32;
/// Records larger than this do not just fill the rest of a segment: they may leave as much unused
/// as they take.
const LARGE: u64 = 4096;
/// The bytes that objects add to the open batch, and the pages that only memory holds of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SealedSize {
    pub(crate) pages: usize,
    pub(crate) bytes: u64,
}

impl SealedSize {
    pub(crate) fn of_states<'s>(states: impl Iterator<Item = &'s ObjectState>) -> Self {
        let none = Self { pages: 0, bytes: 0 };
        states.fold(none, |sum, state| Self {
            pages: sum.pages + state.pages_to_fold(),
            bytes: sum.bytes + state.sealed_bytes(),
        })
    }
}

impl ObjectState {
    /// Returns the most bytes of names and extended attributes in a record.
    fn head_bytes(&self) -> u64 {
        let links: usize = self.links.iter().map(|l| l.name.as_bytes().len()).sum();
        let xattrs: usize = self
            .xattrs
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        // Each name and attribute is an item with a header.
        let items = (self.links.len() + self.xattrs.len()) as u64;
        (links + xattrs) as u64 + items * ITEM
    }

    /// Returns the most bytes of the whole record, once blocks and entries have found their places.
    pub(crate) fn record_bytes(&self) -> u64 {
        let inline = match &self.content {
            ObjectContent::Inline(data) => data.len() as u64,
            _ => CONTENT,
        };
        let record = RECORD + inline + self.head_bytes();
        // A long record may meet the end of a record or a segment.
        if record > LARGE { 2 * record } else { record }
    }

    /// Returns what sealing this object writes, at most, pages not counted; nothing if the open
    /// batch has not changed it.
    fn sealed_bytes(&self) -> u64 {
        // Only objects in the batch are sealed.
        if !self.in_batch {
            return 0;
        }
        let content = match &self.content {
            ObjectContent::Blocks(BlockContent {
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
            ObjectContent::Dir(dir) => dir.changed.len() as u64 * ENTRY,
            ObjectContent::Inline(_) | ObjectContent::None => 0,
        };
        // A head or the attributes, then the whole record, now or when a checkpoint folds it.
        content + 2 * RECORD + self.head_bytes() + self.record_bytes()
    }

    /// Returns the pages that the next checkpoint will write for this object.
    fn pages_to_fold(&self) -> usize {
        if self.in_batch || self.is_unfolded() {
            self.mem_pages()
        } else {
            0
        }
    }
}
