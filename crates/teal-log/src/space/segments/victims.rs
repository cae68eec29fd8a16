//! Victim selection: which segments are worth cleaning.

use super::SegmentTable;
use crate::format::geometry::Segment;
use teal_types::Lsn;

/// How to choose victims.
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
    /// SegmentTable worth cleaning, the best first. None is given twice between two checkpoints:
    /// what was moved out of it may live on until the next one.
    pub(crate) fn rank_victims(&self, now: Lsn, choice: VictimPolicy) -> Vec<Victim> {
        let bytes = self.geometry.segment_bytes() as f64;
        let mut found: Vec<(f64, Victim)> = Vec::new();
        for (segment, u) in self.all_segments() {
            let fill = f64::from(u.live) / bytes;
            let score = match choice {
                VictimPolicy::CostBenefit(fullest) if fill > fullest => continue,
                VictimPolicy::CostBenefit(_) => {
                    (1.0 - fill) * (now.get().saturating_sub(u.born.get()) + 1) as f64
                        / (1.0 + fill)
                }
                VictimPolicy::Emptiest => 1.0 - fill,
            };
            let is_free = !self.is_reserved(segment) && !self.bad.contains(&segment.0);
            if u.used
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
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        found.into_iter().map(|(_, victim)| victim).collect()
    }
}
