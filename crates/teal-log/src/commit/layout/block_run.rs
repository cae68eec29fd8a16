//! Runs of blocks, which become extents.

use crate::object::state::DirtyBlock;
use std::iter::Peekable;
use teal_types::{BLOCK, Lsn, SECTOR};

/// Blocks of a file that lie next to each other and were written first by the same operation.
pub(crate) struct BlockRun {
    pub(crate) first: u64,
    pub(crate) born: Lsn,
    pub(crate) blocks: Vec<DirtyBlock>,
}

impl BlockRun {
    /// Takes the next run of blocks, which come in ascending order.
    pub(crate) fn take_next(
        blocks: &mut Peekable<impl Iterator<Item = (u64, Lsn, DirtyBlock)>>,
    ) -> Option<Self> {
        let (first, born, bytes) = blocks.next()?;
        let mut run = vec![bytes];
        while let Some((.., bytes)) =
            blocks.next_if(|(block, at, _)| *block == first + run.len() as u64 && *at == born)
        {
            run.push(bytes);
        }
        Some(Self {
            first,
            born,
            blocks: run,
        })
    }

    /// Returns how many sectors of the last block are stored in a file of `size` bytes: it may end
    /// before its last sector.
    pub(crate) fn tail_sectors(&self, size: u64) -> u64 {
        let last = self.first + self.blocks.len() as u64 - 1;
        let bytes = size.saturating_sub(last * BLOCK).clamp(1, BLOCK);
        bytes.div_ceil(SECTOR)
    }
}
