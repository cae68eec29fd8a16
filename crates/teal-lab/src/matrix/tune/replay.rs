//! Searches replayed on the runs of a whole matrix: how often they would have found what all runs
//! say.

use crate::cli::TuneArgs;
use crate::matrix::results::read_runs;
use anyhow::{Context, Result};
use std::path::Path;
use std::process::ExitCode;
use teal_command::say::say;
use teal_rig::path_context::PathContext as _;
use teal_study::matrix::Matrix;
use teal_study::matrix::tune::{RecordedWorkload, SearchTrial, TuneGoal};

/// Replays searches on the runs of a matrix, and prints how often they found the best.
pub(super) fn replay_searches(dir: &Path, args: &TuneArgs) -> Result<ExitCode> {
    let path = dir.join("matrix.toml");
    let text = std::fs::read_to_string(&path).at_path(&path)?;
    let matrix = Matrix::parse(&text).at_path(&path)?;
    let runs = read_runs(&dir.join("runs.jsonl"))?;
    for (at, workload) in matrix.workloads.iter().enumerate() {
        // Each workload is searched on its own.
        let replay = RecordedWorkload::from_matrix(&matrix, &runs, at);
        let replay = replay
            .with_context(|| format!("{}: every cell needs two runs with joules", workload.name))?;
        for (aim, unit) in [(TuneGoal::Rate, "ops/s"), (TuneGoal::Joule, "ops/J")] {
            let trials = run_trials(&replay, aim, args)?;
            say!(
                "{}, {unit}: {}",
                workload.name,
                describe_trials(&trials, &replay)
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a search with each seed.
fn run_trials(
    replay: &RecordedWorkload,
    aim: TuneGoal,
    args: &TuneArgs,
) -> Result<Vec<SearchTrial>> {
    let mut trials = Vec::new();
    for seed in 0..args.seeds {
        let trial = replay.run_trial(aim, seed, args.part);
        trials.push(trial.context("--part is too small")?);
    }
    Ok(trials)
}

/// Describes how often searches found the best, and what they cost.
fn describe_trials(trials: &[SearchTrial], replay: &RecordedWorkload) -> String {
    let (mut ties, mut good, mut took, mut worst) = (0, 0, 0, 1.0);
    for trial in trials {
        ties += usize::from(trial.is_tie);
        // Within five percent of the best a choice is as good.
        good += usize::from(trial.is_tie || trial.part >= 0.95);
        took += trial.runs;
        worst = f64::min(worst, trial.part);
    }
    let all = trials.len();
    format!(
        "{good} of {all} searches found the best (a tie with it {ties}; else within 5 %), \
         the worst {:.1} % of it, with {:.0} % of the {} runs",
        worst * 100.0,
        // The cost of a search is its part of all runs.
        took as f64 / all as f64 / replay.runs as f64 * 100.0,
        replay.runs
    )
}
