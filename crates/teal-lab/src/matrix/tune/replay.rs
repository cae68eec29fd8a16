//! Searches replayed on the runs of a whole matrix: how often they would have found what all runs
//! say.

use crate::cli::TuneArgs;
use crate::matrix::results::read_runs;
use anyhow::{Context, Result};
use std::path::Path;
use std::process::ExitCode;
use teal_command::say::say;
use teal_study::matrix::Matrix;
use teal_study::matrix::tune::{RecordedWorkload, TuneGoal};

/// Replays searches on the runs of a matrix, and prints how often they found the best.
pub(super) fn replay_searches(dir: &Path, args: &TuneArgs) -> Result<ExitCode> {
    let path = dir.join("matrix.toml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let matrix = Matrix::parse(&text).with_context(|| path.display().to_string())?;
    let runs = read_runs(&dir.join("runs.jsonl"))?;
    for (at, workload) in matrix.workloads.iter().enumerate() {
        // Each workload is searched on its own.
        let replay = RecordedWorkload::from_matrix(&matrix, &runs, at);
        let replay = replay
            .with_context(|| format!("{}: every cell needs two runs with joules", workload.name))?;
        for (aim, unit) in [(TuneGoal::Rate, "ops/s"), (TuneGoal::Joule, "ops/J")] {
            let trials = (0..args.seeds).map(|seed| {
                replay
                    .run_trial(aim, seed, args.part)
                    .context("--part is too small")
            });
            let trials = trials.collect::<Result<Vec<_>>>()?;
            debug_assert_eq!(trials.len() as u64, args.seeds, "each seed makes a trial");
            let ties = trials.iter().filter(|trial| trial.is_tie).count();
            // Within five percent of the best a choice is as good.
            let good = trials
                .iter()
                .filter(|trial| trial.is_tie || trial.part >= 0.95)
                .count();
            // The cost of a search is its part of all runs.
            let took: usize = trials.iter().map(|trial| trial.runs).sum();
            let worst = trials.iter().map(|trial| trial.part).fold(1.0, f64::min);
            say!(
                "{}, {unit}: {good} of {} searches found the best (a tie with it {ties}; else \
                 within 5 %), the worst {:.1} % of it, with {:.0} % of the {} runs",
                workload.name,
                args.seeds,
                worst * 100.0,
                took as f64 / args.seeds as f64 / replay.runs as f64 * 100.0,
                replay.runs
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}
