//! Draws orders and numbers that are the same everywhere.

use crate::numbers::{SeededNumbers, mix_bits};

/// Returns the number that belongs to a place.
pub(super) fn draw_number(at: u64) -> u64 {
    mix_bits(at)
}

/// Returns `take` of the places below `count`, each once, in an order of this seed. (Fisher and
/// Yates)
pub(super) fn shuffle_places(count: u64, take: u64, seed: u64) -> Vec<u64> {
    debug_assert!(take <= count, "more places are taken than there are");
    let mut places: Vec<u64> = (0..count).collect();
    let mut numbers = SeededNumbers::new(seed);
    for at in 0..count.saturating_sub(1) {
        let other = at + numbers.next_below(count - at);
        places.swap(at as usize, other as usize);
    }
    places.truncate(take as usize);
    places
}
