//! Little-endian reading and writing of bytes that may be hostile.
//!
//! # Guarantees
//! 1. Reading never panics: what is missing is `None`.

/// Reads fields from the front of a slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LittleEndianReader<'a>(pub(crate) &'a [u8]);

impl<'a> LittleEndianReader<'a> {
    pub(crate) fn take_array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk()?;
        self.0 = tail;
        Some(*head)
    }
    pub(crate) fn take_u16(&mut self) -> Option<u16> {
        self.take_array().map(u16::from_le_bytes)
    }
    pub(crate) fn take_u32(&mut self) -> Option<u32> {
        self.take_array().map(u32::from_le_bytes)
    }
    pub(crate) fn take_i64(&mut self) -> Option<i64> {
        self.take_array().map(i64::from_le_bytes)
    }
    /// Takes these bytes, which must come next.
    pub(crate) fn expect_bytes(&mut self, bytes: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(bytes)?;
        Some(())
    }
    /// Takes zeros, which must come next.
    pub(crate) fn expect_zeros<const N: usize>(&mut self) -> Option<()> {
        self.expect_bytes(&[0; N])
    }
}

/// Returns the CRC32C of `bytes`.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Appends the CRC32C of everything from `start`.
pub(crate) fn append_checksum(out: &mut Vec<u8>, start: usize) {
    // The checksum is the last field of each structure, so that it covers all before.
    let sum = checksum(&out[start..]);
    out.extend(sum.to_le_bytes());
}

/// Returns whether the bytes end with the CRC32C of those before.
pub(crate) fn ends_with_checksum(bytes: &[u8]) -> bool {
    bytes
        .split_last_chunk()
        .is_some_and(|(rest, sum)| checksum(rest) == u32::from_le_bytes(*sum))
}
