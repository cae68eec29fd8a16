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

use super::bench::{MARK, MatrixBench, end_on_signals};
use super::{scripts, versions};
use crate::cli::{AimArg, TuneArgs};
use advice::NOTHING;
use anyhow::{Result, bail};
use candidates::candidate_matrix;
use replay::replay_searches;
use std::fs::File;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use teal_command::paths;
use teal_command::say::say;
use teal_env::{Clock as _, SystemClock};
use teal_rig::ownership::{self, ResultsOwnership};
use teal_rig::path_context::PathContext as _;
use teal_study::matrix::tune::{
    MeasureAnswer, RunFigures, SearchLimits, SearchResult, TuneCandidate, TuneGoal, search_best,
};
use teal_study::matrix::{
    CellRun, FileSystemSetup, Matrix, MatrixCell, combine_options, pair_features,
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
    // The candidates are found with a disk, so the signals come first.
    let ended = end_on_signals()?;
    let matrix = candidate_matrix(args)?;
    let mut bench = MatrixBench::new(matrix, vec![sources], &kept.results, ended)?;
    bench.check_all(args.erase.as_deref(), !kept.dry_run && !kept.only_report)?;
    if bench.is_interrupted() {
        bail!("interrupted before the first run");
    }
    if kept.dry_run {
        bench.print_tune_forecast(args)?;
        return Ok(ExitCode::SUCCESS);
    }
    // A report needs the runs of an earlier command.
    if kept.only_report && !bench.results.join(MARK).exists() {
        bail!("{} has no runs to report on", bench.results.display());
    }
    let found = bench.search_and_report(args, kept.only_report, began)?;
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
            if self.is_interrupted() {
                return Ok(());
            }
            match self.try_out(&system) {
                Ok(()) => fine.push(system),
                Err(_) if self.is_interrupted() => return Ok(()),
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
        std::fs::write(&path, page).at_path(&path)
    }

    /// Finds the candidates, searches among them, and reports the result.
    fn search_and_report(
        &mut self,
        args: &TuneArgs,
        only_report: bool,
        began: Duration,
    ) -> Result<SearchResult> {
        // The search cannot measure a candidate that cannot be mounted.
        self.drop_unavailable()?;
        if self.is_interrupted() {
            bail!("interrupted before the first run; the same command begins anew");
        }
        // Combinations come last, so that the places of single file systems stay.
        let single = self.matrix.systems.len();
        self.matrix
            .systems
            .extend(combine_options(&self.matrix.systems));
        let mut runs = self.open_results(&self.matrix.to_toml())?;
        if !only_report {
            self.check_budget(args, single, &runs, began)?;
            self.prepare_runs(&runs)?;
        }
        let found = self.search_candidates(args, began, single, &mut runs)?;
        self.report_advice(&found)?;
        if self.is_interrupted() {
            bail!(
                "interrupted after {} runs; the same command goes on",
                runs.len()
            );
        }
        Ok(found)
    }

    /// Refuses a budget in which not even the first block can be run. Runs with a number of
    /// operations may end at any time, so only those of a fixed length are looked at.
    fn check_budget(
        &self,
        args: &TuneArgs,
        single: usize,
        runs: &[CellRun],
        began: Duration,
    ) -> Result<()> {
        if args.operations.is_some() {
            return Ok(());
        }
        // Runs of an earlier command cost nothing again.
        let mut missing = 0;
        for cell in self.matrix.cells() {
            if cell.system < single && self.find_run(runs, 0, cell).is_none() {
                missing += 1;
            }
        }
        let spent = SystemClock.monotonic_time().saturating_sub(began);
        let block = Duration::from_secs(missing * self.matrix.runs.seconds);
        if spent + block <= args.budget {
            return Ok(());
        }
        bail!(
            "--budget is {} s, of which {} s were spent on trying the candidates, and one block \
             takes {} s at least ({missing} runs of {} s): say a longer --budget, fewer \
             candidates (--space), or shorter runs (--seconds)",
            args.budget.as_secs(),
            spent.as_secs(),
            block.as_secs(),
            self.matrix.runs.seconds
        );
    }

    /// Searches; the first `single` file systems are no combinations.
    fn search_candidates(
        &self,
        args: &TuneArgs,
        began: Duration,
        single: usize,
        runs: &mut Vec<CellRun>,
    ) -> Result<SearchResult> {
        let candidates = self.list_candidates(single);
        let seconds = match args.operations {
            None => self.matrix.runs.seconds,
            Some(_) => 0,
        };
        let mut search = CandidateSearch {
            bench: self,
            cells: self.matrix.cells(),
            candidates: &candidates,
            runs,
            file: self.runs_file()?,
            is_tried: vec![false; self.matrix.systems.len()],
            may_run: args.kept.as_ref().is_none_or(|kept| !kept.only_report),
            began,
            budget: args.budget,
            longest: Duration::from_secs(seconds),
        };
        debug_assert_eq!(
            candidates.len(),
            search.cells.len(),
            "each cell is a candidate"
        );
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
            &mut |at, block| search.measure_candidate(at, block),
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
        debug_assert!(
            single <= systems.len(),
            "combinations come behind single systems"
        );
        let mut pairs: Vec<(&FileSystemSetup, &str)> = Vec::new();
        for cell in &cells {
            pairs.push((&systems[cell.system], &*schedulers.names[cell.scheduler]));
        }
        let mut candidates = Vec::new();
        for (features, cell) in pair_features(&pairs).into_iter().zip(&cells) {
            candidates.push(TuneCandidate {
                features,
                is_proposal: cell.system >= single,
            });
        }
        candidates
    }
}

/// Measures candidates for the search, within its budget.
struct CandidateSearch<'a> {
    bench: &'a MatrixBench,
    cells: Vec<MatrixCell>,
    candidates: &'a [TuneCandidate],
    runs: &'a mut Vec<CellRun>,
    file: File,
    /// By file system, whether it is known that it can be had.
    is_tried: Vec<bool>,
    /// Is false when only the runs of an earlier command are wanted.
    may_run: bool,
    began: Duration,
    budget: Duration,
    /// The longest run so far, with its preparation. Earlier commands have had their own budget.
    longest: Duration,
}

impl CandidateSearch<'_> {
    fn measure_candidate(&mut self, at: usize, block: u32) -> Result<MeasureAnswer> {
        let cell = self.cells[at];
        // Kept runs are replayed to the search, which then goes on where it was.
        if let Some(run) = self.bench.find_run(self.runs, block, cell) {
            self.is_tried[cell.system] = true;
            return Ok(MeasureAnswer::Run(run_figures(run)));
        }
        let spent = SystemClock.monotonic_time().saturating_sub(self.began);
        // A run that would exceed the budget is not begun.
        if !self.may_run || self.bench.is_interrupted() || spent + self.longest > self.budget {
            return Ok(MeasureAnswer::Stop);
        }
        if let Some(error) = self.try_combination(at) {
            return Ok(self.leave_out(&self.bench.matrix.systems[cell.system].name, &error));
        }
        let run = match self.bench.run_and_keep(&mut self.file, cell, block) {
            Ok(Some(run)) => run,
            Ok(None) => return Ok(MeasureAnswer::Stop),
            Err(error) => return Ok(self.leave_out("", &error)),
        };
        let took = SystemClock
            .monotonic_time()
            .saturating_sub(self.began + spent);
        self.longest = self.longest.max(took);
        say!("block {block}: {}", self.bench.run_line(&run));
        let figures = run_figures(&run);
        self.runs.push(run);
        Ok(MeasureAnswer::Run(figures))
    }

    /// Tries a combination of options before its first run, because many are impossible; returns
    /// why it is.
    fn try_combination(&mut self, at: usize) -> Option<anyhow::Error> {
        let system = self.cells[at].system;
        let is_known = std::mem::replace(&mut self.is_tried[system], true);
        if is_known || !self.candidates[at].is_proposal {
            return None;
        }
        self.bench.try_out(&self.bench.matrix.systems[system]).err()
    }

    /// Leaves a candidate out that failed. What fails after the program was told to end may have
    /// failed of that, so it is no result.
    fn leave_out(&self, name: &str, error: &anyhow::Error) -> MeasureAnswer {
        if self.bench.is_interrupted() {
            return MeasureAnswer::Stop;
        }
        let colon = if name.is_empty() { "" } else { ": " };
        say!("left out: {name}{colon}{error:#}");
        MeasureAnswer::Impossible
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
