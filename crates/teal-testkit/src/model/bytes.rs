//! The content of a file: blocks of 4 KiB, holes where nothing was written.

use crate::tree::FileContent;
use std::collections::BTreeMap;
use std::sync::Arc;

const BLOCK: u64 = teal_types::BLOCK;

/// Bytes with holes. Nothing but zeros lies beyond the end.
#[derive(Debug, Clone, Default)]
pub(super) struct SparseBytes {
    size: u64,
    blocks: BTreeMap<u64, Arc<[u8; BLOCK as usize]>>,
}

impl SparseBytes {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let len = (len as u64).min(self.size.saturating_sub(offset)) as usize;
        let mut out = vec![0; len];
        for (at, byte) in (offset..).zip(&mut out) {
            *byte = self
                .blocks
                .get(&(at / BLOCK))
                .map_or(0, |block| block[(at % BLOCK) as usize]);
        }
        out
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        if !data.is_empty() {
            self.put_bytes(offset, data.iter().copied());
            self.size = self.size.max(offset + data.len() as u64);
        }
    }

    fn put_bytes(&mut self, offset: u64, data: impl Iterator<Item = u8>) {
        for (at, byte) in (offset..).zip(data) {
            let block = self
                .blocks
                .entry(at / BLOCK)
                .or_insert_with(|| Arc::new([0; BLOCK as usize]));
            Arc::make_mut(block)[(at % BLOCK) as usize] = byte;
        }
    }

    pub(super) fn truncate(&mut self, size: u64) {
        // The bytes that are cut off must read as zeros if the file grows again.
        if size < self.size {
            self.punch(size, self.size - size);
        }
        self.size = size;
    }

    pub(super) fn punch(&mut self, offset: u64, len: u64) {
        // A hole never extends the file.
        let end = offset.saturating_add(len).min(self.size);
        if offset >= end {
            return;
        }
        let hit: Vec<u64> = self
            .blocks
            .range(offset / BLOCK..=end / BLOCK)
            .map(|(&block, _)| block)
            .collect();
        for block in hit {
            let (from, to) = (offset.max(block * BLOCK), end.min((block + 1) * BLOCK));
            // Whole blocks are dropped, parts of blocks are zeroed.
            if from < to && to - from == BLOCK {
                self.blocks.remove(&block);
            } else if from < to {
                self.put_bytes(from, (from..to).map(|_| 0));
            }
        }
    }

    pub(super) fn to_content(&self) -> FileContent {
        let mut content = FileContent {
            size: self.size,
            ..FileContent::default()
        };
        self.blocks
            .iter()
            .for_each(|(&block, bytes)| content.add_block(block, bytes.as_slice()));
        content
    }
}
