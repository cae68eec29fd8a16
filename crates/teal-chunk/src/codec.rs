//! Little-endian reading and writing of bytes that may be hostile.
//!
//! # Guarantees
//! 1. Reading never panics: what is missing is `None`.

/// Reads fields from the front of a slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Take<'a>(pub(crate) &'a [u8]);

impl<'a> Take<'a> {
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk()?;
        self.0 = tail;
        Some(*head)
    }
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }
    /// These bytes come next.
    pub(crate) fn expect(&mut self, bytes: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(bytes)?;
        Some(())
    }
    /// Zeros come next.
    pub(crate) fn zeros<const N: usize>(&mut self) -> Option<()> {
        self.expect(&[0; N])
    }
}

/// CRC32C of `bytes`.
pub(crate) fn crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Appends the CRC32C of everything from `start`.
pub(crate) fn seal(out: &mut Vec<u8>, start: usize) {
    let sum = crc(&out[start..]);
    out.extend(sum.to_le_bytes());
}

/// Returns whether the bytes end with the CRC32C of those before.
pub(crate) fn is_sealed(bytes: &[u8]) -> bool {
    bytes
        .split_last_chunk()
        .is_some_and(|(rest, sum)| crc(rest) == u32::from_le_bytes(*sum))
}
