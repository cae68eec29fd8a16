//! Sums up the runs of a cell of a matrix.

use super::file::Matrix;
use super::order::MatrixCell;
use super::run::{CellRun, DeviceUse};
use crate::statistics::ConfidenceInterval;

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

/// Gives one figure of a run, if the run has it.
pub(super) type RunFigure = fn(&CellRun) -> Option<f64>;

/// Returns the mean; 0 if there is nothing.
pub(super) fn mean(of: &[f64]) -> f64 {
    if of.is_empty() {
        return 0.0;
    }
    of.iter().sum::<f64>() / of.len() as f64
}

/// Returns a figure of all runs that have it.
fn figures_of(runs: &[&CellRun], figure: RunFigure) -> Vec<f64> {
    let mut figures = Vec::new();
    for run in runs {
        figures.extend(figure(run));
    }
    figures
}

/// Returns the interval of several samples, or the figure of a single one with an unknown interval.
fn interval_or_single(samples: &[f64]) -> Option<ConfidenceInterval> {
    if let Some(interval) = ConfidenceInterval::from_samples(samples) {
        return Some(interval);
    }
    let mean = *samples.first()?;
    Some(ConfidenceInterval {
        n: 1,
        mean,
        half_width: f64::INFINITY,
    })
}

/// Returns the rate of a run that was steady on a clock that all runs share.
pub(super) fn rate_on_the_clock(run: &CellRun) -> Option<f64> {
    if run.guest.is_some() {
        return None;
    }
    rate_if_steady(run)
}

fn rate_if_steady(run: &CellRun) -> Option<f64> {
    run.steady_from?;
    Some(run.rate)
}

fn joules_per_thousand(run: &CellRun) -> Option<f64> {
    Some(1000.0 / run.per_joule()?)
}

/// Divides figures of a cell. One without runs has zeros: no division may make an infinity of
/// them.
fn ratio_or_zero(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Holds the means of what a cell's runs did and cost.
struct MeanUse {
    joules: f64,
    busy: f64,
    drained_joules: f64,
    bytes: f64,
    latency_seconds: f64,
}

impl MeanUse {
    fn from_runs(runs: &[&CellRun]) -> Self {
        // Run and drain together: what a run leaves to be written is part of its cost.
        let total = |figure: fn(&DeviceUse) -> f64| {
            let mut all = Vec::new();
            for run in runs {
                all.push(figure(&run.total_use()));
            }
            mean(&all)
        };
        Self {
            joules: total(|spent| spent.joules),
            busy: total(|spent| spent.busy),
            drained_joules: mean(&figures_of(runs, |run| Some(run.drain.joules))),
            bytes: mean(&figures_of(runs, |run| Some(run.bytes as f64))),
            latency_seconds: mean(&figures_of(runs, |run| Some(run.latency_ms[0]))) / 1e3,
        }
    }

    /// Returns the three forms of performance, as in the study.
    fn performance(&self, rate_of_device: Option<ConfidenceInterval>) -> [f64; 3] {
        [
            rate_of_device.map_or(0.0, |rate| rate.mean),
            ratio_or_zero(self.bytes / 1e6, self.busy),
            ratio_or_zero(1.0, self.latency_seconds),
        ]
    }
}

impl CellRow {
    /// Sums up the runs of a cell.
    pub(super) fn from_runs(matrix: &Matrix, cell: MatrixCell, runs: &[&CellRun]) -> Self {
        // Means over all runs, the unsteady included: the device did that work, too.
        let spent = MeanUse::from_runs(runs);
        let rate_of_device = interval_or_single(&figures_of(runs, CellRun::rate_of_device));
        let joules = interval_or_single(&figures_of(runs, joules_per_thousand));
        let performance = spent.performance(rate_of_device);
        // All runs of a file system are in guests, or none is.
        let guest = runs.iter().find_map(|run| run.guest.clone());
        Self {
            cell,
            names: matrix.cell_names(cell).map(str::to_owned),
            runs: runs.len(),
            // The steady runs alone count on the clock, all runs by the device's time.
            steady: figures_of(runs, rate_if_steady).len(),
            rate: interval_or_single(&figures_of(runs, rate_on_the_clock)),
            rate_of_device,
            joules_per_thousand: joules,
            drained: ratio_or_zero(spent.drained_joules, spent.joules),
            watts: (spent.busy > 0.0 && spent.joules > 0.0).then(|| spent.joules / spent.busy),
            performance,
            ai: efficiencies(performance, joules, guest.is_some()),
            power: first_power(runs),
            guest,
            is_of_memory: !runs.is_empty() && runs.iter().all(|run| run.is_of_memory()),
        }
    }
}

/// Returns AI in the three forms of performance. The third form is latency, which the clock of a
/// guest distorts.
fn efficiencies(
    performance: [f64; 3],
    joules: Option<ConfidenceInterval>,
    in_guest: bool,
) -> [Option<f64>; 3] {
    let Some(joules) = joules else {
        return [None; 3];
    };
    // Each form is divided by the joules of the same number of operations.
    let [of_device, of_bytes, of_latency] = performance.map(|form| Some(form / joules.mean));
    [
        of_device,
        of_bytes,
        if in_guest { None } else { of_latency },
    ]
}

/// Returns the power over time of the first run that has it.
fn first_power(runs: &[&CellRun]) -> Vec<[f64; 2]> {
    for run in runs {
        if !run.power.is_empty() {
            return run.power.clone();
        }
    }
    Vec::new()
}
