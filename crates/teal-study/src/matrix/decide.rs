//! Draws conclusions from scores: the best cell and those that cannot be told from it, the Pareto
//! front of two goals, and the indicators of seed 002.
//!
//! # The indicators
//! AI is performance by energy of the disk. Performance has three forms: operations a second, MB/s,
//! and the reciprocal of the mean latency in seconds. Energy is given as the joules of the run and,
//! change of energy with the change of performance: ((E_y - E_x) / E_x) / ((F_y - F_x) / F_x). The
//! study's exact formula is not known to us: this definition is ours, and both changes are printed
//! beside it.

use crate::statistics::PairedComparison;
use std::collections::BTreeMap;

/// Holds a cell's figures: means over its runs.
#[derive(Debug, Clone, PartialEq)]
pub struct CellScore {
    /// Names: workload, system, scheduler.
    pub names: [String; 3],
    /// Is true when the system has no options of its own.
    pub is_default: bool,
    /// Compared figure, by block.
    pub by_block: BTreeMap<u32, f64>,
    /// Mean of the compared figures.
    pub mean: f64,
}

/// Names the cell to take for a workload, by one measure.
#[derive(Debug, Clone, PartialEq)]
pub struct BestChoice {
    /// The best cell.
    pub best: CellScore,
    /// Cells that cannot be told from the best, each compared with it.
    pub ties: Vec<(CellScore, PairedComparison)>,
    /// The best cell by the worst and by the best of the systems without options, over all
    /// schedulers: the range of what the choice gains.
    pub gain: Option<(f64, f64)>,
}

/// Returns the best of the cells of one workload; `None` if fewer than two have runs in two blocks
/// that they share.
pub fn choose_best(scores: &[CellScore]) -> Option<BestChoice> {
    // One block has no spread, so nothing could be compared.
    let mut known = Vec::new();
    for score in scores {
        if score.by_block.len() >= 2 && score.mean > 0.0 {
            known.push(score);
        }
    }
    let best = *known.iter().max_by(|a, b| a.mean.total_cmp(&b.mean))?;
    let mut ties = Vec::new();
    let mut compared = 0;
    for other in &known {
        if other.names == best.names {
            continue;
        }
        if let Some(comparison) = compare_cells(best, other) {
            compared += 1;
            if comparison.is_tie() {
                ties.push(((*other).clone(), comparison));
            }
        }
    }
    // Without a comparison the best is only the best by chance.
    if compared == 0 {
        return None;
    }
    // The nearest rivals come first.
    ties.sort_by(|a, b| a.1.ratio.total_cmp(&b.1.ratio));
    debug_assert!(
        ties.iter().all(|(score, _)| score.names != best.names),
        "the best is no tie of itself"
    );
    Some(BestChoice {
        best: best.clone(),
        ties,
        gain: gain_over_defaults(best, &known),
    })
}

/// Returns the least and the largest gain of the best over the cells without options.
fn gain_over_defaults(best: &CellScore, known: &[&CellScore]) -> Option<(f64, f64)> {
    // There is a default for each kind of file system, so the gain is a range.
    let mut range: Option<(f64, f64)> = None;
    for score in known {
        if score.is_default {
            let gain = best.mean / score.mean;
            let (low, high) = range.unwrap_or((gain, gain));
            range = Some((low.min(gain), high.max(gain)));
        }
    }
    range
}

/// Compares two cells in the blocks that both have.
pub(super) fn compare_cells(one: &CellScore, other: &CellScore) -> Option<PairedComparison> {
    let mut pairs = Vec::new();
    for (block, a) in &one.by_block {
        if let Some(b) = other.by_block.get(block) {
            pairs.push((*a, *b));
        }
    }
    PairedComparison::from_pairs(&pairs)
}

/// Returns the places of the points that no other point beats in both goals, more being better: the
/// Pareto front.
pub fn pareto_front(points: &[(f64, f64)]) -> Vec<usize> {
    let is_beaten = |(x, y): (f64, f64)| {
        points
            .iter()
            .any(|(a, b)| *a >= x && *b >= y && (*a > x || *b > y))
    };
    (0..points.len())
        .filter(|at| !is_beaten(points[*at]))
        .collect()
}

/// Holds Cemp between two of the cells with the largest AI (a), the least power (p) and the best
/// performance (h).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cemp {
    /// The change of energy, as a part of it at the first.
    pub energy: f64,
    /// The change of performance, likewise.
    pub performance: f64,
}

impl Cemp {
    /// Returns the change of energy by the change of performance; `None` where performance does not
    /// change.
    pub fn value(&self) -> Option<f64> {
        (self.performance != 0.0).then(|| self.energy / self.performance)
    }
}

/// Returns Cemp from a cell with (energy, performance) to another.
pub fn cemp_between(from: (f64, f64), to: (f64, f64)) -> Cemp {
    Cemp {
        energy: (to.0 - from.0) / from.0,
        performance: (to.1 - from.1) / from.1,
    }
}
