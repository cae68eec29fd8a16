//! The record that grows: payload behind its header, and the body apart.

use crate::format::checksum::crc_joined;
use crate::format::delta::Delta;
use crate::format::imap::RecordHome;
use crate::iovec::{ScatteredBytes, SharedBytes};
use crate::object::state::ObjectRef;
use teal_types::{ObjectNo, SECTOR, Sector};

/// A record that is not written yet.
pub(super) struct OpenRecord {
    pub(super) start: Sector,
    /// Is true if this is the first record of its segment.
    pub(super) is_first: bool,
    /// Sectors this record may take.
    pub(super) room: u64,
    pub(super) payload: ScatteredBytes,
    pub(super) payload_crc: u32,
    pub(super) body: Vec<u8>,
    pub(super) deltas: u32,
    pub(super) inodes: Vec<(ObjectRef, usize, RecordHome)>,
}

impl OpenRecord {
    pub(super) fn new(start: Sector, is_first: bool, room: u64) -> Self {
        Self {
            start,
            is_first,
            room,
            payload: ScatteredBytes::default(),
            payload_crc: 0,
            body: Vec::new(),
            deltas: 0,
            inodes: Vec::new(),
        }
    }

    pub(super) fn payload_sectors(&self) -> u64 {
        self.payload.len() as u64 / SECTOR
    }

    /// Returns where the next payload goes: behind the header and the payload that is there.
    pub(super) fn payload_end(&self) -> Sector {
        self.start.plus(1 + self.payload_sectors())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.deltas == 0 && self.payload.is_empty()
    }

    /// Returns the sectors that the record takes with so many more sectors of payload and bytes of
    /// body.
    pub(super) fn sectors_with(&self, payload: u64, body: usize) -> u64 {
        // The header, and the rest of the body's last sector.
        let frame = 2;
        let body_sectors = (self.body.len() + body) as u64 / SECTOR;
        frame + self.payload_sectors() + payload + body_sectors
    }

    pub(super) fn has_room(&self, payload: u64, body: usize) -> bool {
        self.sectors_with(payload, body) <= self.room
    }

    /// Adds a delta to the body. Returns where its value begins in the body.
    pub(super) fn push_delta(
        &mut self,
        object: ObjectNo,
        lsn_offset: u32,
        delta: &Delta<'_>,
    ) -> usize {
        self.deltas += 1;
        delta.encode(object, lsn_offset, &mut self.body)
    }

    /// Adds whole sectors with a known checksum to the payload.
    pub(super) fn push(&mut self, bytes: SharedBytes, sum: u32) {
        // The checksum of the payload is joined from those of its parts, so no byte is read twice.
        self.payload_crc = crc_joined(self.payload_crc, sum, bytes.len() as u64 / SECTOR);
        self.payload.push(bytes);
    }
}
