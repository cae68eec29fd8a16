//! Reading the content of a file of which parts may be lost.
//!
//! # Guarantee
//! Every byte that is shown was read and matched its checksum. What is not shown is a hole, or is
//! counted as lost.

use crate::format::extent::MappedExtent;
use crate::format::page::NodeItems;
use crate::object::extents::FileExtents;
use crate::object::state::{ObjectContent, ObjectState};
use crate::tree::reader::CachedReader;
use teal_types::{BLOCK, ObjectNo};

/// Blocks that are read and shown together.
const PIECE_BLOCKS: u64 = 64;
/// The most bytes of content that are shown at once.
pub(super) const PIECE_BYTES: u64 = PIECE_BLOCKS * BLOCK;

/// The parts of a file that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct LostContent {
    /// Bytes that the map leads to.
    pub(super) bytes: u64,
    /// Bytes that were read.
    pub(super) read: u64,
    /// Pages of the map, which lead to bytes unknown.
    pub(super) pages: u64,
}

impl LostContent {
    pub(super) fn is_whole(&self) -> bool {
        self.bytes == 0 && self.pages == 0
    }
}

/// Looks at a piece of content, which begins at a byte of the file; may end the reading.
pub(super) type ContentVisitor<'v, E> = &'v mut dyn FnMut(u64, &[u8]) -> Result<(), E>;

/// The blocks of a file that are stored: first block and count, ascending.
type StoredRanges = Vec<(u64, u64)>;

/// Returns the blocks of a file that its map leads to, and how many pages of the map cannot be
/// read.
fn stored_ranges(src: &CachedReader, extents: &FileExtents) -> (StoredRanges, u64) {
    let mut ranges: StoredRanges = Vec::new();
    let mut pages = 0;
    let add = |ranges: &mut StoredRanges, first: u64, extent: &MappedExtent| {
        // Nothing is stored of room that is set aside.
        if extent.is_unwritten() {
            return;
        }
        match ranges.last_mut() {
            Some((start, count)) if *start + *count == first => *count += extent.blocks(),
            _ => ranges.push((first, extent.blocks())),
        }
    };
    match extents {
        FileExtents::Few(map) => {
            for (first, extent) in map {
                add(&mut ranges, *first, extent);
            }
        }
        FileExtents::Tree(tree) => {
            // Leaf by leaf, in order; a page that cannot be read hides what is below it.
            let mut damaged = 0;
            tree.walk_nodes(
                src,
                &mut |_, node| {
                    let NodeItems::Leaf(items) = &node.items else {
                        return;
                    };
                    for (first, value) in items {
                        match MappedExtent::decode_at(*first, value) {
                            Some(extent) => add(&mut ranges, *first, &extent),
                            None => damaged += 1,
                        }
                    }
                },
                &mut |_, _| pages += 1,
            );
            pages += damaged;
        }
    }
    (ranges, pages)
}

/// Shows the content of a file, piece by piece, and returns what of it cannot be read. Holes are
/// not shown.
///
/// # Errors
/// Those of `show`, at once.
pub(super) fn read_content<E>(
    src: &CachedReader,
    no: ObjectNo,
    state: &ObjectState,
    show: ContentVisitor<'_, E>,
) -> Result<LostContent, E> {
    let mut lost = LostContent::default();
    let blocks = match &state.content {
        ObjectContent::Inline(data) => {
            if !data.is_empty() {
                show(0, data)?;
            }
            lost.read = data.len() as u64;
            return Ok(lost);
        }
        ObjectContent::Blocks(blocks) => blocks,
        ObjectContent::None | ObjectContent::Dir(_) => return Ok(lost),
    };
    debug_assert!(
        blocks.dirty.is_empty(),
        "a store that is salvaged is not written"
    );
    let (ranges, pages) = stored_ranges(src, &blocks.extents);
    lost.pages = pages;
    let mut read_piece = |first: u64, count: u64| -> Result<bool, E> {
        let from = first * BLOCK;
        // A map may lead to blocks behind the end of the file: they are no content.
        let end = ((first + count) * BLOCK).min(state.core.size);
        if from >= end {
            return Ok(true);
        }
        let len = (end - from) as usize;
        // Every block is checked on the way.
        let read = state
            .plan_read(src, no, from, len)
            .and_then(|plan| src.gather_stretches(no, &plan));
        match read {
            Ok(bytes) => {
                lost.read += len as u64;
                show(from, &bytes.to_vec()).map(|()| true)
            }
            // The caller tries each block.
            Err(_) if count > 1 => Ok(false),
            Err(_) => {
                lost.bytes += len as u64;
                Ok(false)
            }
        }
    };
    for (start, count) in ranges {
        let mut done = 0;
        while done < count {
            let piece = PIECE_BLOCKS.min(count - done);
            if !read_piece(start + done, piece)? && piece > 1 {
                // Block by block: only those that cannot be read are lost.
                for block in 0..piece {
                    read_piece(start + done + block, 1)?;
                }
            }
            done += piece;
        }
    }
    Ok(lost)
}
