//! Reading the bytes of notes, field by field.
//!
//! # Guarantees
//! 1. Nothing is taken past the end: a field that is not whole is `None`, and stands for damage.

use teal_types::CommitSeq;

/// Takes fields from the front of some bytes. Numbers are little-endian.
pub(crate) struct FieldReader<'a>(&'a [u8]);

impl<'a> FieldReader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns whether all bytes have been taken.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take_bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(len)?;
        self.0 = tail;
        Some(head)
    }

    pub(crate) fn take_array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take_bytes(N)?.try_into().ok()
    }

    pub(crate) fn take_u8(&mut self) -> Option<u8> {
        self.take_array().map(u8::from_le_bytes)
    }

    pub(crate) fn take_u16(&mut self) -> Option<u16> {
        self.take_array().map(u16::from_le_bytes)
    }

    pub(crate) fn take_u32(&mut self) -> Option<u32> {
        self.take_array().map(u32::from_le_bytes)
    }

    pub(crate) fn take_u64(&mut self) -> Option<u64> {
        self.take_array().map(u64::from_le_bytes)
    }

    pub(crate) fn take_seq(&mut self) -> Option<CommitSeq> {
        self.take_u64().map(CommitSeq::new)
    }
}
