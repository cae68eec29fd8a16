//! Findings: all that a matrix's runs say, and what they do not.

use super::decide::{BestChoice, CellScore, Cemp, cemp_between, choose_best, pareto_front};
use super::file::Matrix;
use super::order::MatrixCell;
use super::run::{CellFailure, CellRun};
use crate::statistics::{ConfidenceInterval, LinearTrend, median, pearson_correlation};
use std::collections::BTreeMap;

/// A cell's figures.
#[derive(Debug, Clone, PartialEq)]
pub struct CellRow {
    /// Which.
    pub cell: MatrixCell,
    /// Its names: workload, system, scheduler.
    pub names: [String; 3],
    /// Runs.
    pub runs: usize,
    /// Runs that were steady on the clock.
    pub steady: usize,
    /// Operations a second on the clock, of the steady runs.
    pub rate: Option<ConfidenceInterval>,
    /// Operations for each second that the device worked.
    pub rate_of_device: Option<ConfidenceInterval>,
    /// Joules for each thousand operations, run and drain.
    pub joules_per_thousand: Option<ConfidenceInterval>,
    /// The part of the joules that the drain took.
    pub drained: f64,
    /// Watts while the device worked.
    pub watts: Option<f64>,
    /// Performance in its three forms: operations a second that the device worked, MB/s of it, 1 by
    /// the mean latency in seconds.
    pub performance: [f64; 3],
    /// AI in those forms: by the joules of a thousand operations.
    pub ai: [Option<f64>; 3],
    /// The device was hardly needed.
    pub is_of_memory: bool,
    /// Seconds and watts of the first run that has them.
    pub power: Vec<[f64; 2]>,
    /// The kernel of the guest it ran in. Nothing of it is told by the clock, then.
    pub guest: Option<String>,
}

/// What is best for a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadVerdict {
    /// Its name.
    pub workload: String,
    /// By operations a second on the clock; `None`: not steady, or too few runs.
    pub by_rate: Option<BestChoice>,
    /// By operations for each second that the device worked.
    pub by_device: Option<BestChoice>,
    /// By operations for each joule.
    pub by_joule: Option<BestChoice>,
    /// Pearson's r of operations for each joule with operations for each second that the device
    /// worked, over its cells.
    pub r: Option<f64>,
    /// The lowest and the highest power of its cells, in watts.
    pub watts: Option<(f64, f64)>,
    /// Cells that no other beats in both, by their places in [`Findings::rows`].
    pub front: Vec<usize>,
    /// From the largest AI to the best performance, from the least power to the largest AI, from
    /// the least power to the best performance.
    pub cemp: Option<[Cemp; 3]>,
    /// How the machine drifted: operations a second on the clock of the first system, all
    /// schedulers, from the first block to the last.
    pub drift: Option<LinearTrend>,
}

/// Everything.
#[derive(Debug, Clone, PartialEq)]
pub struct MatrixFindings {
    /// By cell, in the order of the file; those without runs, too.
    pub rows: Vec<CellRow>,
    /// By workload.
    pub verdicts: Vec<WorkloadVerdict>,
    /// Runs in all.
    pub runs: usize,
    /// Blocks that have every cell.
    pub blocks: u32,
    /// Processes that wanted to run before runs began, by the load of the minute before: least,
    /// median, most.
    pub load: Option<[f64; 3]>,
    /// Cells that came to nothing.
    pub failures: Vec<CellFailure>,
    /// Runs that ended before as many operations as were asked for: one of each cell, with how many
    /// of its runs did.
    pub short: Vec<String>,
}

fn mean(of: impl Iterator<Item = f64> + Clone) -> f64 {
    let n = of.clone().count();
    if n == 0 {
        0.0
    } else {
        of.sum::<f64>() / n as f64
    }
}

/// The interval of several, or the figure of one without any.
fn interval_or_single(samples: &[f64]) -> Option<ConfidenceInterval> {
    ConfidenceInterval::from_samples(samples).or_else(|| {
        samples.first().map(|mean| ConfidenceInterval {
            n: 1,
            mean: *mean,
            half_width: f64::INFINITY,
        })
    })
}

/// Of a run that was steady, and on the clock that the others have.
fn rate_on_the_clock(run: &CellRun) -> Option<f64> {
    run.steady_from
        .filter(|_| run.guest.is_none())
        .map(|_| run.rate)
}

impl CellRow {
    fn from_runs(matrix: &Matrix, cell: MatrixCell, runs: &[&CellRun]) -> Self {
        let of = |what: &dyn Fn(&CellRun) -> Option<f64>| -> Vec<f64> {
            runs.iter().filter_map(|run| what(run)).collect()
        };
        let steady = of(&|run| run.steady_from.map(|_| run.rate));
        let guest = runs.iter().find_map(|run| run.guest.clone());
        let per_thousand = interval_or_single(&of(&|run| run.per_joule().map(|ops| 1000.0 / ops)));
        let rate_of_device = interval_or_single(&of(&CellRun::rate_of_device));
        let spent: Vec<_> = runs.iter().map(|run| run.total_use()).collect();
        let (joules, busy) = (
            mean(spent.iter().map(|s| s.joules)),
            mean(spent.iter().map(|s| s.busy)),
        );
        let bytes = mean(runs.iter().map(|run| run.bytes as f64));
        let latency = mean(runs.iter().map(|run| run.latency_ms[0])) / 1e3;
        let by = |x: f64, y: f64| if y > 0.0 { x / y } else { 0.0 };
        let performance = [
            rate_of_device.map_or(0.0, |rate| rate.mean),
            by(bytes / 1e6, busy),
            by(1.0, latency),
        ];
        Self {
            cell,
            names: matrix.cell_names(cell).map(str::to_owned),
            runs: runs.len(),
            steady: steady.len(),
            rate: interval_or_single(&of(&rate_on_the_clock)),
            rate_of_device,
            joules_per_thousand: per_thousand,
            drained: by(mean(runs.iter().map(|run| run.drain.joules)), joules),
            watts: (busy > 0.0 && joules > 0.0).then(|| joules / busy),
            performance,
            ai: [0, 1, 2].map(|form| {
                // The third is by the clock.
                let joules = per_thousand.filter(|_| form < 2 || guest.is_none())?;
                Some(performance[form] / joules.mean)
            }),
            power: runs
                .iter()
                .map(|run| &run.power)
                .find(|power| !power.is_empty())
                .cloned()
                .unwrap_or_default(),
            guest,
            is_of_memory: !runs.is_empty() && runs.iter().all(|run| run.is_of_memory()),
        }
    }
}

impl MatrixFindings {
    /// Returns what these runs of a matrix say, if no cell came to nothing.
    pub fn from_runs(matrix: &Matrix, runs: &[CellRun]) -> Self {
        Self::from_runs_and_failures(matrix, runs, &[])
    }

    /// Returns what these runs of a matrix say. Runs of cells that the matrix does not have are
    /// left out, and nobody waits for those that came to nothing.
    pub fn from_runs_and_failures(
        matrix: &Matrix,
        runs: &[CellRun],
        failures: &[CellFailure],
    ) -> Self {
        let cells = matrix.cells();
        let mut by_cell: BTreeMap<MatrixCell, Vec<&CellRun>> =
            cells.iter().map(|cell| (*cell, Vec::new())).collect();
        let of_names: BTreeMap<[&str; 3], MatrixCell> = cells
            .iter()
            .map(|cell| (matrix.cell_names(*cell), *cell))
            .collect();
        for run in runs {
            let names = [
                run.workload.as_str(),
                run.system.as_str(),
                run.scheduler.as_str(),
            ];
            if let Some(of) = of_names.get(&names).and_then(|cell| by_cell.get_mut(cell)) {
                of.push(run);
            }
        }
        let rows: Vec<CellRow> = by_cell
            .iter()
            .map(|(cell, runs)| CellRow::from_runs(matrix, *cell, runs))
            .collect();
        let verdicts = (0..matrix.workloads.len())
            .map(|at| judge_workload(matrix, at, &rows, &by_cell))
            .collect();
        let has_failed = |cell: &MatrixCell| {
            failures
                .iter()
                .any(|of| of.names == matrix.cell_names(*cell))
        };
        let awaited: Vec<_> = by_cell
            .iter()
            .filter(|(cell, _)| !has_failed(cell))
            .map(|(_, runs)| runs)
            .collect();
        let has = |block: u32| {
            !awaited.is_empty()
                && awaited
                    .iter()
                    .all(|runs| runs.iter().any(|run| run.block == block))
        };
        let blocks = (0..matrix.runs.most)
            .take_while(|block| has(*block))
            .count() as u32;
        let mut loads: Vec<f64> = by_cell
            .values()
            .flatten()
            .map(|run| run.load_before)
            .collect();
        let middle = (!loads.is_empty()).then(|| median(&mut loads));
        let load = middle.map(|middle| [loads[0], middle, loads[loads.len() - 1]]);
        let short = by_cell
            .iter()
            .filter_map(|(cell, runs)| describe_shortfall(matrix, *cell, runs))
            .collect();
        Self {
            rows,
            verdicts,
            runs: loads.len(),
            blocks,
            load,
            failures: failures.to_vec(),
            short,
        }
    }

    /// The widest relative interval of what is compared by device, or of the rates where there is
    /// none; `None` while a cell has fewer than two runs.
    pub fn widest_interval(&self) -> Option<f64> {
        let relative = |row: &CellRow| {
            let of = row.joules_per_thousand.or(row.rate)?;
            (of.n >= 2).then(|| of.relative_half_width())
        };
        let awaited = self
            .rows
            .iter()
            .filter(|row| !self.failures.iter().any(|of| of.names == row.names));
        awaited
            .map(relative)
            .try_fold(0.0, |widest: f64, of| Some(widest.max(of?)))
    }
}

/// Of a cell with runs that were short of what was asked for: the first of them, and how many there
/// are.
fn describe_shortfall(matrix: &Matrix, cell: MatrixCell, runs: &[&CellRun]) -> Option<String> {
    let asked = matrix.workloads[cell.workload].operations;
    let all: Vec<String> = runs
        .iter()
        .filter_map(|run| run.describe_shortfall(asked))
        .collect();
    let first = all.first()?;
    Some(format!(
        "{}: {} of {} runs {first}",
        matrix.cell_names(cell).join(", "),
        all.len(),
        runs.len()
    ))
}

/// Runs of a workload that did alike much: where some were short of what was asked for, those that
/// did the most.
fn comparable_runs<'a>(
    matrix: &Matrix,
    at: usize,
    by_cell: &BTreeMap<MatrixCell, Vec<&'a CellRun>>,
) -> BTreeMap<MatrixCell, Vec<&'a CellRun>> {
    let mine = by_cell.iter().filter(|(cell, _)| cell.workload == at);
    let mine: BTreeMap<MatrixCell, Vec<&CellRun>> =
        mine.map(|(cell, runs)| (*cell, runs.clone())).collect();
    if matrix.workloads[at].operations.is_none() {
        return mine;
    }
    let most = mine.values().flatten().map(|run| run.operations).max();
    let whole = |runs: Vec<&'a CellRun>| {
        runs.into_iter()
            .filter(|run| !run.is_short_of(most))
            .collect()
    };
    mine.into_iter()
        .map(|(cell, runs)| (cell, whole(runs)))
        .collect()
}

fn judge_workload(
    matrix: &Matrix,
    at: usize,
    rows: &[CellRow],
    by_cell: &BTreeMap<MatrixCell, Vec<&CellRun>>,
) -> WorkloadVerdict {
    let alike = comparable_runs(matrix, at, by_cell);
    let scores = |what: &dyn Fn(&CellRun) -> Option<f64>| -> Vec<CellScore> {
        alike
            .iter()
            .map(|(cell, runs)| {
                let by_block: BTreeMap<u32, f64> = runs
                    .iter()
                    .filter_map(|run| Some((run.block, what(run)?)))
                    .collect();
                let samples: Vec<f64> = by_block.values().copied().collect();
                let system = &matrix.systems[cell.system];
                CellScore {
                    names: matrix.cell_names(*cell).map(str::to_owned),
                    is_default: system.mkfs.is_empty() && system.mount.is_empty(),
                    by_block,
                    mean: mean(samples.iter().copied()),
                }
            })
            .collect()
    };
    let mine: Vec<usize> = (0..rows.len())
        .filter(|row| rows[*row].cell.workload == at)
        .collect();
    // By place: operations a second and for each joule, where both are known.
    let both: Vec<(usize, f64, f64)> = mine
        .iter()
        .filter_map(|row| {
            let joules = rows[*row].joules_per_thousand?.mean;
            Some((*row, rows[*row].rate_of_device?.mean, 1000.0 / joules))
        })
        .collect();
    let points: Vec<(f64, f64)> = both
        .iter()
        .map(|(_, rate, per_joule)| (*rate, *per_joule))
        .collect();
    let watts = mine.iter().filter_map(|row| rows[*row].watts).fold(
        None,
        |range: Option<(f64, f64)>, watts| {
            Some(range.map_or((watts, watts), |(low, high)| {
                (low.min(watts), high.max(watts))
            }))
        },
    );
    WorkloadVerdict {
        workload: matrix.workloads[at].name.clone(),
        by_rate: choose_best(&scores(&rate_on_the_clock)),
        by_device: choose_best(&scores(&CellRun::rate_of_device)),
        by_joule: choose_best(&scores(&CellRun::per_joule)),
        r: pearson_correlation(&points),
        watts,
        front: pareto_front(&points)
            .into_iter()
            .map(|at| both[at].0)
            .collect(),
        cemp: cemp_triple(&both.iter().map(|(row, ..)| &rows[*row]).collect::<Vec<_>>()),
        drift: measure_drift(at, by_cell),
    }
}

/// The drift of the first system of a workload. Blocks that lack one of its cells would compare
/// others than the rest.
fn measure_drift(at: usize, by_cell: &BTreeMap<MatrixCell, Vec<&CellRun>>) -> Option<LinearTrend> {
    let mine: Vec<_> = by_cell
        .iter()
        .filter(|(cell, _)| cell.workload == at && cell.system == 0)
        .collect();
    let mut blocks: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for run in mine
        .iter()
        .flat_map(|(_, runs)| runs.iter())
        .filter(|run| run.seconds > 0.0 && run.operations > 0)
    {
        blocks
            .entry(run.block)
            .or_default()
            .push((run.operations as f64 / run.seconds).ln());
    }
    let whole = blocks
        .into_iter()
        .filter(|(_, logs)| logs.len() == mine.len());
    let points = whole.map(|(block, logs)| (f64::from(block), mean(logs.iter().copied()).exp()));
    LinearTrend::fit_points(&points.collect::<Vec<_>>())
}

/// Between the cells with the largest AI, the least power and the best performance.
fn cemp_triple(rows: &[&CellRow]) -> Option<[Cemp; 3]> {
    let largest = |of: &dyn Fn(&CellRow) -> Option<f64>| {
        let of_row = |row: &&CellRow| of(row).unwrap_or(f64::NEG_INFINITY);
        rows.iter()
            .copied()
            .max_by(|a, b| of_row(a).total_cmp(&of_row(b)))
    };
    let point = |row: &CellRow| Some((row.joules_per_thousand?.mean, row.performance[0]));
    let a = point(largest(&|row| row.ai[0])?)?;
    let p = point(largest(&|row| row.watts.map(|watts| -watts))?)?;
    let h = point(largest(&|row| Some(row.performance[0]))?)?;
    Some([cemp_between(a, h), cemp_between(p, a), cemp_between(p, h)])
}
