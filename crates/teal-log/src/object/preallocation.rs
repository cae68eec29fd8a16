//! Room that is set aside for blocks of a file before they are written (`fallocate`).
//!
//! # Invariants
//! 1. A block for which room is set aside is unwritten in the file's map, and counted once in the
//!    [ledger](crate::space::ledger); no other block is.
//! 2. Content that comes to such a block takes the extent away in the same operation: from then on
//!    the open batch counts the block, and the ledger does not.
//! 3. A step sets no more aside than was looked at and promised beforehand.

use crate::error::StoreError;
use crate::format::extent::{BLOCK_SECTORS, UNWRITTEN_BLOCKS};
use crate::object::state::{BlockContent, ObjectContent, ObjectState};
use crate::tree::freed::FreedSpace;
use crate::tree::reader::CachedReader;
use teal_types::{BLOCK, Lsn, ObjectNo};

/// Most blocks for which one step sets room aside: 16 MiB, so that a store that must be cleaned for
/// it is cleaned in steps.
const STEP_BLOCKS: u64 = 4096;
/// Most extents that one step makes, and most that it looks at.
const STEP_PARTS: usize = 64;
const STEP_LOOKS: usize = 1024;
const _: () = assert!(
    STEP_BLOCKS <= UNWRITTEN_BLOCKS,
    "a hole is filled in one piece"
);

/// The bounds of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StepBounds {
    pub(crate) blocks: u64,
    pub(crate) parts: usize,
}

impl StepBounds {
    pub(crate) const LARGEST: Self = Self {
        blocks: STEP_BLOCKS,
        parts: STEP_PARTS,
    };
}

/// The holes that one step fills.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HolesFound {
    /// First block and count of each, ascending.
    pub(crate) holes: Vec<(u64, u64)>,
    /// Their blocks.
    pub(crate) blocks: u64,
    /// The first block that was not looked at.
    pub(crate) end: u64,
}

impl HolesFound {
    fn add(&mut self, first: u64, count: u64) {
        debug_assert!(count > 0 && first >= self.end, "holes ascend");
        self.holes.push((first, count));
        self.blocks += count;
        self.end = first + count;
    }
}

impl BlockContent {
    fn holes_in(
        &self,
        src: &CachedReader,
        no: ObjectNo,
        first: u64,
        end: u64,
        bounds: StepBounds,
    ) -> Result<HolesFound, StoreError> {
        let mut found = HolesFound {
            end: first,
            ..HolesFound::default()
        };
        for _ in 0..STEP_LOOKS {
            let at = found.end;
            if at >= end || found.blocks >= bounds.blocks || found.holes.len() >= bounds.parts {
                break;
            }
            // A dirty block has a place in the open batch.
            let dirty = self.dirty.range(at..end).next().map(|(block, _)| *block);
            if dirty == Some(at) {
                found.end = at + 1;
                continue;
            }
            let stop = dirty.unwrap_or(end);
            match self.extents.at_or_after(src, no, at)? {
                // Stored, shared, or set aside already.
                Some((start, extent)) if start <= at => {
                    found.end = (start + extent.blocks()).min(end);
                }
                next => {
                    let stop = stop.min(next.map_or(u64::MAX, |(start, _)| start));
                    let left = bounds.blocks - found.blocks;
                    found.add(at, (stop - at).min(left));
                }
            }
        }
        Ok(found)
    }
}

impl ObjectState {
    /// Returns the holes between two blocks for which one step can set room aside.
    pub(crate) fn holes_in(
        &self,
        src: &CachedReader,
        no: ObjectNo,
        (first, end): (u64, u64),
        bounds: StepBounds,
    ) -> Result<HolesFound, StoreError> {
        match &self.content {
            ObjectContent::Blocks(blocks) => blocks.holes_in(src, no, first, end, bounds),
            // A small file has all of its content in its first block, and nothing behind it.
            ObjectContent::Inline(data) => {
                let mut found = HolesFound {
                    end: first.max(u64::from(!data.is_empty())).min(end),
                    ..HolesFound::default()
                };
                let count = (end - found.end).min(bounds.blocks);
                if count > 0 && bounds.parts > 0 {
                    found.add(found.end, count);
                }
                Ok(found)
            }
            ObjectContent::None | ObjectContent::Dir(_) => Ok(HolesFound {
                end,
                ..HolesFound::default()
            }),
        }
    }

    /// Sets room aside for the holes between two blocks, within these bounds.
    pub(crate) fn preallocate(
        &mut self,
        src: &CachedReader,
        no: ObjectNo,
        (first, end): (u64, u64),
        bounds: StepBounds,
        born: Lsn,
    ) -> Result<HolesFound, StoreError> {
        let found = self.holes_in(src, no, (first, end), bounds)?;
        if found.holes.is_empty() {
            return Ok(found);
        }
        let blocks = self.blocks_mut();
        // All pages that sealing will change are in memory now: sealing does no I/O.
        blocks.extents.warm(src, first, found.end - first)?;
        for hole in &found.holes {
            let (start, count) = blocks.extents.fill_hole(src, no, *hole, born)?;
            blocks.remapped.add(start, count, 1);
        }
        self.core.sectors = self
            .core
            .sectors
            .saturating_add(found.blocks * BLOCK_SECTORS);
        Ok(found)
    }

    /// Gives up room that is set aside for some blocks; what is written of them stays.
    pub(crate) fn release_room(
        &mut self,
        src: &CachedReader,
        no: ObjectNo,
        (first, count): (u64, u64),
        freed: &mut Vec<FreedSpace>,
    ) -> Result<(), StoreError> {
        let ObjectContent::Blocks(blocks) = &mut self.content else {
            return Ok(());
        };
        blocks.extents.warm(src, first, count)?;
        let released = blocks
            .extents
            .remove_unwritten(src, no, first, count, freed)?;
        blocks.holes.extend(released);
        self.uncount_room(freed);
        Ok(())
    }

    /// Uses the room that is set aside for blocks which have just been written, and are dirty.
    pub(crate) fn use_room(
        &mut self,
        src: &CachedReader,
        no: ObjectNo,
        offset: u64,
        len: u64,
        freed: &mut Vec<FreedSpace>,
    ) -> Result<(), StoreError> {
        let ObjectContent::Blocks(blocks) = &mut self.content else {
            return Ok(());
        };
        let (first, end) = block_range(offset, len);
        debug_assert!(
            (first..end).all(|block| blocks.dirty.contains_key(&block)),
            "room is used by what is written"
        );
        blocks
            .extents
            .remove_unwritten(src, no, first, end - first, freed)?;
        self.uncount_room(freed);
        Ok(())
    }

    fn uncount_room(&mut self, freed: &[FreedSpace]) {
        let sectors = FreedSpace::unwritten_blocks(freed) * BLOCK_SECTORS;
        self.core.sectors = self.core.sectors.saturating_sub(sectors);
    }

    /// Returns the number of blocks of a range for which room is set aside; `None` if there is none
    /// for them nor for the blocks beside them.
    pub(crate) fn room_at(
        &self,
        src: &CachedReader,
        no: ObjectNo,
        offset: u64,
        len: u64,
    ) -> Result<Option<u64>, StoreError> {
        let ObjectContent::Blocks(blocks) = &self.content else {
            return Ok(None);
        };
        let (first, end) = block_range(offset, len);
        let from = first.saturating_sub(1);
        let runs = blocks.extents.unwritten_in(src, no, from, end + 1 - from)?;
        let inside = |(start, count): &(u64, u64)| {
            let stop = (start + count).min(end);
            stop.saturating_sub(*start.max(&first))
        };
        Ok((!runs.is_empty()).then(|| runs.iter().map(inside).sum()))
    }
}

/// Returns the first block of a range, and the block behind its last one.
pub(crate) fn block_range(offset: u64, len: u64) -> (u64, u64) {
    let end = offset.saturating_add(len);
    (offset / BLOCK, end.div_ceil(BLOCK))
}
