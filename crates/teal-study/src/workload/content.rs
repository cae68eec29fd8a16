//! Makes the content that is written: bytes that neither compress nor repeat, at the cost of one
//! store for each block.

use super::random::RandomStream;
use teal_env::{AlignedBuffer, BufferPool};

/// Bytes of a block that gets a number of its own.
const BLOCK: usize = 4096;

/// Holds memory to write from and to read into, at the start of a page.
#[derive(Debug)]
pub(super) struct TransferMemory {
    bytes: AlignedBuffer,
    /// Number of the next block.
    next: u64,
    zeros: bool,
}

impl TransferMemory {
    /// Allocates `len` bytes, filled from `seed`, or with zeros as Filebench does.
    pub(super) fn new(len: usize, seed: u64, zeros: bool) -> Self {
        let mut memory = Self {
            bytes: BufferPool::new(0).lend(0),
            next: seed << 20,
            zeros,
        };
        memory.grow(len, seed);
        memory
    }

    /// Makes the memory hold at least this number of bytes.
    pub(super) fn grow(&mut self, len: usize, seed: u64) {
        if self.bytes.len() >= len {
            return;
        }
        self.bytes = BufferPool::new(0).lend(len.next_multiple_of(BLOCK));
        debug_assert!(
            self.bytes.len() >= len,
            "the memory is as large as it was asked for"
        );
        if !self.zeros {
            let mut stream = RandomStream::new(seed, 0x6279_7465);
            self.bytes
                .chunks_exact_mut(8)
                .for_each(|word| word.copy_from_slice(&stream.next_u64().to_le_bytes()));
        }
    }

    /// Returns a part to read into.
    pub(super) fn read_target(&mut self, from: usize, len: usize) -> &mut [u8] {
        &mut self.bytes[from..from + len]
    }

    /// Returns a part to write from; no block of it was written before.
    pub(super) fn fresh_content(&mut self, from: usize, len: usize) -> &[u8] {
        let part = &mut self.bytes[from..from + len];
        if !self.zeros {
            // A stamp for each block suffices: deduplication works on whole blocks.
            for block in part.chunks_mut(BLOCK) {
                if let Some(stamp) = block.first_chunk_mut::<8>() {
                    self.next += 1;
                    *stamp = self.next.to_le_bytes();
                }
            }
        }
        part
    }

    /// Writes one byte so many times, one store to memory each.
    pub(super) fn store_byte(&mut self, at: usize, times: u64) {
        let Some(byte) = self.bytes.get_mut(at) else {
            return;
        };
        for _ in 0..times {
            *byte = 1;
            // Only the place is shown to the compiler, so that each store stays and none waits for
            // the one before.
            std::hint::black_box(&mut *byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_reach_the_byte_and_no_other() {
        let mut memory = TransferMemory::new(8, 1, true);
        memory.store_byte(3, 0);
        assert_eq!(memory.bytes[..8], [0; 8], "no store, no change");
        memory.store_byte(3, 5);
        memory.store_byte(BLOCK, 1);
        assert_eq!(memory.bytes[..8], [0, 0, 0, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn no_block_is_written_twice() {
        let mut memory = TransferMemory::new(8192, 1, false);
        let first = memory.fresh_content(0, 8192).to_vec();
        assert_ne!(first[..4096], first[4096..]);
        let second = memory.fresh_content(0, 8192).to_vec();
        assert_ne!(first[..4096], second[..4096]);
        let zeros = first.iter().filter(|byte| **byte == 0).count();
        assert!(zeros < 200, "it does not compress: {zeros} zeros");
        assert_eq!(
            TransferMemory::new(8192, 1, true).fresh_content(0, 8192),
            [0; 8192],
            "unless Filebench's is wanted"
        );
    }
}
