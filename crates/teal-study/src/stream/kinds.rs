//! Assigns kinds to operations and times.
//!
//! # Guarantees
//! 1. There are as many operations of each kind as were published, and the first is a first read.

use super::gaps::GapModel;
use super::published::{PublishedTotals, RequestSpikes};
use crate::numbers::SeededNumbers;

/// Names a kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StreamOperation {
    /// A file is read for the first time.
    First,
    /// A file that was read before is changed.
    Change,
    /// A file that was read before is read again.
    Again,
    /// The attributes of a file that was read before are asked for.
    Attributes,
}

/// Counts the operations of each kind that are left to be drawn.
struct RemainingKinds {
    first: u64,
    change: u64,
    others: u64,
}

impl RemainingKinds {
    fn draw_kind(&mut self, numbers: &mut SeededNumbers) -> StreamOperation {
        // Drawing without replacement keeps the published numbers exact.
        let at = numbers.next_below(self.first + self.change + self.others);
        if at < self.first {
            self.first -= 1;
            StreamOperation::First
        } else if at < self.first + self.change {
            self.change -= 1;
            StreamOperation::Change
        } else {
            self.others = self.others.saturating_sub(1);
            if numbers.next_below(2) == 0 {
                StreamOperation::Again
            } else {
                StreamOperation::Attributes
            }
        }
    }
}

impl PublishedTotals {
    /// Returns time and kind of every operation, in order.
    pub(super) fn draw_slots(
        &self,
        gaps: GapModel,
        numbers: &mut SeededNumbers,
    ) -> Vec<(u64, StreamOperation)> {
        let mut left = RemainingKinds {
            // Whatever is no change and no first read is one of the others.
            first: self.files - 1,
            change: self.changes,
            others: self.operations - self.changes - self.files,
        };
        let length = self.length.get();
        let Some(spikes) = &self.spikes else {
            let times = match self.head {
                // A published head fixes the pauses at the beginning.
                None => gaps.draw_times(self.operations, length, numbers),
                Some((count, head)) => {
                    let mut times = gaps.draw_times(count, head.get(), numbers);
                    // The first operation of the rest would coincide with the last of the head.
                    let rest =
                        gaps.draw_times(self.operations - count + 1, length - head.get(), numbers);
                    times.extend(rest.into_iter().skip(1).map(|at| at + head.get()));
                    times
                }
            };
            let kinds = |(n, at)| {
                (
                    at,
                    if n == 0 {
                        StreamOperation::First
                    } else {
                        left.draw_kind(numbers)
                    },
                )
            };
            return times.into_iter().enumerate().map(kinds).collect();
        };
        let requests = draw_requests(spikes, length, gaps, numbers);
        let others = gaps.draw_times(left.others, length, numbers);
        // Operations that reach the server and those that do not have kinds of their own: they are
        // drawn apart.
        left.others = 0;
        let kinds = |(n, at)| {
            (
                at,
                if n == 0 {
                    StreamOperation::First
                } else {
                    left.draw_kind(numbers)
                },
            )
        };
        let mut slots: Vec<_> = requests.into_iter().enumerate().map(kinds).collect();
        let mut none = RemainingKinds {
            first: 0,
            change: 0,
            others: others.len() as u64,
        };
        slots.extend(others.into_iter().map(|at| (at, none.draw_kind(numbers))));
        slots.sort_unstable();
        debug_assert_eq!(
            slots.len() as u64,
            self.operations,
            "there are as many operations as were published"
        );
        slots
    }
}

/// Draws the times of the requests to the server.
fn draw_requests(
    spikes: &RequestSpikes,
    length: u64,
    gaps: GapModel,
    numbers: &mut SeededNumbers,
) -> Vec<u64> {
    let window = spikes.window.get();
    // The last window is incomplete, so it is a quiet one.
    let (whole, windows) = (length / window, length.div_ceil(window));
    let special: u64 = spikes.classes.iter().map(|(count, ..)| count).sum();
    // Special windows first: they have the most requests.
    let mut places = gaps.special_windows(special, whole, numbers);
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
            let place = places.swap_remove(numbers.next_below(places.len() as u64) as usize);
            // Counts stay near the least of their class, because the published sum leaves no room
            // for more.
            counts[place as usize] = least + numbers.next_below((below - least).min(least / 20));
        }
    }
    let spent: u64 = counts.iter().sum();
    let mut left = spikes.requests.saturating_sub(spent);
    counts[0] = counts[0].max(1);
    // The first window has the first read, so one request belongs to it in any case.
    left -= u64::from(spent > 0 && counts.iter().sum::<u64>() > spent);
    let mut quiet: Vec<usize> = (0..counts.len())
        .filter(|at| counts[*at] <= quiet_most)
        .collect();
    // The remaining requests go to quiet windows, a few at a time, below the least special class.
    while left > 0 && !quiet.is_empty() {
        let at = numbers.next_below(quiet.len() as u64) as usize;
        let room = quiet_most - counts[quiet[at]];
        let more = (1 + numbers.next_below(4)).min(room).min(left);
        counts[quiet[at]] += more;
        left -= more;
        if more == room {
            quiet.swap_remove(at);
        }
    }
    debug_assert!(
        left == 0 || quiet.is_empty(),
        "requests are left although windows have room"
    );
    // Times are drawn within each window.
    let mut times = Vec::with_capacity(spikes.requests as usize);
    for (n, count) in (0_u64..).zip(counts) {
        let begin = n * window;
        let long = window.min(length - begin).saturating_sub(1);
        times.extend(
            gaps.draw_times(count, long, numbers)
                .into_iter()
                .map(|at| begin + at),
        );
    }
    times
}
