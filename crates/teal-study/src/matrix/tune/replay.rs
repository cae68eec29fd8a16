//! A recorded matrix, replayed with its noise: how often would a search have found what all of its
//! runs say?
//!
//! A cell's figures are the mean of its recorded runs, on a log scale, times the noise of one of
//! these runs, drawn; the operations a second and for each joule of a run stay together. Noise is
//! widened by sqrt(n / (n - 1)), as runs are nearer to their own mean than to the truth.

use super::super::{CellRun, Matrix, MatrixFindings};
use super::{MeasureAnswer, RunFigures, SearchLimits, TuneCandidate, TuneGoal, search_best};
use crate::workload::RandomStream;

/// One workload of a recorded matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedWorkload {
    /// By candidate: system and scheduler.
    pub names: Vec<[String; 2]>,
    cells: Vec<RecordedCell>,
    /// Runs that were recorded.
    pub runs: usize,
    /// By goal: which candidates are the best, or a tie with it.
    ties: [Vec<usize>; 2],
}

/// A cell: logarithms of means, and of each run by them.
#[derive(Debug, Clone, PartialEq)]
struct RecordedCell {
    mean: [f64; 2],
    noise: Vec<[f64; 2]>,
}

/// What a search did on a replay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchTrial {
    /// What it has chosen.
    pub chosen: usize,
    /// That is the best or cannot be told from it, by all recorded runs.
    pub is_tie: bool,
    /// What it chose by the best, by the means of all recorded runs.
    pub part: f64,
    /// Runs that it took.
    pub runs: usize,
}

impl RecordedWorkload {
    /// A workload of a matrix, by its place; `None` if a cell has fewer than two runs with joules.
    pub fn from_matrix(matrix: &Matrix, runs: &[CellRun], workload: usize) -> Option<Self> {
        let findings = MatrixFindings::from_runs(matrix, runs);
        let verdict = findings.verdicts.get(workload)?;
        let rows: Vec<_> = findings
            .rows
            .iter()
            .filter(|row| row.cell.workload == workload)
            .collect();
        let names: Vec<[String; 2]> = rows
            .iter()
            .map(|row| [row.names[1].clone(), row.names[2].clone()])
            .collect();
        let cells = rows.iter().map(|row| {
            let mine = runs
                .iter()
                .filter(|run| [&run.workload, &run.system, &run.scheduler] == row.names.each_ref());
            let logs = mine.map(|run| Some([run.rate_of_device()?.ln(), run.per_joule()?.ln()]));
            RecordedCell::from_runs(&logs.collect::<Option<Vec<_>>>()?)
        });
        let cells = cells.collect::<Option<Vec<_>>>()?;
        let ties = [&verdict.by_device, &verdict.by_joule].map(|choice| {
            let choice = choice.as_ref()?;
            let mut names = choice
                .ties
                .iter()
                .map(|(score, _)| score)
                .chain([&choice.best])
                .map(|score| &score.names);
            Some(
                names
                    .by_ref()
                    .filter_map(|of| rows.iter().position(|row| row.names == *of))
                    .collect(),
            )
        });
        let [Some(by_rate), Some(by_joule)] = ties else {
            return None;
        };
        let runs = cells.iter().map(|cell| cell.noise.len()).sum();
        Some(Self {
            names,
            cells,
            runs,
            ties: [by_rate, by_joule],
        })
    }

    /// A search with noise and order by this seed, with at most this part of the recorded runs.
    pub fn run_trial(&self, aim: TuneGoal, seed: u64, part: f64) -> Option<SearchTrial> {
        let mut drawn = RandomStream::new(seed, 0x7265_706c);
        let mut measure = |at: usize, _: u32| -> Result<_, std::convert::Infallible> {
            let RecordedCell { mean, noise } = &self.cells[at];
            let noise = noise[drawn.next_below(noise.len() as u64) as usize];
            let [rate, per_joule] = [0, 1].map(|goal| (mean[goal] + noise[goal]).exp());
            Ok(MeasureAnswer::Run(RunFigures {
                rate,
                per_joule: Some(per_joule),
            }))
        };
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

impl RecordedCell {
    fn from_runs(runs: &[[f64; 2]]) -> Option<Self> {
        let n = runs.len() as f64;
        if runs.len() < 2 {
            return None;
        }
        let mean = [0, 1].map(|goal| runs.iter().map(|run| run[goal]).sum::<f64>() / n);
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
