//! Victim selection: which segments are worth cleaning.

use super::SegmentTable;
use crate::format::geometry::Segment;
use teal_types::Lsn;

/// A policy for choosing victims.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum VictimPolicy {
    /// By cost and benefit, at most this full.
    CostBenefit(f64),
    /// The emptiest: room is short.
    Emptiest,
}

/// A fuller segment gives nothing back: what describes its content, and the ends of records, take
/// the rest.
pub(crate) const FULLEST: f64 = 0.97;
/// A segment to clean.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Victim {
    pub(crate) segment: Segment,
    pub(crate) live: u64,
    pub(crate) born: Lsn,
}

impl SegmentTable {
    /// Returns the segments worth cleaning, the best first. None is given twice between two
    /// checkpoints: content that was moved out of it may live on until the next one.
    pub(crate) fn rank_victims(&self, now: Lsn, choice: VictimPolicy) -> Vec<Victim> {
        let bytes = self.geometry.segment_bytes() as f64;
        let mut found: Vec<(f64, Victim)> = Vec::new();
        for (segment, u) in self.all_segments() {
            let fill = f64::from(u.live) / bytes;
            let score = match choice {
                // Full segments give little for their cost.
                VictimPolicy::CostBenefit(fullest) if fill > fullest => continue,
                // Cost and benefit (Rosenblum and Ousterhout): free space times age, by the cost of
                // reading and moving.
                VictimPolicy::CostBenefit(_) => {
                    (1.0 - fill) * (now.get().saturating_sub(u.born.get()) + 1) as f64
                        / (1.0 + fill)
                }
                VictimPolicy::Emptiest => 1.0 - fill,
            };
            // Segments of the head are still written; bad ones cannot be read.
            let is_free = !self.is_reserved(segment) && !self.bad.contains(&segment.0);
            // Second copies move with their pages.
            if u.used
                && !u.holds_copies
                && u.live > 0
                && fill <= FULLEST
                && is_free
                && !self.moving.contains(&segment.0)
            {
                found.push((
                    score,
                    Victim {
                        segment,
                        live: u64::from(u.live),
                        born: u.born,
                    },
                ));
            }
        }
        // The best first.
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        debug_assert!(found.is_sorted_by(|a, b| a.0 >= b.0));
        found.into_iter().map(|(_, victim)| victim).collect()
    }
}
