//! Checksums of everything on the disk: CRC32C, taken piece by piece where that saves a pass over
//! the content.

use std::sync::LazyLock;
use teal_types::{BLOCK, SECTOR};

/// CRC32C of `bytes`.
pub(crate) fn crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// What a CRC32C becomes when so many bytes follow that alone have the CRC32C of zero: a linear
/// map, by the bytes of the sum.
struct CrcShift([[u32; 256]; 4]);

impl CrcShift {
    fn over_zeros(bytes: usize) -> Self {
        let mut table = [[0; 256]; 4];
        for (place, row) in table.iter_mut().enumerate() {
            let bits: [u32; 8] =
                std::array::from_fn(|bit| crc32c::crc32c_combine(1 << (8 * place + bit), 0, bytes));
            for (value, entry) in row.iter_mut().enumerate() {
                *entry = (0..8)
                    .filter(|bit| value >> bit & 1 == 1)
                    .fold(0, |sum, bit| sum ^ bits[bit]);
            }
        }
        Self(table)
    }

    fn apply_to(&self, sum: u32) -> u32 {
        sum.to_le_bytes()
            .iter()
            .zip(&self.0)
            .fold(0, |all, (byte, row)| all ^ row[usize::from(*byte)])
    }
}

static BLOCK_SHIFT: LazyLock<CrcShift> = LazyLock::new(|| CrcShift::over_zeros(BLOCK as usize));
static SECTOR_SHIFT: LazyLock<CrcShift> = LazyLock::new(|| CrcShift::over_zeros(SECTOR as usize));

/// The CRC32C of two pieces, one behind the other, of which the second has so many sectors.
pub(crate) fn crc_joined(first: u32, second: u32, sectors: u64) -> u32 {
    let (blocks, rest) = (sectors / (BLOCK / SECTOR), sectors % (BLOCK / SECTOR));
    let first = (0..blocks).fold(first, |sum, _| BLOCK_SHIFT.apply_to(sum));
    (0..rest).fold(first, |sum, _| SECTOR_SHIFT.apply_to(sum)) ^ second
}

/// Returns whether `sum` is the CRC32C of `bytes`. The fuzzer alone may ask for leniency, so that
/// it gets behind the checksums; it is not compiled into anything but tests and the fuzzer.
pub(crate) fn crc_matches(bytes: &[u8], sum: u32) -> bool {
    #[cfg(any(test, feature = "fuzzing"))]
    if is_lenient() {
        return true;
    }
    crc(bytes) == sum
}

/// Returns whether the bytes end with the CRC32C of those before.
pub(crate) fn is_sealed(bytes: &[u8]) -> bool {
    bytes
        .split_last_chunk()
        .is_some_and(|(rest, sum)| crc_matches(rest, u32::from_le_bytes(*sum)))
}

#[cfg(any(test, feature = "fuzzing"))]
thread_local! {
    static LENIENT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Returns whether every checksum is taken to match on this thread.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn is_lenient() -> bool {
    LENIENT.get()
}

/// Runs `f` with checksums that are all taken to match.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn with_lenient_checksums<T>(f: impl FnOnce() -> T) -> T {
    struct RestoreLenient(bool);
    impl Drop for RestoreLenient {
        fn drop(&mut self) {
            LENIENT.set(self.0);
        }
    }
    let _restore = RestoreLenient(LENIENT.replace(true));
    f()
}
