//! Draws pauses by three models.
//!
//! # Guarantees
//! 1. There are as many times as were wanted, in order, the first at the beginning and the last at
//!    the end.

use crate::numbers::SeededNumbers;
use std::str::FromStr;

/// Names a model of the pauses between operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapModel {
    /// All pauses are equal, so no device can ever sleep for long.
    Even,
    /// Each operation comes at a time of its own: the pauses of a Poisson process.
    Random,
    /// Operations come in sessions: a pause twice as long is half as frequent (a Pareto
    /// distribution with exponent 1). Most operations come close together, and most of the time is
    /// in few pauses.
    Sessions,
}

/// No model has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there are no gaps {0}; there are even, random, sessions")]
pub struct NoSuchGaps(String);

/// Limits the doublings of the shortest pause.
const DOUBLINGS: u32 = 24;

impl GapModel {
    /// All models.
    pub const ALL: [Self; 3] = [Self::Even, Self::Random, Self::Sessions];

    /// Returns its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::Random => "random",
            Self::Sessions => "sessions",
        }
    }

    /// Draws `count` times from 0 to `length`, both among them if there are two at least.
    pub(super) fn draw_times(
        self,
        count: u64,
        length: u64,
        numbers: &mut SeededNumbers,
    ) -> Vec<u64> {
        if count == 0 {
            return Vec::new();
        }
        let mut weights: Vec<u64> = match self {
            Self::Even => vec![1; count as usize - 1],
            Self::Random => {
                // A Poisson process under the condition of its number: independent times in order.
                let mut times: Vec<_> = (2..count)
                    .map(|_| numbers.next_below(length))
                    .chain([length])
                    .collect();
                times.sort_unstable();
                times.insert(0, 0);
                times.truncate(count as usize);
                return times;
            }
            Self::Sessions => {
                // Trailing zeros of an even number are geometric: each doubling is half as
                // frequent.
                let pause = |numbers: &mut SeededNumbers| {
                    let doublings = numbers.next_u64().trailing_zeros().min(DOUBLINGS);
                    (1024 + numbers.next_below(1024)) << doublings
                };
                (1..count).map(|_| pause(numbers)).collect()
            }
        };
        weights.insert(0, 0);
        let mut at = 0;
        let gaps = split_in_proportion(&weights, if count > 1 { length } else { 0 });
        debug_assert_eq!(
            gaps.len() as u64,
            count,
            "each operation has a gap before it"
        );
        gaps.into_iter()
            .map(|gap| {
                at += gap;
                at
            })
            .collect()
    }

    /// Draws the `count` special windows among all of them.
    pub(super) fn special_windows(
        self,
        count: u64,
        among: u64,
        numbers: &mut SeededNumbers,
    ) -> Vec<u64> {
        let mut places: Vec<u64> = match self {
            Self::Even => (0..count).map(|n| n * among / count).collect(),
            Self::Random => draw_distinct(count, among, numbers),
            // Special windows come in runs: each begins somewhere, and the windows after it are
            // special too.
            Self::Sessions => {
                let runs = count.div_ceil(RUN);
                let begins = draw_distinct(runs, (among - count) + runs, numbers);
                let each = |(n, begin): (u64, u64)| {
                    let length = RUN.min(count - n * RUN);
                    (0..length).map(move |at| begin + n * (RUN - 1) + at)
                };
                (0..).zip(begins).flat_map(each).collect()
            }
        };
        places.dedup();
        places
    }
}

/// Windows of a session: twenty minutes of thirty seconds each.
const RUN: u64 = 40;

/// Draws `count` different numbers below `among`, in order.
fn draw_distinct(count: u64, among: u64, numbers: &mut SeededNumbers) -> Vec<u64> {
    debug_assert!(count <= among, "more numbers are wanted than there are");
    let mut left = count;
    // Selection sampling (Knuth, algorithm S): each number is taken with the chance that leaves as
    // many as are wanted.
    let take = |at: &u64| {
        let is_taken = numbers.next_below(among - at) < left;
        left -= u64::from(is_taken);
        is_taken
    };
    (0..among).filter(take).collect()
}

/// Splits `whole` in proportion to `weights`. The parts sum up to `whole`, if some weight is not
/// zero.
pub(super) fn split_in_proportion(weights: &[u64], whole: u64) -> Vec<u64> {
    let total: u128 = weights
        .iter()
        .map(|weight| u128::from(*weight))
        .sum::<u128>()
        .max(1);
    // The parts are differences of rounded running sums, so that no rounding is lost.
    let (mut sum, mut given) = (0_u128, 0);
    let mut share = |weight: &u64| {
        sum += u128::from(*weight);
        let until = u64::try_from(sum * u128::from(whole) / total).unwrap_or(whole);
        let part = until - given;
        given = until;
        part
    };
    weights.iter().map(&mut share).collect()
}

impl FromStr for GapModel {
    type Err = NoSuchGaps;
    fn from_str(text: &str) -> Result<Self, NoSuchGaps> {
        Self::ALL
            .into_iter()
            .find(|gaps| gaps.word() == text)
            .ok_or_else(|| NoSuchGaps(text.into()))
    }
}
