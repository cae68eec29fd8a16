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
        let Some(spikes) = &self.spikes else {
            let times = self.draw_operations(gaps, numbers);
            return left.with_kinds(times, numbers);
        };
        let length = self.length.get();
        let requests = draw_requests(spikes, length, gaps, numbers);
        let others = gaps.draw_times(left.others, length, numbers);
        // Operations that reach the server and those that do not have kinds of their own: they are
        // drawn apart.
        left.others = 0;
        let mut slots = left.with_kinds(requests, numbers);
        let mut none = RemainingKinds {
            first: 0,
            change: 0,
            others: others.len() as u64,
        };
        for at in others {
            slots.push((at, none.draw_kind(numbers)));
        }
        slots.sort_unstable();
        debug_assert_eq!(
            slots.len() as u64,
            self.operations,
            "there are as many operations as were published"
        );
        slots
    }

    /// Draws the times of all operations. A published head fixes the pauses at the beginning.
    fn draw_operations(&self, gaps: GapModel, numbers: &mut SeededNumbers) -> Vec<u64> {
        let length = self.length.get();
        let Some((count, head)) = self.head else {
            return gaps.draw_times(self.operations, length, numbers);
        };
        // Head and rest have pauses of the same kind, at different rates.
        let mut times = gaps.draw_times(count, head.get(), numbers);
        // The first operation of the rest would coincide with the last of the head.
        let rest = gaps.draw_times(self.operations - count + 1, length - head.get(), numbers);
        times.extend(rest.into_iter().skip(1).map(|at| at + head.get()));
        times
    }
}

impl RemainingKinds {
    /// Draws a kind for each time; the first is a first read.
    fn with_kinds(
        &mut self,
        times: Vec<u64>,
        numbers: &mut SeededNumbers,
    ) -> Vec<(u64, StreamOperation)> {
        let mut slots = Vec::with_capacity(times.len());
        for at in times {
            // Nothing can be read again before something was read.
            let kind = if slots.is_empty() {
                StreamOperation::First
            } else {
                self.draw_kind(numbers)
            };
            slots.push((at, kind));
        }
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
    let counts = WindowCounts::draw(spikes, length, gaps, numbers);
    let window = spikes.window.get();
    // Times are drawn within each window.
    let mut times = Vec::with_capacity(spikes.requests as usize);
    for (n, count) in (0_u64..).zip(counts.counts) {
        let begin = n * window;
        let long = window.min(length - begin).saturating_sub(1);
        for at in gaps.draw_times(count, long, numbers) {
            times.push(begin + at);
        }
    }
    times
}

/// Counts the requests of each window.
struct WindowCounts {
    counts: Vec<u64>,
    /// Most requests of a window that is not special.
    quiet_most: u64,
}

impl WindowCounts {
    fn draw(
        spikes: &RequestSpikes,
        length: u64,
        gaps: GapModel,
        numbers: &mut SeededNumbers,
    ) -> Self {
        let windows = length.div_ceil(spikes.window.get());
        let least_special = spikes.classes.iter().map(|(_, least, _)| *least).min();
        let mut drawn = Self {
            counts: vec![0; windows as usize],
            quiet_most: least_special.unwrap_or(u64::MAX) - 1,
        };
        // Special windows first: they have the most requests.
        drawn.fill_special(spikes, length, gaps, numbers);
        let spent: u64 = drawn.counts.iter().sum();
        let mut left = spikes.requests.saturating_sub(spent);
        // The first window has the first read, so one request belongs to it in any case.
        drawn.counts[0] = drawn.counts[0].max(1);
        left -= u64::from(spent > 0 && drawn.counts.iter().sum::<u64>() > spent);
        drawn.fill_quiet(left, numbers);
        drawn
    }

    /// Draws the special windows of each class, and their requests.
    fn fill_special(
        &mut self,
        spikes: &RequestSpikes,
        length: u64,
        gaps: GapModel,
        numbers: &mut SeededNumbers,
    ) {
        // The last window is incomplete, so it is a quiet one.
        let whole = length / spikes.window.get();
        // Special windows are drawn together, so that none is drawn twice.
        let special: u64 = spikes.classes.iter().map(|(count, ..)| count).sum();
        let mut places = gaps.special_windows(special, whole, numbers);
        for (count, least, below) in spikes.classes {
            for _ in 0..*count {
                let place = places.swap_remove(numbers.next_below(places.len() as u64) as usize);
                // Counts stay near the least of their class, because the published sum leaves no
                // room for more.
                self.counts[place as usize] =
                    least + numbers.next_below((below - least).min(least / 20));
            }
        }
    }

    /// Gives the remaining requests to quiet windows, a few at a time, below the least special
    /// class.
    fn fill_quiet(&mut self, mut left: u64, numbers: &mut SeededNumbers) {
        let mut quiet: Vec<usize> = (0..self.counts.len())
            .filter(|at| self.counts[*at] <= self.quiet_most)
            .collect();
        while left > 0 && !quiet.is_empty() {
            let at = numbers.next_below(quiet.len() as u64) as usize;
            // A window that is full is drawn no more.
            let room = self.quiet_most - self.counts[quiet[at]];
            let more = (1 + numbers.next_below(4)).min(room).min(left);
            self.counts[quiet[at]] += more;
            left -= more;
            if more == room {
                quiet.swap_remove(at);
            }
        }
        debug_assert!(
            left == 0 || quiet.is_empty(),
            "requests are left although windows have room"
        );
    }
}
