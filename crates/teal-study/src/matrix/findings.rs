//! Finds everything that a matrix's runs tell, and what they cannot tell.

use super::cell_row::{CellRow, RunFigure, mean, rate_on_the_clock};
use super::decide::{BestChoice, CellScore, Cemp, cemp_between, choose_best, pareto_front};
use super::file::Matrix;
use super::order::MatrixCell;
use super::run::{CellFailure, CellRun};
use crate::statistics::{LinearTrend, median, pearson_correlation};
use std::collections::BTreeMap;

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
        let by_cell = group_by_cell(matrix, runs);
        // Rows and verdicts are drawn from the same runs.
        let (mut rows, mut short, mut loads) = (Vec::new(), Vec::new(), Vec::new());
        for (cell, runs) in &by_cell {
            rows.push(CellRow::from_runs(matrix, *cell, runs));
            short.extend(describe_shortfall(matrix, *cell, runs));
            for run in runs {
                loads.push(run.load_before);
            }
        }
        // Verdicts follow the order of the file, as the report does.
        let mut verdicts = Vec::new();
        for at in 0..matrix.workloads.len() {
            verdicts.push(judge_workload(matrix, at, &rows, &by_cell));
        }
        Self {
            runs: loads.len(),
            load: load_range(&mut loads),
            blocks: count_whole_blocks(matrix, &by_cell, failures),
            rows,
            verdicts,
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

/// Returns the least, the median and the largest load before runs: interference is told by it.
fn load_range(loads: &mut [f64]) -> Option<[f64; 3]> {
    debug_assert!(
        loads.iter().all(|load| load.is_finite()),
        "a load is a number"
    );
    if loads.is_empty() {
        return None;
    }
    // The median has sorted the loads, so that the ends are the extremes.
    let middle = median(loads);
    Some([loads[0], middle, loads[loads.len() - 1]])
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
    let mut mine = BTreeMap::new();
    for (cell, runs) in by_cell {
        if cell.workload == at {
            mine.insert(*cell, runs.clone());
        }
    }
    // Without a limit on operations all runs count, by their rate.
    if matrix.workloads[at].operations.is_none() {
        return mine;
    }
    // Runs that stopped early did less, so their caches stayed warmer.
    let most = mine.values().flatten().map(|run| run.operations).max();
    for runs in mine.values_mut() {
        runs.retain(|run| !run.is_short_of(most));
    }
    mine
}

fn judge_workload(
    matrix: &Matrix,
    at: usize,
    rows: &[CellRow],
    by_cell: &BTreeMap<MatrixCell, Vec<&CellRun>>,
) -> WorkloadVerdict {
    // Only runs of the same amount of work can be ranked.
    let alike = comparable_runs(matrix, at, by_cell);
    let scores = |figure: RunFigure| score_cells(matrix, &alike, figure);
    // The plane of both goals takes all cells that have both figures.
    let (mut both, mut points, mut watts) = (Vec::new(), Vec::new(), None);
    for (place, row) in rows.iter().enumerate() {
        if row.cell.workload != at {
            continue;
        }
        // Power is told of all cells, those without a rate included.
        watts = widened_range(watts, row.watts);
        if let (Some(joules), Some(rate)) = (row.joules_per_thousand, row.rate_of_device) {
            both.push(place);
            points.push((rate.mean, 1000.0 / joules.mean));
        }
    }
    let mut front = Vec::new();
    for point in pareto_front(&points) {
        front.push(both[point]);
    }
    let mut plane = Vec::new();
    for place in &both {
        plane.push(&rows[*place]);
    }
    WorkloadVerdict {
        workload: matrix.workloads[at].name.clone(),
        by_rate: choose_best(&scores(rate_on_the_clock)),
        by_device: choose_best(&scores(CellRun::rate_of_device)),
        by_joule: choose_best(&scores(CellRun::per_joule)),
        r: pearson_correlation(&points),
        watts,
        front,
        cemp: cemp_triple(&plane),
        drift: measure_drift(at, by_cell),
    }
}

/// Returns the runs of each cell. Runs of cells that the matrix does not have are left out.
fn group_by_cell<'a>(
    matrix: &Matrix,
    runs: &'a [CellRun],
) -> BTreeMap<MatrixCell, Vec<&'a CellRun>> {
    // Every cell has an entry, so that those without runs are listed too.
    let (mut by_cell, mut of_names) = (BTreeMap::new(), BTreeMap::new());
    for cell in matrix.cells() {
        by_cell.insert(cell, Vec::new());
        of_names.insert(matrix.cell_names(cell), cell);
    }
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
    by_cell
}

/// Counts the blocks at the beginning in which every cell that can still run has a run.
fn count_whole_blocks(
    matrix: &Matrix,
    by_cell: &BTreeMap<MatrixCell, Vec<&CellRun>>,
    failures: &[CellFailure],
) -> u32 {
    // A failed cell will have no run, so no block waits for it.
    let mut awaited = Vec::new();
    for (cell, runs) in by_cell {
        let names = matrix.cell_names(*cell);
        if !failures.iter().any(|of| of.names == names) {
            awaited.push(runs);
        }
    }
    let mut whole = 0;
    while whole < matrix.runs.most
        && !awaited.is_empty()
        && awaited
            .iter()
            .all(|runs| runs.iter().any(|run| run.block == whole))
    {
        whole += 1;
    }
    whole
}

/// Returns the scores of cells by a figure.
fn score_cells(
    matrix: &Matrix,
    alike: &BTreeMap<MatrixCell, Vec<&CellRun>>,
    figure: RunFigure,
) -> Vec<CellScore> {
    let mut scores = Vec::new();
    for (cell, runs) in alike {
        let mut by_block = BTreeMap::new();
        for run in runs {
            if let Some(known) = figure(run) {
                by_block.insert(run.block, known);
            }
        }
        let samples: Vec<f64> = by_block.values().copied().collect();
        let system = &matrix.systems[cell.system];
        scores.push(CellScore {
            names: matrix.cell_names(*cell).map(str::to_owned),
            is_default: system.mkfs.is_empty() && system.mount.is_empty(),
            by_block,
            mean: mean(&samples),
        });
    }
    scores
}

/// Returns a range of powers that includes this one, too.
fn widened_range(range: Option<(f64, f64)>, watts: Option<f64>) -> Option<(f64, f64)> {
    let Some(watts) = watts else {
        return range;
    };
    let (low, high) = range.unwrap_or((watts, watts));
    Some((low.min(watts), high.max(watts)))
}

/// Returns the drift of the first system of a workload. Blocks that lack one of its cells are left
/// out, because they would compare others than the rest.
fn measure_drift(at: usize, by_cell: &BTreeMap<MatrixCell, Vec<&CellRun>>) -> Option<LinearTrend> {
    // The first system is in every block, so it shows the machine's drift.
    let mut cells = 0;
    let mut blocks: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (cell, runs) in by_cell {
        if cell.workload != at || cell.system != 0 {
            continue;
        }
        cells += 1;
        for run in runs {
            if run.seconds > 0.0 && run.operations > 0 {
                let log_rate = (run.operations as f64 / run.seconds).ln();
                blocks.entry(run.block).or_default().push(log_rate);
            }
        }
    }
    // The mean of logarithms is the geometric mean over the schedulers.
    let mut points = Vec::new();
    for (block, logs) in blocks {
        if logs.len() == cells {
            points.push((f64::from(block), mean(&logs).exp()));
        }
    }
    LinearTrend::fit_points(&points)
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
