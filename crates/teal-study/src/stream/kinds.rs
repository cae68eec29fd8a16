//! When which kind of operation comes.
//!
//! # Guarantees
//! 1. There are as many of each kind as were published; the first operation is a first read.
//! 2. Windows of requests to the server hold what was published of them.

use super::gaps::Gaps;
use super::published::{Published, Spikes};
use crate::numbers::Numbers;

/// A kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// The first read of a file.
    First,
    /// A change of a file that was read.
    Change,
    /// A file is read again.
    Again,
    /// The attributes of a file that was read.
    Attributes,
}

/// How many of each kind are left to be drawn.
struct Left {
    first: u64,
    change: u64,
    others: u64,
}

impl Left {
    fn draw(&mut self, numbers: &mut Numbers) -> Kind {
        let at = numbers.below(self.first + self.change + self.others);
        if at < self.first {
            self.first -= 1;
            Kind::First
        } else if at < self.first + self.change {
            self.change -= 1;
            Kind::Change
        } else {
            self.others = self.others.saturating_sub(1);
            if numbers.below(2) == 0 {
                Kind::Again
            } else {
                Kind::Attributes
            }
        }
    }
}

impl Published {
    /// Time and kind of every operation, in order.
    pub(super) fn slots(&self, gaps: Gaps, numbers: &mut Numbers) -> Vec<(u64, Kind)> {
        let mut left = Left {
            first: self.files - 1,
            change: self.changes,
            others: self.operations - self.changes - self.files,
        };
        let length = self.length.get();
        let Some(spikes) = &self.spikes else {
            let times = match self.head {
                None => gaps.times(self.operations, length, numbers),
                Some((count, head)) => {
                    let mut times = gaps.times(count, head.get(), numbers);
                    // The first of the rest would be the last of the head.
                    let rest =
                        gaps.times(self.operations - count + 1, length - head.get(), numbers);
                    times.extend(rest.into_iter().skip(1).map(|at| at + head.get()));
                    times
                }
            };
            let kinds = |(n, at)| {
                (
                    at,
                    if n == 0 {
                        Kind::First
                    } else {
                        left.draw(numbers)
                    },
                )
            };
            return times.into_iter().enumerate().map(kinds).collect();
        };
        let requests = requests(spikes, length, gaps, numbers);
        let others = gaps.times(left.others, length, numbers);
        // First those that reach the server, then those that do not: the kinds of each are drawn
        // apart.
        left.others = 0;
        let kinds = |(n, at)| {
            (
                at,
                if n == 0 {
                    Kind::First
                } else {
                    left.draw(numbers)
                },
            )
        };
        let mut slots: Vec<_> = requests.into_iter().enumerate().map(kinds).collect();
        let mut none = Left {
            first: 0,
            change: 0,
            others: others.len() as u64,
        };
        slots.extend(others.into_iter().map(|at| (at, none.draw(numbers))));
        slots.sort_unstable();
        slots
    }
}

/// Times of the requests to the server.
fn requests(spikes: &Spikes, length: u64, gaps: Gaps, numbers: &mut Numbers) -> Vec<u64> {
    let window = spikes.window.get();
    // The last, cut one is a quiet one.
    let (whole, windows) = (length / window, length.div_ceil(window));
    let special: u64 = spikes.classes.iter().map(|(count, ..)| count).sum();
    let mut places = gaps.places(special, whole, numbers);
    let quiet_most = spikes
        .classes
        .iter()
        .map(|(_, least, _)| *least)
        .min()
        .unwrap_or(u64::MAX)
        - 1;
    let mut counts = vec![0; windows as usize];
    for (count, least, below) in spikes.classes {
        for _ in 0..*count {
            let place = places.swap_remove(numbers.below(places.len() as u64) as usize);
            // A little above the least: the sum leaves no room for more.
            counts[place as usize] = least + numbers.below((below - least).min(least / 20));
        }
    }
    let spent: u64 = counts.iter().sum();
    let mut left = spikes.requests.saturating_sub(spent);
    counts[0] = counts[0].max(1);
    left -= u64::from(spent > 0 && counts.iter().sum::<u64>() > spent);
    let mut quiet: Vec<usize> = (0..counts.len())
        .filter(|at| counts[*at] <= quiet_most)
        .collect();
    while left > 0 && !quiet.is_empty() {
        let at = numbers.below(quiet.len() as u64) as usize;
        let room = quiet_most - counts[quiet[at]];
        let more = (1 + numbers.below(4)).min(room).min(left);
        counts[quiet[at]] += more;
        left -= more;
        if more == room {
            quiet.swap_remove(at);
        }
    }
    let mut times = Vec::with_capacity(spikes.requests as usize);
    for (n, count) in (0_u64..).zip(counts) {
        let begin = n * window;
        let long = window.min(length - begin).saturating_sub(1);
        times.extend(
            gaps.times(count, long, numbers)
                .into_iter()
                .map(|at| begin + at),
        );
    }
    times
}
