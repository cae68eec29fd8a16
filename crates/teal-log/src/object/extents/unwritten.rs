//! Unwritten extents of a file: they come where there was a hole, and go where content comes.

use super::FileExtents;
use crate::error::StoreError;
use crate::format::extent::{MappedExtent, UNWRITTEN_BLOCKS, UnwrittenRun};
use crate::tree::PageSource;
use crate::tree::freed::FreedSpace;
use teal_types::{Lsn, ObjectNo};

impl FileExtents {
    /// Returns which of these blocks are unwritten: first block and count of each run, ascending.
    pub(crate) fn unwritten_in(
        &self,
        src: &dyn PageSource,
        no: ObjectNo,
        block: u64,
        count: u64,
    ) -> Result<Vec<(u64, u64)>, StoreError> {
        let end = block.saturating_add(count);
        let mut runs = Vec::new();
        let mut at = block;
        while let Some((start, extent)) = self
            .at_or_after(src, no, at)?
            .filter(|(start, _)| *start < end)
        {
            let stop = start + extent.blocks();
            if extent.is_unwritten() {
                let from = start.max(at);
                runs.push((from, stop.min(end) - from));
            }
            debug_assert!(stop > at, "an extent has a block");
            at = stop;
        }
        Ok(runs)
    }

    /// Takes away the unwritten extents among these blocks; content stays. Returns where they were.
    pub(crate) fn remove_unwritten(
        &mut self,
        src: &dyn PageSource,
        no: ObjectNo,
        block: u64,
        count: u64,
        freed: &mut Vec<FreedSpace>,
    ) -> Result<Vec<(u64, u64)>, StoreError> {
        let runs = self.unwritten_in(src, no, block, count)?;
        for (first, count) in &runs {
            self.remove_range(src, no, *first, *count, freed)?;
        }
        Ok(runs)
    }

    /// Makes a hole of at most [`UNWRITTEN_BLOCKS`] blocks unwritten. Returns the first block and
    /// the count of the extent that holds it now: one in front of it has grown if it could.
    pub(crate) fn fill_hole(
        &mut self,
        src: &dyn PageSource,
        no: ObjectNo,
        hole: (u64, u64),
        born: Lsn,
    ) -> Result<(u64, u64), StoreError> {
        let (first, count) = hole;
        assert!(
            (1..=UNWRITTEN_BLOCKS).contains(&count),
            "a hole of {count} blocks is filled in one piece"
        );
        // Small steps of one program so become one extent.
        let before = match first.checked_sub(1) {
            Some(last) => self
                .at_or_after(src, no, last)?
                .filter(|(start, extent)| {
                    *start < first
                        && extent.is_unwritten()
                        && extent.blocks() + count <= UNWRITTEN_BLOCKS
                })
                .map(|(start, extent)| (start, extent.blocks())),
            None => None,
        };
        let (start, blocks) =
            before.map_or((first, count), |(start, before)| (start, before + count));
        let run = UnwrittenRun {
            blocks: blocks as u16,
            born,
        };
        // An item of the same block is replaced.
        self.put_extent(src, start, MappedExtent::Unwritten(run))?;
        Ok((start, blocks))
    }
}
