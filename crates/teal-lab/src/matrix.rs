//! `teal lab matrix`: runs a matrix of workloads, file systems and schedulers, and says what to take.
//!
//! # The directory of results
//! | file | what |
//! |---|---|
//! | `matrix.toml` | the matrix as it was when the first run began; another one is refused |
//! | `runs.jsonl` | one run a line; a line that was cut off in the middle is taken away |
//! | `failed.jsonl` | one cell a line that came to nothing, and why; the next command tries them again |
//! | `scripts.json` | the scripts of the workloads, with what they load; another one is refused |
//! | `versions.json` | kernels and programs that made the runs |
//! | `owner` | who is measuring; it is there as long as somebody is ([`ownership`]) |
//! | `report.md`, `report.html` | what follows, made anew after every block; the page needs nothing else |
//!
//! # Guarantees
//! 1. Nothing is written to a device that is in use, nor to a real one without being told to lose what is on it.
//! 2. Each run begins on a fresh file system, on a fresh disk if that is modelled.
//! 3. Whatever is interrupted goes on with the next run; what was mounted and started for a run goes with it, or, if this program was killed, when it goes on.
//! 4. Each file system has been made and mounted once before the first run. A cell that fails ends no other.
//! 5. The runs of a file system are all on this machine's kernel, or all in guests.

mod beforehand;
mod forecast;
mod measure;
mod report;
mod results;
mod room;
pub(crate) mod scripts;
mod tune;
pub(crate) mod versions;

pub(crate) use results::read_runs;
pub(crate) use tune::tune;

use crate::cli::Matrix as Args;
use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use teal_command::paths;
use teal_command::say::say;
use teal_rig::meter::Meter;
use teal_rig::ownership::{self, ResultsOwnership};
use teal_rig::sources::ScriptSources;
use teal_rig::{memory_limit, testbed};
use teal_study::matrix::{Cell, Findings, Matrix, Run, settled};
use teal_study::wml::Script;
use teal_study::workload::{Options, plan};

/// Without it a directory of results is none.
const MARK: &str = "runs.jsonl";
/// Cells that came to nothing.
const FAILED: &str = "failed.jsonl";

/// A matrix with what its names stand for.
struct MatrixBench {
    matrix: Matrix,
    /// By workload.
    scripts: Vec<Script>,
    /// The same, as text.
    sources: Vec<ScriptSources>,
    results: PathBuf,
    ended: Arc<AtomicBool>,
}

/// Runs the command.
pub(crate) fn matrix(args: &Args) -> Result<ExitCode> {
    let name = args.file.display();
    let text = std::fs::read_to_string(&args.file).with_context(|| name.to_string())?;
    let matrix = Matrix::parse(&text).with_context(|| name.to_string())?;
    let beside = args.file.parent().unwrap_or(Path::new("."));
    let sources = scripts::of(&matrix, beside)?;
    let bench = MatrixBench::new(matrix, sources, &args.kept.results)?;
    ownership::check(&bench.results, MARK)?;
    // Before anything is looked at: a killed run may have left the device mounted.
    let _owned = if args.kept.dry_run {
        None
    } else {
        Some(ResultsOwnership::claim(&bench.results, MARK)?)
    };
    // A report takes nothing of what runs take.
    if !args.kept.only_report {
        bench.check(args.erase.as_deref(), !args.kept.dry_run)?;
    }
    if args.kept.dry_run {
        bench.describe()?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut runs = bench.open(&text)?;
    if !args.kept.only_report {
        bench.listen()?;
        bench.begin(&runs)?;
        bench.try_all(&runs)?;
        bench.go_on(&mut runs)?;
    }
    bench.report(&runs)?;
    if bench.ended.load(Ordering::Relaxed) {
        bail!(
            "interrupted after {} runs; the same command goes on",
            runs.len()
        );
    }
    let failures = bench.failures(&runs)?;
    if !args.kept.only_report && !failures.is_empty() {
        let lines: Vec<String> = failures
            .iter()
            .map(|of| format!("{}: {}", of.names.join(", "), of.why))
            .collect();
        bail!(
            "{} cells failed, and the same command tries them again: {}",
            failures.len(),
            lines.join("; ")
        );
    }
    Ok(ExitCode::SUCCESS)
}

impl MatrixBench {
    fn new(matrix: Matrix, sources: Vec<ScriptSources>, results: &Path) -> Result<Self> {
        let scripts = sources
            .iter()
            .map(ScriptSources::script)
            .collect::<Result<_>>()?;
        Ok(Self {
            matrix,
            scripts,
            sources,
            results: paths::absolute(results)?,
            ended: Arc::default(),
        })
    }

    /// Before the first run: the guest is looked into, if one is needed, and what runs are made with from now on is kept.
    fn begin(&self, runs: &[Run]) -> Result<()> {
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
        scripts::keep(&self.results, &self.matrix, &self.sources, !runs.is_empty())?;
        let guest = self.guest_kernel()?;
        if self.ended.load(Ordering::Relaxed) {
            Ok(())
        } else {
            versions::keep(&self.results, &self.matrix, guest)
        }
    }

    /// Ends with the run that is on its way when the program is told to end.
    fn listen(&self) -> Result<()> {
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&self.ended)).context("signals")?;
        }
        Ok(())
    }

    /// Whether everything is there that it takes; and, if the device is to be touched, whether what is on it may go.
    fn check(&self, erase: Option<&Path>, touches: bool) -> Result<()> {
        for at in 0..self.scripts.len() {
            plan(&self.scripts[at], self.options(at, 0, Path::new("/"))?)
                .with_context(|| format!("workload {}", self.matrix.workloads[at].name))?;
        }
        for (at, system) in self.matrix.systems.iter().enumerate() {
            self.check_system(at)
                .with_context(|| format!("system {}", system.name))?;
        }
        if let Some(of) = self.matrix.meter.as_ref().filter(|_| touches) {
            Meter::open(of)?;
        }
        let here = (0..self.matrix.systems.len()).any(|system| !self.in_guest(system));
        if let Some(wanted) = self.matrix.runs.memory.filter(|_| here) {
            memory_limit::check(wanted)?;
        }
        if let (Some(erase), None) = (erase, &self.matrix.device.path) {
            bail!(
                "--erase {}: this is on a modelled disk, and no device is erased; leave it out",
                erase.display()
            );
        }
        if let Some(path) = &self.matrix.device.path {
            testbed::check_device(Path::new(path))?;
            if touches && erase != Some(Path::new(path)) {
                bail!("everything on {path} will be lost: say --erase {path} if that is meant");
            }
        }
        room::check_room(self)?;
        self.check_disk()
    }

    fn options(&self, workload: usize, block: u32, dir: &Path) -> Result<Options> {
        let runs = &self.matrix.runs;
        let of = &self.matrix.workloads[workload];
        let pair = |set: &String| {
            let (name, value) = set
                .split_once('=')
                .context("checked when the matrix was read")?;
            Ok((name.trim_start_matches('$').to_owned(), value.to_owned()))
        };
        Ok(Options {
            seconds: Some(runs.seconds),
            operations: of.operations,
            scale: runs.scale,
            seed: self.matrix.seed(block),
            set: of.set.iter().map(pair).collect::<Result<_>>()?,
            ..Options::new(dir)
        })
    }

    /// The run of a cell in a block, if it is there.
    fn of<'a>(&self, runs: &'a [Run], block: u32, cell: Cell) -> Option<&'a Run> {
        let names = self.matrix.names(cell);
        runs.iter()
            .find(|run| run.block == block && [&run.workload, &run.system, &run.scheduler] == names)
    }

    /// Runs a cell and keeps the run; `None` if that was interrupted.
    fn run(&self, kept: &mut File, cell: Cell, block: u32) -> Result<Option<Run>> {
        let [workload, system, scheduler] = self.matrix.names(cell);
        let run = self.measure(cell, block);
        let Some(run) =
            run.with_context(|| format!("workload {workload} on {system} under {scheduler}"))?
        else {
            return Ok(None);
        };
        let line = serde_json::to_string(&run)?;
        writeln!(kept, "{line}")
            .and_then(|()| kept.sync_data())
            .context("runs.jsonl")?;
        Ok(Some(run))
    }

    /// Blocks until their intervals are narrow enough, or there are enough.
    fn go_on(&self, runs: &mut Vec<Run>) -> Result<()> {
        let mut file = self.kept()?;
        // Whatever failed before is tried again, and what fails now is not.
        let _ = std::fs::remove_file(self.results.join(FAILED));
        let mut failed = BTreeSet::new();
        for block in 0..self.matrix.runs.most {
            let findings = || {
                Ok::<_, anyhow::Error>(Findings::with(&self.matrix, runs, &self.failures(runs)?))
            };
            if block >= self.matrix.runs.least && settled(&self.matrix, &findings()?) {
                say!(
                    "every interval is within {:.1} % of its mean",
                    self.matrix.runs.within * 100.0
                );
                return Ok(());
            }
            let is_open =
                |cell: &Cell| !failed.contains(cell) && self.of(runs, block, *cell).is_none();
            let cells: Vec<Cell> = self
                .matrix
                .block(block)
                .into_iter()
                .filter(is_open)
                .collect();
            for (at, cell) in cells.iter().enumerate() {
                if self.ended.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let run = match self.run(&mut file, *cell, block) {
                    Ok(Some(run)) => run,
                    Ok(None) => return Ok(()),
                    Err(error) => {
                        say!(
                            "block {block}, {} of {}: failed: {error:#}",
                            at + 1,
                            cells.len()
                        );
                        self.fail(*cell, block, &error)?;
                        failed.insert(*cell);
                        continue;
                    }
                };
                say!(
                    "block {block}, {} of {}: {}",
                    at + 1,
                    cells.len(),
                    self.line(&run)
                );
                runs.push(run);
            }
            if !cells.is_empty() {
                self.report(runs)?;
            }
        }
        Ok(())
    }
}
