//! Finds everything that a matrix's runs tell, and what they cannot tell.

use super::decide::{BestChoice, CellScore, Cemp, cemp_between, choose_best, pareto_front};
use super::file::Matrix;
use super::order::MatrixCell;
use super::run::{CellFailure, CellRun};
use crate::statistics::{ConfidenceInterval, LinearTrend, median, pearson_correlation};
use std::collections::BTreeMap;

/// Holds a cell's figures.
#[derive(Debug, Clone, PartialEq)]
pub struct CellRow {
    /// Cell by its places in the matrix.
    pub cell: MatrixCell,
    /// Names of the cell: workload, system, scheduler.
    pub names: [String; 3],
    /// Number of runs.
    pub runs: usize,
    /// Number of runs that were steady on the clock.
    pub steady: usize,
    /// Operations a second on the clock, of the steady runs.
    pub rate: Option<ConfidenceInterval>,
    /// Operations for each second that the device worked.
    pub rate_of_device: Option<ConfidenceInterval>,
    /// Joules for each thousand operations, run and drain.
    pub joules_per_thousand: Option<ConfidenceInterval>,
    /// Part of the joules that the drain took.
    pub drained: f64,
    /// Watts while the device worked.
    pub watts: Option<f64>,
    /// Performance in its three forms: operations for each second that the device worked, MB/s of
    /// it, and the reciprocal of the mean latency in seconds.
    pub performance: [f64; 3],
    /// AI in these forms: performance by the joules of a thousand operations.
    pub ai: [Option<f64>; 3],
    /// Is true when the device was hardly needed.
    pub is_of_memory: bool,
    /// Seconds and watts of the first run that has them.
    pub power: Vec<[f64; 2]>,
    /// Kernel of the guest it ran in. The clock of a guest tells nothing.
    pub guest: Option<String>,
}

/// Says which cells are best for a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadVerdict {
    /// Name of the workload.
    pub workload: String,
    /// Best by operations a second on the clock; `None` if not steady, or too few runs.
    pub by_rate: Option<BestChoice>,
    /// Best by operations for each second that the device worked.
    pub by_device: Option<BestChoice>,
    /// Best by operations for each joule.
    pub by_joule: Option<BestChoice>,
    /// Pearson's r between operations for each joule and operations for each second that the device
    /// worked, over its cells.
    pub r: Option<f64>,
    /// Lowest and highest power of its cells, in watts.
    pub watts: Option<(f64, f64)>,
    /// Pareto front: cells that no other beats in both goals, by their places in
    /// [`MatrixFindings::rows`].
    pub front: Vec<usize>,
    /// Cemp from the largest AI to the best performance, from the least power to the largest AI,
    /// and from the least power to the best performance.
    pub cemp: Option<[Cemp; 3]>,
    /// Drift of the machine: operations a second on the clock of the first system, over all
    /// schedulers, from the first block to the last.
    pub drift: Option<LinearTrend>,
}

/// Holds all findings of a matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct MatrixFindings {
    /// Figures of each cell in the order of the file, without runs too.
    pub rows: Vec<CellRow>,
    /// Conclusions for each workload.
    pub verdicts: Vec<WorkloadVerdict>,
    /// Number of all runs.
    pub runs: usize,
    /// Number of blocks that have every cell.
    pub blocks: u32,
    /// Least, median and largest number of processes that wanted to run before runs began, by the
    /// load of the minute before.
    pub load: Option<[f64; 3]>,
    /// Cells that failed.
    pub failures: Vec<CellFailure>,
    /// Runs that ended before the number of operations that was asked for: one of each cell, with
    /// the number of its runs that did.
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

/// Returns the interval of several samples, or the figure of a single one with an unknown interval.
fn interval_or_single(samples: &[f64]) -> Option<ConfidenceInterval> {
    ConfidenceInterval::from_samples(samples).or_else(|| {
        samples.first().map(|mean| ConfidenceInterval {
            n: 1,
            mean: *mean,
            half_width: f64::INFINITY,
        })
    })
}

/// Returns the rate of a run that was steady on a clock that all runs share.
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
        // The steady runs alone count on the clock, all runs by the device's time.
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
        // A cell without runs has zeros: no division may make an infinity of them.
        let by = |x: f64, y: f64| if y > 0.0 { x / y } else { 0.0 };
        // Three forms of performance, as in the study.
        let performance = [
            rate_of_device.map_or(0.0, |rate| rate.mean),
            by(bytes / 1e6, busy),
            by(1.0, latency),
        ];
        Self {
            cell,
            names: matrix.cell_names(cell).map(str::to_owned),
            // One row holds the means of all runs of the cell.
            runs: runs.len(),
            steady: steady.len(),
            rate: interval_or_single(&of(&rate_on_the_clock)),
            rate_of_device,
            joules_per_thousand: per_thousand,
            drained: by(mean(runs.iter().map(|run| run.drain.joules)), joules),
            watts: (busy > 0.0 && joules > 0.0).then(|| joules / busy),
            performance,
            ai: [0, 1, 2].map(|form| {
                // The third form is latency, which the clock of a guest distorts.
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
    /// Returns the findings of these runs of a matrix, if no cell failed.
    pub fn from_runs(matrix: &Matrix, runs: &[CellRun]) -> Self {
        Self::from_runs_and_failures(matrix, runs, &[])
    }

    /// Returns the findings of these runs of a matrix. Runs of cells that the matrix does not have
    /// are left out, and failed cells are not waited for.
    pub fn from_runs_and_failures(
        matrix: &Matrix,
        runs: &[CellRun],
        failures: &[CellFailure],
    ) -> Self {
        let cells = matrix.cells();
        // Every cell has an entry, so that those without runs are listed too.
        let mut by_cell: BTreeMap<MatrixCell, Vec<&CellRun>> =
            cells.iter().map(|cell| (*cell, Vec::new())).collect();
        let of_names: BTreeMap<[&str; 3], MatrixCell> = cells
            .iter()
            .map(|cell| (matrix.cell_names(*cell), *cell))
            .collect();
        // Runs are matched by their names: the file may have been reordered since.
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
        // Rows and verdicts are drawn from the same runs.
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
        // A block is whole when every cell that can still run has a run in it.
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
        // Interference is told by the load before runs.
        let mut loads: Vec<f64> = by_cell
            .values()
            .flatten()
            .map(|run| run.load_before)
            .collect();
        debug_assert!(
            loads.iter().all(|load| load.is_finite()),
            "a load is a number"
        );
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

    /// Returns the widest relative interval of the cells. It is that of joules, or of rates where
    /// there are none; `None` while a cell has fewer than two runs.
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

/// Returns a line on a cell with runs that did too few operations: the first of these runs, and
/// their number.
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

/// Returns the runs of a workload that did the same amount of work: if some did less than was asked
/// for, only those that did the most.
fn comparable_runs<'a>(
    matrix: &Matrix,
    at: usize,
    by_cell: &BTreeMap<MatrixCell, Vec<&'a CellRun>>,
) -> BTreeMap<MatrixCell, Vec<&'a CellRun>> {
    let mine = by_cell.iter().filter(|(cell, _)| cell.workload == at);
    let mine: BTreeMap<MatrixCell, Vec<&CellRun>> =
        mine.map(|(cell, runs)| (*cell, runs.clone())).collect();
    // Without a limit on operations all runs count, by their rate.
    if matrix.workloads[at].operations.is_none() {
        return mine;
    }
    // Runs that stopped early did less, so their caches stayed warmer.
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
    // Only runs of the same amount of work can be ranked.
    let alike = comparable_runs(matrix, at, by_cell);
    let scores = |figure: CellFigure| score_cells(matrix, &alike, figure);
    // The plane of both goals takes all cells that have both figures.
    let mine: Vec<usize> = (0..rows.len())
        .filter(|row| rows[*row].cell.workload == at)
        .collect();
    // Operations a second and for each joule of each cell for which both are known.
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
    let watts = watts_range(mine.iter().filter_map(|row| rows[*row].watts));
    WorkloadVerdict {
        workload: matrix.workloads[at].name.clone(),
        by_rate: choose_best(&scores(rate_on_the_clock)),
        by_device: choose_best(&scores(CellRun::rate_of_device)),
        by_joule: choose_best(&scores(CellRun::per_joule)),
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

/// Gives one figure of a run.
type CellFigure = fn(&CellRun) -> Option<f64>;

/// Returns the scores of cells by a figure.
fn score_cells(
    matrix: &Matrix,
    alike: &BTreeMap<MatrixCell, Vec<&CellRun>>,
    figure: CellFigure,
) -> Vec<CellScore> {
    alike
        .iter()
        .map(|(cell, runs)| {
            let by_block: BTreeMap<u32, f64> = runs
                .iter()
                .filter_map(|run| Some((run.block, figure(run)?)))
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
}

/// Returns the least and the largest of some powers.
fn watts_range(all: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    all.fold(None, |range: Option<(f64, f64)>, watts| {
        let (low, high) = range.unwrap_or((watts, watts));
        Some((low.min(watts), high.max(watts)))
    })
}

/// Returns the drift of the first system of a workload. Blocks that lack one of its cells are left
/// out, because they would compare others than the rest.
fn measure_drift(at: usize, by_cell: &BTreeMap<MatrixCell, Vec<&CellRun>>) -> Option<LinearTrend> {
    // The first system is in every block, so it shows the machine's drift.
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
    // The mean of logarithms is the geometric mean over the schedulers.
    let whole = blocks
        .into_iter()
        .filter(|(_, logs)| logs.len() == mine.len());
    let points = whole.map(|(block, logs)| (f64::from(block), mean(logs.iter().copied()).exp()));
    LinearTrend::fit_points(&points.collect::<Vec<_>>())
}

/// Returns Cemp between the cells with the largest AI, the least power and the best performance.
fn cemp_triple(rows: &[&CellRow]) -> Option<[Cemp; 3]> {
    let largest = |of: &dyn Fn(&CellRow) -> Option<f64>| {
        let of_row = |row: &&CellRow| of(row).unwrap_or(f64::NEG_INFINITY);
        rows.iter()
            .copied()
            .max_by(|a, b| of_row(a).total_cmp(&of_row(b)))
    };
    let point = |row: &CellRow| Some((row.joules_per_thousand?.mean, row.performance[0]));
    // AI is a ratio, power is to be small, performance is to be large.
    let a = point(largest(&|row| row.ai[0])?)?;
    let p = point(largest(&|row| row.watts.map(|watts| -watts))?)?;
    let h = point(largest(&|row| Some(row.performance[0]))?)?;
    Some([cemp_between(a, h), cemp_between(p, a), cemp_between(p, h)])
}
