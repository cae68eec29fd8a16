//! Pseudo-randomness that repeats: xoshiro256**, seeded through `SplitMix64`.

use parking_lot::Mutex;
use teal_env::Entropy;

/// A generator of pseudo-random numbers. The same seed gives the same numbers for ever, on every
/// machine.
#[derive(Debug, Clone)]
pub struct Rng([u64; 4]);

impl Rng {
    /// Makes the generator of this seed; neighbouring seeds have nothing in common.
    pub fn new(mut seed: u64) -> Self {
        // SplitMix64 spreads the seed, so that the state is never all zero.
        Self(std::array::from_fn(|_| {
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }))
    }

    /// Returns 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
        let out = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// Returns a number below `n`.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "no number is below 0");
        // Multiplication maps the whole range to `0..n` without a division (Lemire, 2019).
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Returns an index of a collection of `len`.
    ///
    /// # Panics
    /// If `len` is 0.
    pub fn pick_index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns one of `from`.
    ///
    /// # Panics
    /// If `from` is empty.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.pick_index(from.len())]
    }

    /// Returns true with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        // The upper 53 bits are all that a double holds exactly.
        ((self.next_u64() >> 11) as f64) < p * (1_u64 << 53) as f64
    }

    /// Fills `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }

    /// Makes a generator of its own for a part of the test, so that the draws of other parts do not
    /// change it.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }
}

/// An [`Entropy`] that repeats.
#[derive(Debug)]
pub struct SeededEntropy(Mutex<Rng>);

impl SeededEntropy {
    /// Makes the entropy of this seed.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(Rng::new(seed)))
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, out: &mut [u8]) {
        self.0.lock().fill(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_for_ever() {
        let mut rng = Rng::new(0);
        // SplitMix64 of seed 0 fills the state; the first output is checked against the published
        // algorithms.
        assert_eq!(rng.0[0], 0xe220_a839_7b1d_cdaf);
        assert_eq!(rng.next_u64(), 0x99ec_5f36_cb75_f2b4);
        let (a, b) = (SeededEntropy::new(7), SeededEntropy::new(7));
        assert_eq!(
            [a.random_id(), a.random_id()],
            [b.random_id(), b.random_id()]
        );
        assert_ne!(a.random_id(), a.random_id());
    }

    #[test]
    fn numbers_stay_below_and_reach_everything() {
        let mut rng = Rng::new(1);
        let mut seen = [0; 7];
        (0..7000).for_each(|_| seen[rng.pick_index(7)] += 1);
        assert!(seen.iter().all(|&n| (800..1200).contains(&n)), "{seen:?}");
        let heads = (0..10_000).filter(|_| rng.chance(0.25)).count();
        assert!((2300..2700).contains(&heads), "{heads}");
        assert!(!rng.chance(0.0) && rng.chance(1.0));
    }

    #[test]
    fn bytes_fill_any_length() {
        let mut out = [0; 13];
        Rng::new(3).fill(&mut out);
        assert!(out[8..].iter().any(|&b| b != 0));
    }
}
