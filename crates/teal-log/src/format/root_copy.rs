//! The second copy of a checkpoint's roots. It lies behind the anchor in the anchor's slot, so
//! there are two of them, half the disk apart, and neither lies with the checkpoint's records.
//!
//! With it a store opens whose checkpoint has a record that cannot be read: it holds all that
//! opening needs of the batch. It is written with the anchor, in one request. A checkpoint whose
//! roots are longer than the slot, or that repeats *kept* deltas, has none.
//!
//! | at | bytes | field |
//! |---:|---:|---|
//! | 0 | 4 | magic `TROO` |
//! | 4 | 2 | version, 1 |
//! | 6 | 2 | zero |
//! | 8 | 16 | store UUID |
//! | 24 | 8 | checkpoint number |
//! | 32 | 8 | address of the last record of the checkpoint's batch |
//! | 40 | 4 | bytes of the roots |
//! | 44 | 512 | the header of that record |
//! | 556 | | the roots, as in their delta |
//! | behind | 4 | CRC32C of the bytes before |

use super::checksum::{crc, is_sealed};
use crate::format::anchor;
use crate::format::codec::{FieldReader, FieldWriter};
use crate::format::delta::CheckpointRoots;
use crate::format::record::{self, HEADER, RecordHeader};
use crate::format::superblock;
use teal_types::{SECTOR, Sector};

const MAGIC: [u8; 4] = *b"TROO";
const VERSION: u16 = 1;
const FIXED: usize = 44 + HEADER;
/// The most bytes of a copy: what a slot of the smallest size has behind its anchor.
pub(crate) const MOST: usize = superblock::BYTES - anchor::BYTES;
/// Sectors from the start of a slot to the copy in it.
pub(crate) const SKIP: u64 = anchor::BYTES as u64 / SECTOR;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RootCopy {
    pub(crate) checkpoint: u64,
    /// The last record of the checkpoint's batch.
    pub(crate) at: Sector,
    /// Its header, as it is on the disk.
    pub(crate) header: [u8; HEADER],
    pub(crate) roots: CheckpointRoots,
}

impl RootCopy {
    /// Encodes the copy. Returns `None` if it is longer than a slot has room for.
    pub(crate) fn encode(&self, uuid: &[u8; 16]) -> Option<Vec<u8>> {
        let roots = self.roots.encoded();
        let mut out = Vec::with_capacity(FIXED + roots.len() + 4);
        out.put_bytes(&MAGIC);
        out.put_u16(VERSION);
        out.put_u16(0);
        out.put_bytes(uuid);
        out.put_u64(self.checkpoint);
        out.put_u64(self.at.get());
        out.put_u32(u32::try_from(roots.len()).ok()?);
        out.put_bytes(&self.header);
        debug_assert_eq!(out.len(), FIXED);
        out.put_bytes(&roots);
        let sum = crc(&out);
        out.put_u32(sum);
        (out.len() <= MOST).then_some(out)
    }

    /// Returns the copy in `bytes`, if it is whole and of this store.
    pub(crate) fn decode(bytes: &[u8], uuid: &[u8; 16]) -> Option<Self> {
        let mut t = FieldReader(bytes);
        let is_ours = t.array()? == MAGIC
            && t.u16()? == VERSION
            && t.u16()? == 0
            && t.array::<16>()? == *uuid;
        if !is_ours {
            return None;
        }
        let checkpoint = t.counter()?;
        let at = t.sector64()?;
        let len = usize::try_from(t.u32()?).ok().filter(|len| *len <= MOST)?;
        if !is_sealed(bytes.get(..FIXED + len + 4)?) {
            return None;
        }
        let copy = Self {
            checkpoint,
            at,
            header: t.array()?,
            roots: CheckpointRoots::decode(t.bytes(len)?)?,
        };
        (copy.roots.checkpoint == checkpoint).then_some(copy)
    }

    /// Returns the record's header, if it ends a checkpoint of this store.
    pub(crate) fn record_header(&self, uuid: &[u8; 16]) -> Option<RecordHeader> {
        let header = RecordHeader::decode(&self.header, uuid)?;
        (header.has_flag(record::CHECKPOINT) && header.has_flag(record::COMMIT)).then_some(header)
    }
}
