//! Cuts content into chunks where the content itself says so, so that an insertion moves few cuts.
//!
//! # Guarantees
//! 1. *Stable*: the same bytes and [`ChunkSizes`] give the same cuts for ever, whether they come as
//!    a slice or from a reader.
//! 2. *Local*: a changed, inserted or removed byte changes the chunks around it and, after a few
//!    more, none.
//! 3. *Bounded*: every chunk but the last has at least `min` bytes, every chunk at most `max`; a
//!    stream holds `max` bytes.
//!
//! FastCDC (Xia et al., USENIX ATC 2016 and TPDS 2020) through the crate `fastcdc`, its 2020 form,
//! normalisation level 1.

use crate::limits::CHUNK_MAX;
use fastcdc::v2020::FastCDC;
use std::io::{self, Read};
use std::ops::Range;

/// The sizes of chunks, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkSizes {
    min: usize,
    avg: usize,
    max: usize,
}

impl ChunkSizes {
    /// 64 KiB at least, 256 KiB wanted, 1 MiB at most. Every client of a volume uses the same, or
    /// nothing would be found again.
    pub const DEFAULT: Self = Self {
        min: 64 << 10,
        avg: 256 << 10,
        max: 1 << 20,
    };

    /// Returns these sizes, if the algorithm can work with them: even, `min` of at least 64, `avg`
    /// of at least 256, `max` of at least 1024, growing, and no chunk larger than [`CHUNK_MAX`].
    pub fn new(min: usize, avg: usize, max: usize) -> Option<Self> {
        // The bounds of the algorithm's masks, and of the chunks that other parts can take.
        let even = [min, avg, max].iter().all(|size| size.is_multiple_of(2));
        let fits = (64..=1 << 20).contains(&min) && avg >= 256 && (1024..=CHUNK_MAX).contains(&max);
        (even && fits && min < avg && avg < max).then_some(Self { min, avg, max })
    }

    /// Returns the bytes of the smallest chunk but the last.
    pub const fn min(self) -> usize {
        self.min
    }

    /// Returns the bytes of the largest chunk.
    pub const fn max(self) -> usize {
        self.max
    }

    /// Returns the end of the first chunk of `bytes`. The answer is final if `bytes` reaches the
    /// end of the content or holds `max` bytes.
    fn first_cut(self, bytes: &[u8]) -> usize {
        let mut cutter = FastCDC::new(bytes, self.min, self.avg, self.max);
        cutter.next().map_or(0, |chunk| chunk.length)
    }
}

impl Default for ChunkSizes {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Returns the chunks of `content`, as ranges that follow one another; none for no content.
pub fn chunk_ranges(content: &[u8], sizes: ChunkSizes) -> impl Iterator<Item = Range<usize>> + '_ {
    let cutter = FastCDC::new(content, sizes.min, sizes.avg, sizes.max);
    cutter.map(|chunk| chunk.offset..chunk.offset + chunk.length)
}

/// Cuts the bytes of a reader into chunks.
#[derive(Debug)]
pub struct ChunkStream<R> {
    source: R,
    sizes: ChunkSizes,
    /// Bytes that were read and not yet given out.
    buffered: Vec<u8>,
    ended: bool,
}

impl<R: Read> ChunkStream<R> {
    /// Cuts the bytes that `source` gives until its end.
    pub fn new(source: R, sizes: ChunkSizes) -> Self {
        Self {
            source,
            sizes,
            buffered: Vec::with_capacity(sizes.max),
            ended: false,
        }
    }

    /// Returns the reader.
    pub fn source_mut(&mut self) -> &mut R {
        &mut self.source
    }

    /// Reads until the buffer holds the largest chunk, or the source has ended.
    fn fill_buffer(&mut self) -> io::Result<()> {
        while !self.ended && self.buffered.len() < self.sizes.max {
            let room = self.sizes.max - self.buffered.len();
            // `Take` retries interrupted reads and keeps what was read before an error.
            let mut limited = self.source.by_ref().take(room as u64);
            let read = limited.read_to_end(&mut self.buffered)?;
            self.ended = read < room;
        }
        debug_assert!(self.buffered.len() <= self.sizes.max);
        Ok(())
    }
}

impl<R: Read> Iterator for ChunkStream<R> {
    /// The bytes of a chunk, or the error of reading the source; asking again goes on after the
    /// error.
    type Item = io::Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(e) = self.fill_buffer() {
            return Some(Err(e));
        }
        // The buffer holds `max` bytes or all the rest, so the cut is final.
        let cut = self.sizes.first_cut(&self.buffered);
        if cut == 0 {
            return None;
        }
        // The rest stays for the next chunk: a cut depends on the bytes before it in the same chunk
        // only.
        let chunk = self.buffered[..cut].to_vec();
        self.buffered.drain(..cut);
        Some(Ok(chunk))
    }
}

#[cfg(test)]
mod tests;
