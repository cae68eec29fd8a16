//! Replays a recorded matrix with its noise, and tells how often a search would have found the
//! result of all its runs.
//!
//! A cell's figures are the mean of its recorded runs, on a log scale, times the noise of one of
//! these runs, drawn. The operations a second and for each joule of a run stay together. Noise is
//! widened by sqrt(n / (n - 1)), as runs are nearer to their own mean than to the truth.

use super::super::{BestChoice, CellRun, CellScore, Matrix, MatrixFindings};
use super::{MeasureAnswer, RunFigures, SearchLimits, TuneCandidate, TuneGoal, search_best};
use crate::workload::RandomStream;

/// Holds one workload of a recorded matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedWorkload {
    /// System and scheduler of each candidate.
    pub names: Vec<[String; 2]>,
    cells: Vec<RecordedCell>,
    /// Number of recorded runs.
    pub runs: usize,
    /// Candidates that are the best or a tie with it, by goal.
    ties: [Vec<usize>; 2],
}

/// Holds the logarithms of a cell's means, and of each run by them.
#[derive(Debug, Clone, PartialEq)]
struct RecordedCell {
    mean: [f64; 2],
    noise: Vec<[f64; 2]>,
}

/// Holds the result of a search on a replay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchTrial {
    /// Chosen candidate.
    pub chosen: usize,
    /// Is true when the choice is the best or cannot be told from it, by all recorded runs.
    pub is_tie: bool,
    /// Figure of the choice by that of the best, by the means of all recorded runs.
    pub part: f64,
    /// Number of runs that the search took.
    pub runs: usize,
}

impl RecordedWorkload {
    /// Takes a workload of a matrix, by its place; `None` if a cell has fewer than two runs with
    /// joules.
    pub fn from_matrix(matrix: &Matrix, runs: &[CellRun], workload: usize) -> Option<Self> {
        // The verdict of the whole matrix is the truth that a search should find.
        let findings = MatrixFindings::from_runs(matrix, runs);
        let verdict = findings.verdicts.get(workload)?;
        // The cells of this workload are its candidates.
        let (mut names, mut cells, mut recorded) = (Vec::new(), Vec::new(), 0);
        for row in &findings.rows {
            if row.cell.workload != workload {
                continue;
            }
            let cell = RecordedCell::from_runs(&logs_of_cell(runs, &row.names)?)?;
            recorded += cell.noise.len();
            cells.push(cell);
            let [_, system, scheduler] = &row.names;
            names.push([system.clone(), scheduler.clone()]);
        }
        let by_rate = equally_good(verdict.by_device.as_ref()?, &names);
        let by_joule = equally_good(verdict.by_joule.as_ref()?, &names);
        Some(Self {
            names,
            cells,
            runs: recorded,
            ties: [by_rate, by_joule],
        })
    }

    /// Runs a search with noise and order by this seed, with at most this part of the recorded
    /// runs.
    pub fn run_trial(&self, aim: TuneGoal, seed: u64, part: f64) -> Option<SearchTrial> {
        let mut drawn = RandomStream::new(seed, 0x7265_706c);
        let mut measure = |at: usize, _: u32| -> Result<_, std::convert::Infallible> {
            // Rate and joules of a run are drawn together, as their errors go together.
            let RecordedCell { mean, noise } = &self.cells[at];
            let noise = noise[drawn.next_below(noise.len() as u64) as usize];
            let [rate, per_joule] = [0, 1].map(|goal| (mean[goal] + noise[goal]).exp());
            Ok(MeasureAnswer::Run(RunFigures {
                rate,
                per_joule: Some(per_joule),
            }))
        };
        // The limit is the part of the recorded runs that the user grants.
        let limits = SearchLimits {
            blocks: u32::MAX,
            runs: (self.runs as f64 * part) as usize,
        };
        let Ok(found) = search_best(
            &TuneCandidate::all_measured(self.cells.len()),
            0,
            aim,
            limits,
            seed,
            &mut measure,
        );
        let chosen = found.best?;
        let goal = usize::from(aim != TuneGoal::Rate);
        // The choice is judged by the means of all runs, which the search did not see.
        let best = self
            .cells
            .iter()
            .map(|cell| cell.mean[goal])
            .fold(f64::NEG_INFINITY, f64::max);
        Some(SearchTrial {
            chosen,
            is_tie: self.ties[goal].contains(&chosen),
            part: (self.cells[chosen].mean[goal] - best).exp(),
            runs: found.runs,
        })
    }
}

/// Returns the logarithms of both figures of a cell's runs; `None` if a run lacks one.
fn logs_of_cell(runs: &[CellRun], names: &[String; 3]) -> Option<Vec<[f64; 2]>> {
    let mut logs = Vec::new();
    for run in runs {
        if [&run.workload, &run.system, &run.scheduler] == names.each_ref() {
            // A cell with a run that lacks a figure cannot be replayed.
            logs.push([run.rate_of_device()?.ln(), run.per_joule()?.ln()]);
        }
    }
    Some(logs)
}

/// Returns the places of the best candidate and of those that cannot be told from it: they are
/// equally good answers.
fn equally_good(choice: &BestChoice, names: &[[String; 2]]) -> Vec<usize> {
    let mut places = Vec::new();
    let mut add = |score: &CellScore| {
        let [_, system, scheduler] = &score.names;
        places.extend(
            names
                .iter()
                .position(|name| [system, scheduler] == name.each_ref()),
        );
    };
    // Ties come first, as in the verdict.
    for (score, _) in &choice.ties {
        add(score);
    }
    add(&choice.best);
    places
}

impl RecordedCell {
    fn from_runs(runs: &[[f64; 2]]) -> Option<Self> {
        let n = runs.len() as f64;
        if runs.len() < 2 {
            return None;
        }
        let mean = [0, 1].map(|goal| runs.iter().map(|run| run[goal]).sum::<f64>() / n);
        // Runs are nearer to their own mean than to the truth: Bessel's correction.
        let wider = (n / (n - 1.0)).sqrt();
        Some(Self {
            mean,
            noise: runs
                .iter()
                .map(|run| [0, 1].map(|goal| (run[goal] - mean[goal]) * wider))
                .collect(),
        })
    }
}
