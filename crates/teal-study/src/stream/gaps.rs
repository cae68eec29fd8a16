//! Three models of pauses.
//!
//! # Guarantees
//! 1. So many times as were wanted, in order, the first at the beginning and the last at the end.

use crate::numbers::SeededNumbers;
use std::str::FromStr;

/// How operations follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapModel {
    /// All pauses are the same: nothing can ever sleep for long.
    Even,
    /// Each operation comes at any time, whatever the others do: pauses as of a Poisson process.
    Random,
    /// Sessions: a pause twice as long is half as frequent (a Pareto distribution with exponent 1),
    /// so that most operations come close together and most of the time is in few pauses.
    Sessions,
}

/// No model is called so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there are no gaps {0}; there are even, random, sessions")]
pub struct NoSuchGaps(String);

/// Pauses are at most this many doublings of the shortest.
const DOUBLINGS: u32 = 24;

impl GapModel {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Even, Self::Random, Self::Sessions];

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::Random => "random",
            Self::Sessions => "sessions",
        }
    }

    /// `count` times from 0 to `length`, both among them if there are two at least.
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
        gaps.into_iter()
            .map(|gap| {
                at += gap;
                at
            })
            .collect()
    }

    /// Returns which of `among` windows have something special: `count` of them.
    pub(super) fn special_windows(
        self,
        count: u64,
        among: u64,
        numbers: &mut SeededNumbers,
    ) -> Vec<u64> {
        let mut places: Vec<u64> = match self {
            Self::Even => (0..count).map(|n| n * among / count).collect(),
            Self::Random => draw_distinct(count, among, numbers),
            // In runs: each begins somewhere, and the windows after it are special too.
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

/// `count` different numbers below `among`, in order.
fn draw_distinct(count: u64, among: u64, numbers: &mut SeededNumbers) -> Vec<u64> {
    let mut left = count;
    let take = |at: &u64| {
        let is_taken = numbers.next_below(among - at) < left;
        left -= u64::from(is_taken);
        is_taken
    };
    (0..among).filter(take).collect()
}

/// Parts of `whole` in proportion to `weights`; their sum is `whole`, if some weight is not zero.
pub(super) fn split_in_proportion(weights: &[u64], whole: u64) -> Vec<u64> {
    let total: u128 = weights
        .iter()
        .map(|weight| u128::from(*weight))
        .sum::<u128>()
        .max(1);
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
