//! Compares two results of the same cells: says what has changed from one to the other, and whether
//! that is more than noise.
//!
//! # Guarantees
//! 1. Cells are compared in pairs of the same block, on a log scale; a workload as the mean of its
//!    cells, with one figure for each block, so that a sample is a block.
//! 2. Cells that only one of them has are named, and count for nothing.

use super::run::CellRun;
use crate::statistics::PairedComparison;
use std::collections::{BTreeMap, BTreeSet};

/// Describes the change of one cell or workload; ratios are the second by the first.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredChange {
    /// Workload; or workload, system, scheduler.
    pub names: Vec<String>,
    /// Operations for each second that the device worked, or on the clock where that time is not
    /// known.
    pub rate: Option<PairedComparison>,
    /// Operations for each joule.
    pub per_joule: Option<PairedComparison>,
}

impl MeasuredChange {
    /// Returns whether it is worse in one of the two goals, with 95 %.
    pub fn is_worse(&self) -> bool {
        [self.rate, self.per_joule]
            .iter()
            .flatten()
            .any(|of| of.high < 1.0)
    }

    /// Returns whether it is better in one of the two goals, with 95 %.
    pub fn is_better(&self) -> bool {
        [self.rate, self.per_joule]
            .iter()
            .flatten()
            .any(|of| of.low > 1.0)
    }
}

/// Holds all changes.
#[derive(Debug, Clone, PartialEq)]
pub struct MatrixChanges {
    /// By workload.
    pub workloads: Vec<MeasuredChange>,
    /// By cell.
    pub cells: Vec<MeasuredChange>,
    /// Cells that only one of them has.
    pub alone: Vec<[String; 3]>,
}

/// Figures of both goals by block.
type FiguresByBlock = BTreeMap<u32, [Option<f64>; 2]>;
type FiguresByCell = BTreeMap<[String; 3], FiguresByBlock>;

fn figures_by_cell(runs: &[CellRun]) -> FiguresByCell {
    let mut all = FiguresByCell::new();
    // One figure for each cell and block: a later run of the same block replaces an earlier one.
    for run in runs {
        let names = [
            run.workload.clone(),
            run.system.clone(),
            run.scheduler.clone(),
        ];
        all.entry(names)
            .or_default()
            .insert(run.block, [run.rate_to_compare(), run.per_joule()]);
    }
    all
}

/// Logarithms of ratios of one goal, by block.
type LogsByBlock = BTreeMap<u32, Vec<f64>>;

/// Returns the change of a workload by both goals.
fn compare_workload(workload: &str, goals: [LogsByBlock; 2]) -> MeasuredChange {
    let [rate, per_joule] = goals.map(|blocks| {
        // A block that lacks some cells would compare others than the rest, so only the fullest
        // blocks count.
        let most = blocks.values().map(Vec::len).max()?;
        let whole = blocks.values().filter(|logs| logs.len() == most);
        // The mean of logarithms is that of ratios; each is paired with 1.
        let means = whole.map(|logs| ((logs.iter().sum::<f64>() / logs.len() as f64).exp(), 1.0));
        PairedComparison::from_pairs(&means.collect::<Vec<_>>())
    });
    MeasuredChange {
        names: vec![workload.to_owned()],
        rate,
        per_joule,
    }
}

/// Returns the changes from some runs to others.
pub fn compare_results(before: &[CellRun], after: &[CellRun]) -> MatrixChanges {
    let (before, after) = (figures_by_cell(before), figures_by_cell(after));
    let mut cells = Vec::new();
    // Logarithms of ratios of the cells that both have, by workload, goal and block.
    let mut logs: BTreeMap<&str, [LogsByBlock; 2]> = BTreeMap::new();
    for (names, old) in &before {
        let Some(new) = after.get(names) else {
            continue;
        };
        let of_workload = logs.entry(&names[0]).or_default();
        // Goals are compared apart: rate and joules may disagree.
        let [rate, per_joule] = [0, 1].map(|goal| {
            let mut pairs = Vec::new();
            for (block, new, old) in paired_figures(old, new, goal) {
                pairs.push((new, old));
                let logs = of_workload[goal].entry(block).or_default();
                logs.push((new / old).ln());
            }
            PairedComparison::from_pairs(&pairs)
        });
        cells.push(MeasuredChange {
            names: names.to_vec(),
            rate,
            per_joule,
        });
    }
    let mut workloads = Vec::new();
    for (workload, goals) in logs {
        workloads.push(compare_workload(workload, goals));
    }
    MatrixChanges {
        workloads,
        cells,
        alone: unpaired_cells(&before, &after),
    }
}

/// Returns the blocks in which both have a figure of a goal, with the new and the old figure.
fn paired_figures(old: &FiguresByBlock, new: &FiguresByBlock, goal: usize) -> Vec<(u32, f64, f64)> {
    // A figure of zero has no logarithm: such a run measured nothing.
    let mut pairs = Vec::new();
    for (block, goals) in old {
        if let Some(others) = new.get(block)
            && let (Some(a), Some(b)) = (others[goal], goals[goal])
            && a > 0.0
            && b > 0.0
        {
            pairs.push((*block, a, b));
        }
    }
    pairs
}

/// Returns the cells that only one of them has: they would be missed otherwise.
fn unpaired_cells(before: &FiguresByCell, after: &FiguresByCell) -> Vec<[String; 3]> {
    // Sorted by their names, whichever of the two has them.
    let mut alone = BTreeSet::new();
    for (one, other) in [(before, after), (after, before)] {
        for names in one.keys() {
            if !other.contains_key(names) {
                alone.insert(names.clone());
            }
        }
    }
    alone.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::run;
    use super::*;

    fn runs(factor: f64, blocks: u32) -> Vec<CellRun> {
        let mut runs = Vec::new();
        for block in 0..blocks {
            for (at, scheduler) in ["none", "bfq"].into_iter().enumerate() {
                let noise = 1.0 + 0.01 * f64::from((block * 7 + at as u32 * 3) % 4);
                runs.push(run(
                    ["web", "ext4", scheduler],
                    block,
                    9.0,
                    20.0 * factor * noise * f64::from(1 + block),
                    5.0,
                ));
            }
        }
        runs
    }

    #[test]
    fn what_is_worse_in_every_block_is_said_to_be_and_noise_is_not() {
        let before = runs(1.0, 5);
        let same = compare_results(&before, &before);
        assert!(
            same.workloads
                .iter()
                .chain(&same.cells)
                .all(|change| !change.is_worse() && !change.is_better())
        );
        let changes = compare_results(&before, &runs(1.25, 5));
        let web = &changes.workloads[0];
        assert!(web.is_worse() && !web.is_better(), "{web:?}");
        let by = web.per_joule.unwrap();
        assert!(
            (by.ratio - 0.8).abs() < 1e-9 && by.n == 5,
            "drift from block to block is in both: {by:?}"
        );
        assert_eq!(changes.cells.len(), 2);
        assert!(changes.alone.is_empty());
    }

    #[test]
    fn what_only_one_has_is_named_and_one_block_says_nothing() {
        let mut after = runs(2.0, 1);
        after.pop();
        let changes = compare_results(&runs(1.0, 3), &after);
        assert_eq!(changes.alone, [["web", "ext4", "bfq"].map(str::to_owned)]);
        assert!(changes.cells[0].rate.is_none() && !changes.workloads[0].is_worse());
    }
}
