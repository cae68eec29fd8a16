//! Makes numbers that look random and are the same everywhere.
//!
//! # Guarantees
//! 1. Integers only: the same seed gives the same numbers on every machine.

/// Mixes the bits of a number evenly (splitmix64).
pub(crate) fn mix_bits(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// Generates a sequence of numbers.
#[derive(Debug, Clone)]
pub(crate) struct SeededNumbers {
    seed: u64,
    drawn: u64,
}

impl SeededNumbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed: mix_bits(seed),
            drawn: 0,
        }
    }

    /// Returns the next number, of all 64-bit numbers.
    pub(crate) fn next_u64(&mut self) -> u64 {
        self.drawn += 1;
        mix_bits(self.seed ^ self.drawn)
    }

    /// Returns the next number below `end`; 0 if that is 0.
    pub(crate) fn next_below(&mut self, end: u64) -> u64 {
        // The upper half of the product is even without a division (Lemire).
        u64::try_from((u128::from(self.next_u64()) * u128::from(end)) >> 64).unwrap_or(0)
    }
}
