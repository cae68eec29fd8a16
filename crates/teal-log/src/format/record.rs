//! A record: one contiguous part of a batch. A batch is one or more records; the last one carries
//! the flag *commit*.
//!
//! `[header, 512 bytes][payload: blocks and pages, whole sectors][body: deltas, zero padded]`,
//! starting and ending at the commit alignment. Addresses in the body are absolute, so that later
//! filling of gaps needs no other form.
//!
//! | at | bytes | field |
//! |---:|---:|---|
//! | 0 | 4 | magic `TREC` |
//! | 4 | 2 | version, 2 |
//! | 6 | 2 | flags: 1 commit, 2 fresh epoch, 4 clean unmount, 8 checkpoint |
//! | 8 | 16 | store UUID |
//! | 24 | 8 | epoch: which opening for writing |
//! | 32 | 8 | sequence number: the previous record's plus 1 |
//! | 40 | 8 | batch number |
//! | 48 | 8 | durable watermark: the highest sequence number known durable when this was made |
//! | 56 | 8 | digest of the previous record: SipHash-2-4 of its first 512 bytes, keyed with the UUID |
//! | 64 | 8 | next run A: address; the next record starts there or within *gap* sectors after |
//! | 72 | 4 | sectors of run A |
//! | 76 | 4 | gap, sectors |
//! | 80 | 8 | next run B: address, used when run A is too short |
//! | 88 | 4 | sectors of run B |
//! | 92 | 4 | sectors of payload |
//! | 96 | 4 | bytes of body |
//! | 100 | 4 | number of deltas |
//! | 104 | 8 | first `Lsn`; deltas count from it |
//! | 112 | 8 | stamp counter that belongs to the first `Lsn` |
//! | 120 | 4 | stamp: replica |
//! | 124 | 4 | stamp: incarnation |
//! | 128 | 12 | time made: seconds i64, nanoseconds u32 |
//! | 140 | 4 | CRC32C of the payload |
//! | 144 | 4 | CRC32C of the body |
//! | 148 | 8 | objects there are after this batch |
//! | 156 | 8 | bytes that live after it |
//! | 164 | 8 | bytes that a checkpoint would write, at most, for objects that are newer than their records |
//! | 172 | 16 | owner: the machine that writes; zero: not said |
//! | 188 | 16 | owner: the boot of that machine |
//! | 204 | 64 | owner: the machine's name, UTF-8, zero padded |
//! | 268 | 8 | blocks of files for which room is set aside after it |
//! | 276 | 232 | zero |
//! | 508 | 4 | CRC32C of the bytes before |

use super::checksum::{crc, is_sealed};
use crate::format::codec::{FieldReader, FieldWriter};
use crate::format::owner::StoreOwner;
use siphasher::sip::SipHasher24;
use std::hash::Hasher;
use teal_types::{Incarnation, Lsn, ReplicaNo, SECTOR, Sector, Timestamp, UpdateId};

pub(crate) const MAGIC: [u8; 4] = *b"TREC";
pub(crate) const HEADER: usize = 512;
const VERSION: u16 = 2;

/// Most sectors of a record, 1 MiB: however large a segment is, the successor of a record that
/// cannot be read is not farther away.
pub(crate) const SECTORS_MAX: u64 = 2048;

pub(crate) const COMMIT: u16 = 1;
pub(crate) const FRESH_EPOCH: u16 = 2;
pub(crate) const CLEAN: u16 = 4;
pub(crate) const CHECKPOINT: u16 = 8;

/// A run of free sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SectorRun {
    pub(crate) addr: Sector,
    pub(crate) sectors: u32,
}

/// Sums over all objects, in the last record of a batch (in others as far as they are known).
/// Without them, only a look at every object could tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct BatchSums {
    pub(crate) objects: u64,
    pub(crate) live: u64,
    pub(crate) unfolded: u64,
    /// Blocks for which room is set aside and nothing is stored.
    pub(crate) unwritten: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RecordHeader {
    pub(crate) flags: u16,
    pub(crate) epoch: u64,
    pub(crate) seq: u64,
    pub(crate) batch: u64,
    pub(crate) watermark: u64,
    pub(crate) previous: u64,
    pub(crate) next_a: SectorRun,
    pub(crate) gap: u32,
    pub(crate) next_b: SectorRun,
    pub(crate) payload: u32,
    pub(crate) body: u32,
    pub(crate) deltas: u32,
    pub(crate) lsn: Lsn,
    pub(crate) stamp: UpdateId,
    pub(crate) time: Timestamp,
    pub(crate) payload_crc: u32,
    pub(crate) body_crc: u32,
    pub(crate) sums: BatchSums,
    pub(crate) owner: StoreOwner,
}

impl RecordHeader {
    /// Returns the machine that has the store open, if this is the store's last record. Returns
    /// `None` when the store was closed, or no machine is named.
    pub(crate) fn open_owner(&self) -> Option<StoreOwner> {
        // A clean end, or a store without a machine, is open to all.
        Some(self.owner).filter(|owner| !self.has_flag(CLEAN) && !owner.is_unknown())
    }

    pub(crate) fn has_flag(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Returns the sectors of the whole record before alignment.
    pub(crate) fn sectors(&self) -> u64 {
        1 + u64::from(self.payload) + u64::from(self.body).div_ceil(SECTOR)
    }

    pub(crate) fn encode(&self, uuid: &[u8; 16]) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER);
        out.put_bytes(&MAGIC);
        out.put_u16(VERSION);
        out.put_u16(self.flags);
        out.put_bytes(uuid);
        out.put_u64(self.epoch);
        out.put_u64(self.seq);
        out.put_u64(self.batch);
        out.put_u64(self.watermark);
        out.put_u64(self.previous);
        out.put_u64(self.next_a.addr.get());
        out.put_u32(self.next_a.sectors);
        out.put_u32(self.gap);
        out.put_u64(self.next_b.addr.get());
        out.put_u32(self.next_b.sectors);
        out.put_u32(self.payload);
        out.put_u32(self.body);
        out.put_u32(self.deltas);
        out.put_u64(self.lsn.get());
        out.put_u64(self.stamp.counter);
        out.put_u32(self.stamp.replica.get());
        out.put_u32(self.stamp.incarnation.get());
        out.put_time(self.time);
        out.put_u32(self.payload_crc);
        out.put_u32(self.body_crc);
        out.put_u64(self.sums.objects);
        out.put_u64(self.sums.live);
        out.put_u64(self.sums.unfolded);
        out.put_bytes(&self.owner.machine);
        out.put_bytes(&self.owner.boot);
        out.put_bytes(&self.owner.name);
        out.put_u64(self.sums.unwritten);
        debug_assert!(out.len() <= HEADER - 4, "the header outgrew its sector");
        out.resize(HEADER - 4, 0);
        let sum = crc(&out);
        out.put_u32(sum);
        out
    }

    /// Returns the header in `bytes`, if it is whole and of this store.
    pub(crate) fn decode(bytes: &[u8], uuid: &[u8; 16]) -> Option<Self> {
        let bytes = bytes.get(..HEADER)?;
        // Another store's record, an older format, or torn.
        if bytes[..4] != MAGIC || !is_sealed(bytes) {
            return None;
        }
        let mut t = FieldReader(&bytes[4..]);
        if t.u16()? != VERSION {
            return None;
        }
        let flags = t.u16()?;
        if t.array::<16>()? != *uuid {
            return None;
        }
        let epoch = t.counter()?;
        let seq = t.counter()?;
        let batch = t.counter()?;
        let watermark = t.counter()?;
        let previous = t.u64()?;
        let next_a = SectorRun {
            addr: t.sector64()?,
            sectors: t.u32()?,
        };
        let gap = t.u32()?;
        let next_b = SectorRun {
            addr: t.sector64()?,
            sectors: t.u32()?,
        };
        let payload = t.u32()?;
        let body = t.u32()?;
        let deltas = t.u32()?;
        let lsn = Lsn::new(t.counter()?);
        let counter = t.u64()?;
        let stamp = UpdateId {
            replica: ReplicaNo::new(t.u32()?),
            incarnation: Incarnation::new(t.u32()?),
            counter,
        };
        let time = t.time()?;
        let payload_crc = t.u32()?;
        let body_crc = t.u32()?;
        let mut sums = BatchSums {
            objects: t.counter()?,
            live: t.counter()?,
            unfolded: t.counter()?,
            unwritten: 0,
        };
        let owner = StoreOwner {
            machine: t.array()?,
            boot: t.array()?,
            name: t.array()?,
        };
        sums.unwritten = t.counter()?;
        Some(Self {
            flags,
            epoch,
            seq,
            batch,
            watermark,
            previous,
            next_a,
            gap,
            next_b,
            payload,
            body,
            deltas,
            lsn,
            stamp,
            time,
            payload_crc,
            body_crc,
            sums,
            owner,
        })
    }
}

/// Returns whether a record's predecessor has this digest.
pub(crate) fn follows_digest(header: &RecordHeader, digest: u64) -> bool {
    // A fuzzer changes records without mending the digests behind them.
    #[cfg(any(test, feature = "fuzzing"))]
    if super::checksum::is_lenient() {
        return true;
    }
    header.previous == digest
}

/// Returns the digest of the record that begins with the sector `header`, which the next record
/// repeats.
pub(crate) fn header_digest(header: &[u8], uuid: &[u8; 16]) -> u64 {
    // Keyed by the store, so that content of a file cannot pass for a record.
    let mut hasher = SipHasher24::new_with_key(uuid);
    hasher.write(&header[..HEADER]);
    hasher.finish()
}
