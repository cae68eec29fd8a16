//! An extent: where a run of a file's blocks is stored, with a checksum for each block; or what
//! part of a shared extent holds them; or that there is only room set aside for them.
//!
//! | at | bytes | field |
//! |---:|---:|---|
//! | 0 | 6 | address of the first sector |
//! | | | *shared*: an id in the shared-extent table; *unwritten*: 0 |
//! | 6 | 2 | blocks of 4096 bytes, 1 to 128; *unwritten*: 1 to 32768 |
//! | 8 | 2 | sectors stored: 8 for each block, fewer for the last if the rest of it is zero |
//! | | | *unwritten*: 0 |
//! | 10 | 1 | codec: 0 stored as it is; others refuse |
//! | 11 | 1 | flags: 1 shared, 2 unwritten (room is set aside, reads as zero) |
//! | 12 | 8 | born: the `Lsn` of the operation that wrote it, or set the room aside |
//! | 20 | 4 each | CRC32C of each block's stored sectors |
//! | | 2 | *shared* instead: the block of the shared extent it begins with; *unwritten*: nothing |

use crate::format::codec::{FieldReader, FieldWriter};
use teal_types::{Lsn, SECTOR, Sector};

/// Most blocks in one extent: half a MiB, so that its checksums fit a page's item.
pub(crate) const EXTENT_BLOCKS: u64 = 128;
/// Exclusive upper bound of block numbers: sizes are below 2^63 bytes.
pub(crate) const FILE_BLOCKS: u64 = 1 << 51;
/// Sectors in a block.
pub(crate) const BLOCK_SECTORS: u64 = 8;
/// The most blocks in one shared extent, a quarter of a MiB. It is moved as one run, lives as long
/// as any file refers to a part of it, and must fit the smallest segment.
pub(crate) const SHARED_BLOCKS: u64 = 64;
/// Exclusive upper bound of the ids of shared extents: 48 bits.
pub(crate) const SHARED_IDS: u64 = 1 << 48;

/// Most blocks in one unwritten extent: 128 MiB.
pub(crate) const UNWRITTEN_BLOCKS: u64 = 1 << 15;

const SHARED: u8 = 1;
const UNWRITTEN: u8 = 2;

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
    /// Returns the part of `count` blocks from block `from` on.
    pub(crate) fn slice(&self, from: u64, count: u64) -> Self {
        debug_assert!(from + count <= self.blocks(), "a slice beyond its extent");
        let end = (from + count) * BLOCK_SECTORS;
        Self {
            addr: self.addr.plus(from * BLOCK_SECTORS),
            // Only the last block may be stored in part.
            stored: (end.min(u64::from(self.stored)) - from * BLOCK_SECTORS) as u16,
            born: self.born,
            crcs: self.crcs[from as usize..(from + count) as usize].into(),
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        assert!(
            (1..=EXTENT_BLOCKS).contains(&self.blocks()),
            "an extent has 1 to {EXTENT_BLOCKS} blocks"
        );
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

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        match MappedExtent::decode(bytes)? {
            MappedExtent::Own(extent) => Some(extent),
            MappedExtent::Shared(_) | MappedExtent::Unwritten(_) => None,
        }
    }
}

/// A part of a shared extent, in the place of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SharedSlice {
    /// The shared extent's id.
    pub(crate) id: u64,
    /// Its block with which this begins.
    pub(crate) first: u16,
    pub(crate) blocks: u16,
    pub(crate) stored: u16,
    pub(crate) born: Lsn,
}

impl SharedSlice {
    fn subslice(self, from: u64, count: u64) -> Self {
        let end = (from + count) * BLOCK_SECTORS;
        Self {
            first: self.first + from as u16,
            blocks: count as u16,
            stored: (end.min(u64::from(self.stored)) - from * BLOCK_SECTORS) as u16,
            ..self
        }
    }
}

/// A run of blocks for which room is set aside in the log, and nothing is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnwrittenRun {
    pub(crate) blocks: u16,
    pub(crate) born: Lsn,
}

impl UnwrittenRun {
    fn encode(&self, out: &mut Vec<u8>) {
        assert!(
            (1..=UNWRITTEN_BLOCKS).contains(&u64::from(self.blocks)),
            "an unwritten extent has 1 to {UNWRITTEN_BLOCKS} blocks"
        );
        out.put_sector48(Sector::new(0));
        out.put_u16(self.blocks);
        out.put_u16(0);
        out.put_u8(0);
        out.put_u8(UNWRITTEN);
        out.put_u64(self.born.get());
    }
}

/// An item of a file's map: the place of a run of its blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MappedExtent {
    /// They lie here, and nothing else refers to them.
    Own(Extent),
    /// They are this part of an extent in the shared-extent table.
    Shared(SharedSlice),
    /// They are zeros for which room is set aside.
    Unwritten(UnwrittenRun),
}

impl From<Extent> for MappedExtent {
    fn from(extent: Extent) -> Self {
        Self::Own(extent)
    }
}

impl MappedExtent {
    pub(crate) fn blocks(&self) -> u64 {
        match self {
            Self::Own(extent) => extent.blocks(),
            Self::Shared(slice) => u64::from(slice.blocks),
            Self::Unwritten(run) => u64::from(run.blocks),
        }
    }
    /// Returns the number of sectors that count as the file's (`st_blocks`): those stored, or those
    /// for which room is set aside.
    pub(crate) fn counted_sectors(&self) -> u64 {
        match self {
            Self::Own(extent) => u64::from(extent.stored),
            Self::Shared(slice) => u64::from(slice.stored),
            Self::Unwritten(run) => u64::from(run.blocks) * BLOCK_SECTORS,
        }
    }
    pub(crate) fn born(&self) -> Lsn {
        match self {
            Self::Own(extent) => extent.born,
            Self::Shared(slice) => slice.born,
            Self::Unwritten(run) => run.born,
        }
    }
    /// Returns whether nothing is stored: the blocks are zeros with room set aside.
    pub(crate) fn is_unwritten(&self) -> bool {
        matches!(self, Self::Unwritten(_))
    }
    /// Returns the extent, if it is the file's own.
    pub(crate) fn as_own(&self) -> Option<&Extent> {
        match self {
            Self::Own(extent) => Some(extent),
            Self::Shared(_) | Self::Unwritten(_) => None,
        }
    }
    /// Returns the part of `count` blocks from block `from` on.
    pub(crate) fn slice(&self, from: u64, count: u64) -> Self {
        match self {
            Self::Own(extent) => Self::Own(extent.slice(from, count)),
            Self::Shared(slice) => Self::Shared(slice.subslice(from, count)),
            Self::Unwritten(run) => {
                debug_assert!(
                    from + count <= u64::from(run.blocks),
                    "a part beyond its run"
                );
                Self::Unwritten(UnwrittenRun {
                    blocks: count as u16,
                    ..*run
                })
            }
        }
    }
    /// Returns the bytes that it takes as an item of an inode record.
    pub(crate) fn item_len(&self) -> usize {
        // Prefix, address and counts, then a checksum for each block.
        let sums = match self {
            Self::Own(extent) => 4 * extent.crcs.len(),
            Self::Shared(_) => 2,
            Self::Unwritten(_) => 0,
        };
        36 + sums
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let slice = match self {
            Self::Own(extent) => return extent.encode(out),
            Self::Unwritten(run) => return run.encode(out),
            Self::Shared(slice) => slice,
        };
        out.put_sector48(Sector::new(slice.id));
        out.put_u16(slice.blocks);
        out.put_u16(slice.stored);
        out.put_u8(0);
        out.put_u8(SHARED);
        out.put_u64(slice.born.get());
        out.put_u16(slice.first);
    }

    /// Returns what holds a file's blocks from `block` on, if a file may have those.
    pub(crate) fn decode_at(block: u64, bytes: &[u8]) -> Option<Self> {
        // A file has at most so many blocks.
        Self::decode(bytes).filter(|extent| block <= FILE_BLOCKS - extent.blocks())
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut t = FieldReader(bytes);
        let addr = t.sector48()?;
        let blocks = u64::from(t.u16()?);
        let stored = t.u16()?;
        let codec = t.u8()?;
        let flags = t.u8()?;
        let born = Lsn::new(t.u64()?);
        if flags == UNWRITTEN {
            // Nothing is stored of it, anywhere.
            let is_empty = addr.get() == 0 && stored == 0 && codec == 0 && t.is_empty();
            let run = UnwrittenRun {
                blocks: blocks as u16,
                born,
            };
            let fits = (1..=UNWRITTEN_BLOCKS).contains(&blocks) && is_empty;
            return fits.then_some(Self::Unwritten(run));
        }
        // All blocks are stored in full, but for the end of the last one.
        let full = blocks * BLOCK_SECTORS;
        let fits = (1..=EXTENT_BLOCKS).contains(&blocks)
            && u64::from(stored) <= full
            && u64::from(stored) > full - BLOCK_SECTORS;
        if !fits || codec != 0 {
            return None;
        }
        // Flags of later formats are not readable.
        match flags {
            0 if t.0.len() as u64 == blocks * 4 => {
                let crcs = (0..blocks).map(|_| t.u32()).collect::<Option<_>>()?;
                Some(Self::Own(Extent {
                    addr,
                    stored,
                    born,
                    crcs,
                }))
            }
            SHARED => {
                // The slice must lie in the largest shared extent there can be.
                let first = t.u16()?;
                let inside = u64::from(first) + blocks <= SHARED_BLOCKS && t.is_empty();
                let slice = SharedSlice {
                    id: addr.get(),
                    first,
                    blocks: blocks as u16,
                    stored,
                    born,
                };
                inside.then_some(Self::Shared(slice))
            }
            _ => None,
        }
    }
}
