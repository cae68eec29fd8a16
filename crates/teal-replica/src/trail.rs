//! The way this replica has come through history: some of its positions with the digests of history
//! there.
//!
//! # Guarantees
//! 1. *Only what was*: every step is a commit up to which history was applied here, as it was then,
//!    and the way behind it led on from there.
//! 2. *Close where it matters*: the newest positions are there, and the farther back, the farther
//!    apart: by about a fifth of the distance.

use teal_proto::EARLIER_MAX;
use teal_types::CommitSeq;

/// A position, and the digest of history there.
pub(crate) type TrailStep = (CommitSeq, [u8; 32]);

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct HistoryTrail {
    steps: [TrailStep; EARLIER_MAX],
    len: usize,
}

impl HistoryTrail {
    /// The steps, ascending.
    pub(crate) fn steps(&self) -> &[TrailStep] {
        &self.steps[..self.len]
    }

    /// History is applied up to here. What had been applied behind it is not any more.
    pub(crate) fn record_position(&mut self, seq: CommitSeq, digest: [u8; 32]) {
        self.len = self.steps().partition_point(|(at, _)| *at < seq);
        if seq == CommitSeq::default() {
            return;
        }
        if self.len == EARLIER_MAX {
            let spare = self.least_missed_step(seq);
            self.steps.copy_within(spare + 1.., spare);
            self.len -= 1;
        }
        self.steps[self.len] = (seq, digest);
        self.len += 1;
    }

    /// The step that is missed least: its neighbours are close together, for how far back they are.
    fn least_missed_step(&self, newest: CommitSeq) -> usize {
        let at = |n: usize| u128::from(self.steps().get(n).map_or(newest, |step| step.0).get());
        let measure = |n: usize| (at(n + 1) - at(n - 1), at(EARLIER_MAX) - at(n - 1));
        let less = |a: (u128, u128), b: (u128, u128)| a.0 * b.1 < b.0 * a.1;
        (2..self.len).fold(1, |best, n| {
            if less(measure(n), measure(best)) {
                n
            } else {
                best
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn come(trail: &mut HistoryTrail, seq: u64) {
        trail.record_position(CommitSeq::new(seq), [seq as u8; 32]);
    }

    #[test]
    fn the_way_is_remembered_closely_near_its_end_and_at_growing_distances_before() {
        let mut trail = HistoryTrail::default();
        for seq in 1..=100_000 {
            come(&mut trail, seq);
            let steps: Vec<u64> = trail.steps().iter().map(|(at, _)| at.get()).collect();
            assert!(steps.is_sorted() && steps.last() == Some(&seq));
            for pair in steps.windows(2) {
                let (gap, back) = (pair[1] - pair[0], seq - pair[0]);
                assert!(gap <= 1 + back / 2, "{gap} at {back} back: {steps:?}");
            }
        }
        assert_eq!(trail.steps().len(), EARLIER_MAX);
        assert!(
            trail
                .steps()
                .iter()
                .all(|(at, digest)| digest[0] == at.get() as u8)
        );
    }

    #[test]
    fn who_goes_back_forgets_where_the_way_led() {
        let mut trail = HistoryTrail::default();
        [3, 5, 9].into_iter().for_each(|seq| come(&mut trail, seq));
        trail.record_position(CommitSeq::new(5), [7; 32]);
        assert_eq!(
            trail.steps(),
            [(CommitSeq::new(3), [3; 32]), (CommitSeq::new(5), [7; 32])]
        );
        trail.record_position(CommitSeq::default(), [0; 32]);
        assert_eq!(trail.steps(), []);
    }
}
