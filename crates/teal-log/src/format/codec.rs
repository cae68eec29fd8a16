//! Little-endian reading and writing of bytes that may be hostile.
//!
//! # Guarantees
//! 1. Reading never panics and never allocates more than the input holds: what is missing is
//!    `None`.

use teal_types::{Incarnation, ReplicaNo, Sector, Timestamp, UpdateId};

/// Exclusive upper bound of sequence numbers, `Lsn`s, checkpoint, batch, epoch and object numbers
/// on the disk: no store ever gets there, and adding to one never overflows.
pub(crate) const COUNTER_LIMIT: u64 = 1 << 62;

/// Reads fields from the front of a slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FieldReader<'a>(pub(crate) &'a [u8]);

impl<'a> FieldReader<'a> {
    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(len)?;
        self.0 = tail;
        Some(head)
    }
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }
    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|b| b[0])
    }
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
    /// A number that counts up from the store's beginning.
    pub(crate) fn counter(&mut self) -> Option<u64> {
        self.u64().filter(|n| *n < COUNTER_LIMIT)
    }
    /// A sector address stored in 64 bits, of which the log uses 48.
    pub(crate) fn sector64(&mut self) -> Option<Sector> {
        self.u64().map(Sector::new).filter(|at| *at < Sector::LIMIT)
    }
    pub(crate) fn sector48(&mut self) -> Option<Sector> {
        let b = self.array::<6>()?;
        Some(Sector::new(u64::from_le_bytes([
            b[0], b[1], b[2], b[3], b[4], b[5], 0, 0,
        ])))
    }
    pub(crate) fn time(&mut self) -> Option<Timestamp> {
        let secs = i64::from_le_bytes(self.array()?);
        let nanos = self.u32()?;
        (nanos < 1_000_000_000).then_some(Timestamp { secs, nanos })
    }
    pub(crate) fn stamp(&mut self) -> Option<UpdateId> {
        Some(UpdateId {
            replica: ReplicaNo::new(self.u32()?),
            incarnation: Incarnation::new(self.u32()?),
            counter: self.u64()?,
        })
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Appends fields to a buffer.
pub(crate) trait FieldWriter {
    fn put_bytes(&mut self, bytes: &[u8]);
    fn put_u8(&mut self, v: u8) {
        self.put_bytes(&[v]);
    }
    fn put_u16(&mut self, v: u16) {
        self.put_bytes(&v.to_le_bytes());
    }
    fn put_u32(&mut self, v: u32) {
        self.put_bytes(&v.to_le_bytes());
    }
    fn put_u64(&mut self, v: u64) {
        self.put_bytes(&v.to_le_bytes());
    }
    fn put_sector48(&mut self, v: Sector) {
        assert!(v < Sector::LIMIT, "a log address has 48 bits");
        self.put_bytes(&v.get().to_le_bytes()[..6]);
    }
    fn put_time(&mut self, t: Timestamp) {
        self.put_bytes(&t.secs.to_le_bytes());
        self.put_u32(t.nanos);
    }
    fn put_stamp(&mut self, s: UpdateId) {
        self.put_u32(s.replica.get());
        self.put_u32(s.incarnation.get());
        self.put_u64(s.counter);
    }
}

impl FieldWriter for Vec<u8> {
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Pads `out` with zeros to a multiple of `unit` bytes.
pub(crate) fn pad_to_multiple(out: &mut Vec<u8>, unit: usize) {
    out.resize(out.len().next_multiple_of(unit), 0);
}
