//! An anchor: the way to the newest checkpoint.
//!
//! One anchor fills the first 512 bytes of a slot; a place has two slots, used in turn, each
//! `max(4096, commit alignment)` bytes long, so that writing one cannot tear the other.
//!
//! | at | bytes | field |
//! |---:|---:|---|
//! | 0 | 4 | magic `TANC` |
//! | 4 | 2 | version, 1 |
//! | 6 | 2 | zero |
//! | 8 | 16 | store UUID |
//! | 24 | 8 | checkpoint number |
//! | 32 | 8 | address of the first record of the checkpoint's batch |
//! | 40 | 8 | its sequence number |
//! | 48 | 8 | durable watermark: the highest sequence number known durable |
//! | 56 | 8 | time written, seconds |
//! | 64 | 444 | zero |
//! | 508 | 4 | CRC32C of the bytes before |

use super::checksum::{crc, is_sealed};
use crate::format::codec::{FieldReader, FieldWriter};
use teal_types::Sector;

pub(crate) const MAGIC: [u8; 4] = *b"TANC";
pub(crate) const BYTES: usize = 512;
const VERSION: u16 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Anchor {
    pub(crate) checkpoint: u64,
    pub(crate) addr: Sector,
    pub(crate) seq: u64,
    pub(crate) watermark: u64,
    pub(crate) secs: u64,
}

impl Anchor {
    pub(crate) fn encode(&self, uuid: &[u8; 16]) -> Vec<u8> {
        let mut out = Vec::with_capacity(BYTES);
        out.put_bytes(&MAGIC);
        out.put_u16(VERSION);
        out.put_u16(0);
        out.put_bytes(uuid);
        out.put_u64(self.checkpoint);
        out.put_u64(self.addr.get());
        out.put_u64(self.seq);
        out.put_u64(self.watermark);
        out.put_u64(self.secs);
        out.resize(BYTES - 4, 0);
        let sum = crc(&out);
        out.put_u32(sum);
        out
    }

    /// The anchor in `bytes`, if it is whole and of this store.
    pub(crate) fn decode(bytes: &[u8], uuid: &[u8; 16]) -> Option<Self> {
        let bytes = bytes.get(..BYTES)?;
        if bytes[..4] != MAGIC || !is_sealed(bytes) {
            return None;
        }
        let mut t = FieldReader(&bytes[4..]);
        if t.u16()? != VERSION || t.u16()? != 0 || t.array::<16>()? != *uuid {
            return None;
        }
        Some(Self {
            checkpoint: t.counter()?,
            addr: t.sector64()?,
            seq: t.counter()?,
            watermark: t.counter()?,
            secs: t.u64()?,
        })
    }
}
