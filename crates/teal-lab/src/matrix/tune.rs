//! Implements `teal lab tune`: searches for the best file system, options and scheduler for a
//! workload on a device.
//!
//! The directory of results is that of a matrix (`matrix.toml` has the candidates, `runs.jsonl` the
//! runs), and `tune.md` has the result.
//!
//! # Guarantees
//! 1. A candidate that cannot be made or mounted here is left out, and named.
//! 2. The same command goes on where it was interrupted.
//! 3. Combinations of the candidates' options are candidates too. They are measured when they are
//!    likely to be the best.

mod advice;
mod candidates;
mod replay;

use super::bench::{MARK, MatrixBench};
use super::{scripts, versions};
use crate::cli::{AimArg, TuneArgs};
use advice::NOTHING;
use anyhow::{Context, Result, bail};
use candidates::candidate_matrix;
use replay::replay_searches;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;
use teal_command::paths;
use teal_command::say::say;
use teal_env::{Clock as _, SystemClock};
use teal_rig::ownership::{self, ResultsOwnership};
use teal_study::matrix::tune::{
    MeasureAnswer, RunFigures, SearchLimits, SearchResult, TuneCandidate, TuneGoal, search_best,
};
use teal_study::matrix::{
    CellRun, FileSystemSetup, Matrix, RunRules, combine_options, pair_features,
};

fn to_goal(of: AimArg) -> TuneGoal {
    match of {
        AimArg::Rate => TuneGoal::Rate,
        AimArg::Joule => TuneGoal::Joule,
        AimArg::Both => TuneGoal::Both,
    }
}

/// Runs the command.
pub(crate) fn run_tune(args: &TuneArgs) -> Result<ExitCode> {
    if let Some(dir) = &args.replay {
        return replay_searches(dir, args);
    }
    let (Some(name), Some(kept)) = (&args.workload, &args.kept) else {
        bail!("say --workload, --device and --results");
    };
    // The budget covers everything, checks included.
    let began = SystemClock.monotonic_time();
    let results = paths::absolute_path(&kept.results)?;
    ownership::check_directory(&results, MARK)?;
    let _owned = if kept.dry_run {
        None
    } else {
        Some(ResultsOwnership::claim(&results, MARK)?)
    };
    let sources = scripts::find_sources(name, Path::new("."))?;
    let mut bench = MatrixBench::new(candidate_matrix(args)?, vec![sources], &kept.results)?;
    bench.check_all(args.erase.as_deref(), !kept.dry_run && !kept.only_report)?;
    if kept.dry_run {
        bench.print_tune_forecast(args)?;
        return Ok(ExitCode::SUCCESS);
    }
    bench.end_on_signals()?;
    // A report needs the runs of an earlier command.
    if kept.only_report && !bench.results.join(MARK).exists() {
        bail!("{} has no runs to report on", bench.results.display());
    }
    // The search cannot measure a candidate that cannot be mounted.
    bench.drop_unavailable()?;
    if bench.ended.load(Ordering::Relaxed) {
        bail!("interrupted before the first run; the same command begins anew");
    }
    // Combinations come last, so that the places of single file systems stay.
    let single = bench.matrix.systems.len();
    bench
        .matrix
        .systems
        .extend(combine_options(&bench.matrix.systems));
    let text = bench.matrix.to_toml();
    let mut runs = bench.open_results(&text)?;
    if !kept.only_report {
        bench.prepare_runs(&runs)?;
    }
    let found = bench.search_candidates(args, began, single, &mut runs)?;
    bench.report_advice(&found)?;
    if bench.ended.load(Ordering::Relaxed) {
        bail!(
            "interrupted after {} runs; the same command goes on",
            runs.len()
        );
    }
    if found.best.is_none() {
        bail!("{NOTHING}");
    }
    Ok(ExitCode::SUCCESS)
}

impl MatrixBench {
    /// Leaves out file systems that cannot be made or mounted here, and those that earlier runs of
    /// this search have left out.
    fn drop_unavailable(&mut self) -> Result<()> {
        // The kept matrix makes a resumed search try the same candidates.
        if let Ok(text) = std::fs::read_to_string(self.results.join("matrix.toml"))
            && let Ok(kept) = Matrix::parse(&text)
        {
            self.matrix
                .systems
                .retain(|system| kept.systems.contains(system));
            return Ok(());
        }
        let mut fine = Vec::new();
        for system in std::mem::take(&mut self.matrix.systems) {
            if self.ended.load(Ordering::Relaxed) {
                return Ok(());
            }
            match self.try_out(&system) {
                Ok(()) => fine.push(system),
                Err(error) => say!("left out: {}: {error:#}", system.name),
            }
        }
        self.matrix.systems = fine;
        if self.matrix.systems.is_empty() {
            bail!("there is no file system to try");
        }
        Ok(())
    }

    /// Prints the advice, and writes it into the report.
    fn report_advice(&self, found: &SearchResult) -> Result<()> {
        let report = self.format_advice(found);
        if found.best.is_some() {
            report.lines().for_each(|line| say!("{line}"));
        }
        let machine = versions::version_lines(&self.results)?.join("; ");
        let page = format!("# Tuning\n\n{machine}.\n\n```text\n{report}```\n");
        let path = self.results.join("tune.md");
        std::fs::write(&path, page).with_context(|| path.display().to_string())
    }

    /// Searches; the first `single` file systems are no combinations.
    fn search_candidates(
        &self,
        args: &TuneArgs,
        began: Duration,
        single: usize,
        runs: &mut Vec<CellRun>,
    ) -> Result<SearchResult> {
        let only_report = args.kept.as_ref().is_some_and(|kept| kept.only_report);
        let cells = self.matrix.cells();
        let candidates = self.list_candidates(single);
        debug_assert_eq!(candidates.len(), cells.len(), "each cell is a candidate");
        let mut is_tried = vec![false; self.matrix.systems.len()];
        let (clock, mut file) = (SystemClock, self.runs_file()?);
        // The longest run so far, with its preparation. Earlier commands have had their own budget.
        let RunRules { seconds, .. } = self.matrix.runs;
        let mut longest = Duration::from_secs(if args.operations.is_none() {
            seconds
        } else {
            0
        });
        let mut measure = |at: usize, block: u32| -> Result<MeasureAnswer> {
            // Kept runs are replayed to the search, which then goes on where it was.
            if let Some(run) = self.find_run(runs, block, cells[at]) {
                is_tried[cells[at].system] = true;
                return Ok(MeasureAnswer::Run(run_figures(run)));
            }
            let spent = clock.monotonic_time().saturating_sub(began);
            // A run that would exceed the budget is not begun.
            if only_report || self.ended.load(Ordering::Relaxed) || spent + longest > args.budget {
                return Ok(MeasureAnswer::Stop);
            }
            let system = &self.matrix.systems[cells[at].system];
            // A combination is tried before its first run, because many are impossible.
            let is_known = std::mem::replace(&mut is_tried[cells[at].system], true);
            if candidates[at].is_proposal
                && !is_known
                && let Err(error) = self.try_out(system)
            {
                say!("left out: {}: {error:#}", system.name);
                return Ok(MeasureAnswer::Impossible);
            }
            let run = match self.run_and_keep(&mut file, cells[at], block) {
                Ok(Some(run)) => run,
                Ok(None) => return Ok(MeasureAnswer::Stop),
                Err(error) => {
                    say!("left out: {error:#}");
                    return Ok(MeasureAnswer::Impossible);
                }
            };
            longest = longest.max(clock.monotonic_time().saturating_sub(began + spent));
            say!("block {block}: {}", self.run_line(&run));
            let shown = run_figures(&run);
            runs.push(run);
            Ok(MeasureAnswer::Run(shown))
        };
        let limits = SearchLimits {
            blocks: args.blocks,
            runs: usize::MAX,
        };
        search_best(
            &candidates,
            0,
            to_goal(args.aim),
            limits,
            args.seed,
            &mut measure,
        )
    }

    /// Returns the candidates in the order of the cells.
    fn list_candidates(&self, single: usize) -> Vec<TuneCandidate> {
        let Matrix {
            systems,
            schedulers,
            ..
        } = &self.matrix;
        let cells = self.matrix.cells();
        let pairs: Vec<(&FileSystemSetup, &str)> = cells
            .iter()
            .map(|cell| (&systems[cell.system], &*schedulers.names[cell.scheduler]))
            .collect();
        let of = pair_features(&pairs).into_iter().zip(&cells);
        of.map(|(features, cell)| TuneCandidate {
            features,
            is_proposal: cell.system >= single,
        })
        .collect()
    }
}

/// Returns the figures that a run counts by: in a modelled disk's own time, or on the clock of a
/// real device.
fn run_figures(run: &CellRun) -> RunFigures {
    RunFigures {
        rate: run.rate_to_compare().unwrap_or(0.0),
        per_joule: run.per_joule(),
    }
}
