//! Reads the fields of a note, which may be damaged.
//!
//! # Guarantees
//! 1. Reading never panics: a missing field is `None`.

/// Reads little-endian fields from the front of a note.
pub(super) struct NoteReader<'a>(pub(super) &'a [u8]);

impl<'a> NoteReader<'a> {
    /// Takes a number of `len` bytes, at most eight.
    pub(super) fn take_number(&mut self, len: usize) -> Option<u64> {
        debug_assert!(len <= size_of::<u64>());
        let mut number = 0;
        for byte in self.take_bytes(len)?.iter().rev() {
            number = number << 8 | u64::from(*byte);
        }
        Some(number)
    }

    /// Takes `N` bytes.
    pub(super) fn take_array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take_bytes(N)?.try_into().ok()
    }

    /// Returns whether all was taken.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take_bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(len)?;
        self.0 = tail;
        Some(head)
    }
}
