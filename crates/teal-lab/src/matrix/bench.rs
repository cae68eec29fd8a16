//! Runs a matrix: resolves its names, checks its needs, and runs its blocks.

use super::{room, scripts, versions};
use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use teal_command::paths;
use teal_command::say::say;
use teal_rig::meter::PowerMeter;
use teal_rig::sources::ScriptSources;
use teal_rig::{memory_limit, testbed};
use teal_study::matrix::{CellRun, Matrix, MatrixCell, MatrixFindings, is_settled};
use teal_study::wml::WorkloadScript;
use teal_study::workload::{WorkloadOptions, plan_script};

/// Marks a directory of results.
pub(super) const MARK: &str = "runs.jsonl";
/// File of the cells that failed.
pub(super) const FAILED: &str = "failed.jsonl";

/// Returns a flag that is set when the program is told to end. It ends then after what it has
/// begun, so that no disk is left; the checks before the first run start one, too.
pub(super) fn end_on_signals() -> Result<Arc<AtomicBool>> {
    let ended = Arc::default();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&ended)).context("signals")?;
    }
    Ok(ended)
}

/// Holds a matrix, and everything that its names stand for.
pub(super) struct MatrixBench {
    pub(super) matrix: Matrix,
    /// Script of each workload.
    pub(super) scripts: Vec<WorkloadScript>,
    /// Text of each script.
    pub(super) sources: Vec<ScriptSources>,
    pub(super) results: PathBuf,
    pub(super) ended: Arc<AtomicBool>,
}

impl MatrixBench {
    /// Takes a matrix with its scripts. `ended` is set when the program is told to end.
    pub(super) fn new(
        matrix: Matrix,
        sources: Vec<ScriptSources>,
        results: &Path,
        ended: Arc<AtomicBool>,
    ) -> Result<Self> {
        debug_assert_eq!(
            matrix.workloads.len(),
            sources.len(),
            "each workload has its script"
        );
        let scripts = sources
            .iter()
            .map(ScriptSources::parse_script)
            .collect::<Result<_>>()?;
        Ok(Self {
            matrix,
            scripts,
            sources,
            results: paths::absolute_path(results)?,
            ended,
        })
    }

    /// Prepares the first run: looks into the guest, if one is needed, and keeps a description of
    /// everything that runs are made with from now on.
    pub(super) fn prepare_runs(&self, runs: &[CellRun]) -> Result<()> {
        // Kernels must not be mixed: their requests and clocks differ.
        for (at, system) in self.matrix.systems.iter().enumerate() {
            let was = runs
                .iter()
                .find(|run| run.system == system.name)
                .map(|run| run.guest.is_some());
            if was.is_some_and(|was| was != self.in_guest(at)) {
                let [then, now] = if was == Some(true) {
                    ["in a guest", "here"]
                } else {
                    ["here", "in a guest"]
                };
                bail!(
                    "system {} ran {then} so far and would run {now} now; say another --results",
                    system.name
                );
            }
        }
        scripts::keep_scripts(&self.results, &self.matrix, &self.sources, !runs.is_empty())?;
        let guest = self.guest_kernel()?;
        // An interrupted look into the guest tells nothing worth keeping.
        if self.is_interrupted() {
            return Ok(());
        }
        versions::keep_versions(&self.results, &self.matrix, guest)
    }

    /// Checks that all needs are met; and, if the device is to be touched, that its content may be
    /// lost.
    pub(super) fn check_all(&self, erase: Option<&Path>, touches: bool) -> Result<()> {
        // Each script is planned with its variables, so that faults are found now.
        for at in 0..self.scripts.len() {
            plan_script(&self.scripts[at], self.run_options(at, 0, Path::new("/"))?)
                .with_context(|| format!("workload {}", self.matrix.workloads[at].name))?;
        }
        for (at, system) in self.matrix.systems.iter().enumerate() {
            self.check_system(at)
                .with_context(|| format!("system {}", system.name))?;
        }
        // A dry run may be made while the meter is in use.
        if let Some(of) = &self.matrix.meter
            && touches
        {
            PowerMeter::open(of)?;
        }
        let here = (0..self.matrix.systems.len()).any(|system| !self.in_guest(system));
        if let Some(wanted) = self.matrix.runs.memory
            && here
        {
            memory_limit::check_limit(wanted)?;
        }
        self.check_erasure(erase, touches)?;
        room::check_room(self)?;
        self.check_disk()
    }

    /// Checks that the user has repeated the name of a real device that will be erased, so that a
    /// typing error costs no data.
    fn check_erasure(&self, erase: Option<&Path>, touches: bool) -> Result<()> {
        let Some(path) = &self.matrix.device.path else {
            if let Some(erase) = erase {
                bail!(
                    "--erase {}: this is on a modelled disk, and no device is erased; leave it out",
                    erase.display()
                );
            }
            return Ok(());
        };
        testbed::check_device(Path::new(path))?;
        if touches && erase != Some(Path::new(path)) {
            bail!("everything on {path} will be lost: say --erase {path} if that is meant");
        }
        Ok(())
    }

    pub(super) fn run_options(
        &self,
        workload: usize,
        block: u32,
        dir: &Path,
    ) -> Result<WorkloadOptions> {
        debug_assert!(
            workload < self.matrix.workloads.len(),
            "the matrix has this workload"
        );
        let runs = &self.matrix.runs;
        let of = &self.matrix.workloads[workload];
        // Variables may be written with or without the dollar sign.
        let pair = |set: &String| {
            let (name, value) = set
                .split_once('=')
                .context("checked when the matrix was read")?;
            Ok((name.trim_start_matches('$').to_owned(), value.to_owned()))
        };
        Ok(WorkloadOptions {
            seconds: Some(runs.seconds),
            operations: of.operations,
            scale: runs.scale,
            seed: self.matrix.block_seed(block),
            set: of.set.iter().map(pair).collect::<Result<_>>()?,
            ..WorkloadOptions::new(dir)
        })
    }

    /// Returns the run of a cell in a block, if it exists.
    pub(super) fn find_run<'a>(
        &self,
        runs: &'a [CellRun],
        block: u32,
        cell: MatrixCell,
    ) -> Option<&'a CellRun> {
        let names = self.matrix.cell_names(cell);
        runs.iter()
            .find(|run| run.block == block && [&run.workload, &run.system, &run.scheduler] == names)
    }

    /// Runs a cell and keeps the run; returns `None` if it was interrupted.
    pub(super) fn run_and_keep(
        &self,
        kept: &mut File,
        cell: MatrixCell,
        block: u32,
    ) -> Result<Option<CellRun>> {
        let [workload, system, scheduler] = self.matrix.cell_names(cell);
        let run = self.measure_cell(cell, block);
        let Some(run) =
            run.with_context(|| format!("workload {workload} on {system} under {scheduler}"))?
        else {
            return Ok(None);
        };
        // The line is synced: a run may have taken hours.
        let line = serde_json::to_string(&run)?;
        writeln!(kept, "{line}")
            .and_then(|()| kept.sync_data())
            .context("runs.jsonl")?;
        Ok(Some(run))
    }

    /// Runs blocks until their intervals are narrow enough, or there are enough.
    pub(super) fn run_blocks(&self, runs: &mut Vec<CellRun>) -> Result<()> {
        let mut file = self.runs_file()?;
        // Cells that failed before are tried again, and those that fail now are not.
        let _ = std::fs::remove_file(self.results.join(FAILED));
        let mut failed = BTreeSet::new();
        for block in 0..self.matrix.runs.most {
            // One block less is not enough to judge by.
            if block >= self.matrix.runs.least && self.is_decided(runs)? {
                say!(
                    "every interval is within {:.1} % of its mean",
                    self.matrix.runs.within * 100.0
                );
                return Ok(());
            }
            let cells = self.open_cells(block, runs, &failed);
            for (at, cell) in cells.iter().enumerate() {
                let place = format!("block {block}, {} of {}", at + 1, cells.len());
                match self.run_cell(&mut file, *cell, block)? {
                    CellEnd::Measured(run) => {
                        say!("{place}: {}", self.run_line(&run));
                        runs.push(*run);
                    }
                    // A cell that fails ends no other, and is not tried again by this command.
                    CellEnd::Failed(error) => {
                        say!("{place}: failed: {error:#}");
                        failed.insert(*cell);
                    }
                    CellEnd::Interrupted => return Ok(()),
                }
            }
            if !cells.is_empty() {
                // The report follows each block, so that it can be read while the runs go on.
                self.write_report(runs)?;
            }
        }
        Ok(())
    }

    /// Returns whether the runs so far are enough to judge by.
    fn is_decided(&self, runs: &[CellRun]) -> Result<bool> {
        let failures = self.unresolved_failures(runs)?;
        let findings = MatrixFindings::from_runs_and_failures(&self.matrix, runs, &failures);
        Ok(is_settled(&self.matrix, &findings))
    }

    /// Returns the cells of a block that are still to be run: a resumed block runs only those that
    /// it lacks.
    fn open_cells(
        &self,
        block: u32,
        runs: &[CellRun],
        failed: &BTreeSet<MatrixCell>,
    ) -> Vec<MatrixCell> {
        let mut cells = self.matrix.cells_in_block(block);
        cells.retain(|cell| !failed.contains(cell) && self.find_run(runs, block, *cell).is_none());
        cells
    }

    /// Runs a cell, and keeps its run or its failure. What fails after the program was told to end
    /// may have failed of that, so it is no result.
    fn run_cell(&self, kept: &mut File, cell: MatrixCell, block: u32) -> Result<CellEnd> {
        if self.is_interrupted() {
            return Ok(CellEnd::Interrupted);
        }
        match self.run_and_keep(kept, cell, block) {
            Ok(Some(run)) => Ok(CellEnd::Measured(Box::new(run))),
            Ok(None) => Ok(CellEnd::Interrupted),
            Err(_) if self.is_interrupted() => Ok(CellEnd::Interrupted),
            Err(error) => {
                self.keep_failure(cell, block, &error)?;
                Ok(CellEnd::Failed(error))
            }
        }
    }

    /// Returns whether this program was told to end.
    pub(super) fn is_interrupted(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

/// Says how the run of a cell came to its end.
enum CellEnd {
    Measured(Box<CellRun>),
    Failed(anyhow::Error),
    Interrupted,
}
