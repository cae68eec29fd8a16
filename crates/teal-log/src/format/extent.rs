//! An extent: where a run of a file's blocks is stored, with a checksum for each block.
//!
//! | at | bytes | field |
//! |---:|---:|---|
//! | 0 | 6 | address of the first sector; with flag *shared*, an id in the shared-extent table |
//! | 6 | 2 | blocks of 4096 bytes, 1 to 128 |
//! | 8 | 2 | sectors stored: 8 for each block, fewer for the last if the rest of it is zero |
//! | 10 | 1 | codec: 0 stored as it is; others refuse |
//! | 11 | 1 | flags: 1 shared, 2 unwritten (allocated, reads as zero) |
//! | 12 | 8 | born: the `Lsn` of the operation that wrote it |
//! | 20 | 4 each | CRC32C of each block's stored sectors |

use crate::codec::{Put, Take};
use teal_types::{Lsn, SECTOR, Sector};

/// Most blocks in one extent: half a MiB, so that its checksums fit a page's item.
pub(crate) const EXTENT_BLOCKS: u64 = 128;
/// Exclusive upper bound of block numbers: sizes are below 2^63 bytes.
pub(crate) const FILE_BLOCKS: u64 = 1 << 51;
/// Sectors in a block.
pub(crate) const BLOCK_SECTORS: u64 = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) addr: Sector,
    pub(crate) stored: u16,
    pub(crate) born: Lsn,
    pub(crate) crcs: Box<[u32]>,
}

impl Extent {
    pub(crate) fn blocks(&self) -> u64 {
        self.crcs.len() as u64
    }
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.stored) * SECTOR
    }
    /// The part of `count` blocks from block `from` on.
    pub(crate) fn slice(&self, from: u64, count: u64) -> Self {
        let end = (from + count) * BLOCK_SECTORS;
        Self {
            addr: self.addr.plus(from * BLOCK_SECTORS),
            stored: (end.min(u64::from(self.stored)) - from * BLOCK_SECTORS) as u16,
            born: self.born,
            crcs: self.crcs[from as usize..(from + count) as usize].into(),
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        assert!((1..=EXTENT_BLOCKS).contains(&self.blocks()), "an extent has 1 to {EXTENT_BLOCKS} blocks");
        out.put_sector48(self.addr);
        out.put_u16(self.crcs.len() as u16);
        out.put_u16(self.stored);
        out.put_u8(0);
        out.put_u8(0);
        out.put_u64(self.born.get());
        for &sum in &self.crcs {
            out.put_u32(sum);
        }
    }

    /// The extent that holds a file's blocks from `block` on, if a file may have those.
    pub(crate) fn decode_at(block: u64, bytes: &[u8]) -> Option<Self> {
        Self::decode(bytes).filter(|extent| block <= FILE_BLOCKS - extent.blocks())
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut t = Take(bytes);
        let (addr, blocks, stored) = (t.sector48()?, u64::from(t.u16()?), t.u16()?);
        let (codec, flags, born) = (t.u8()?, t.u8()?, Lsn::new(t.u64()?));
        let full = blocks * BLOCK_SECTORS;
        let fits = (1..=EXTENT_BLOCKS).contains(&blocks)
            && u64::from(stored) <= full
            && u64::from(stored) > full - BLOCK_SECTORS
            && t.0.len() as u64 == blocks * 4;
        if !fits || codec != 0 || flags != 0 {
            return None;
        }
        let crcs = (0..blocks).map(|_| t.u32()).collect::<Option<_>>()?;
        Some(Self { addr, stored, born, crcs })
    }
}
