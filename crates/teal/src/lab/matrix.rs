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
//! | `owner` | who is measuring; it is there as long as somebody is ([`held`]) |
//! | `report.md`, `report.html` | what follows, made anew after every block; the page needs nothing else |
//!
//! # Guarantees
//! 1. Nothing is written to a device that is in use, nor to a real one without being told to lose what is on it.
//! 2. Each run begins on a fresh file system, on a fresh disk if that is modelled.
//! 3. Whatever is interrupted goes on with the next run; what was mounted and started for a run goes with it, or, if this program was killed, when it goes on.
//! 4. Each file system has been made and mounted once before the first run. A cell that fails ends no other.
//! 5. The runs of a file system are all on this machine's kernel, or all in guests.

mod age;
mod beforehand;
mod cell;
pub(super) mod far;
pub(super) mod ground;
mod memory;
mod meter;
pub(super) mod scripts;
mod shown;
mod tune;
pub(super) mod versions;

use super::held::{self, Held};
use super::script::Sources;
use crate::cli::lab::Matrix as Args;
use crate::say::say;
use crate::status::human;
use anyhow::{Context, Result, bail};
pub(super) use memory::groups;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use teal_study::matrix::{
    About, Cell, Failure, Findings, Matrix, Run, escaped, html, markdown, settled,
};
use teal_study::wml::Script;
use teal_study::workload::{Options, plan, preview};
pub(crate) use tune::tune;

/// Without it a directory of results is none.
const MARK: &str = "runs.jsonl";
/// Cells that came to nothing.
const FAILED: &str = "failed.jsonl";

/// A matrix with what its names stand for.
struct Bench {
    matrix: Matrix,
    /// By workload.
    scripts: Vec<Script>,
    /// The same, as text.
    sources: Vec<Sources>,
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
    let bench = Bench::new(matrix, sources, &args.kept.results)?;
    held::check(&bench.results, MARK)?;
    // Before anything is looked at: a killed run may have left the device mounted.
    let _held = if args.kept.dry_run {
        None
    } else {
        Some(Held::claim(&bench.results, MARK)?)
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

impl Bench {
    fn new(matrix: Matrix, sources: Vec<Sources>, results: &Path) -> Result<Self> {
        let scripts = sources.iter().map(Sources::script).collect::<Result<_>>()?;
        Ok(Self {
            matrix,
            scripts,
            sources,
            results: crate::paths::absolute(results)?,
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
            meter::Meter::open(of)?;
        }
        let here = (0..self.matrix.systems.len()).any(|system| !self.in_guest(system));
        if let Some(wanted) = self.matrix.runs.memory.filter(|_| here) {
            memory::check(wanted)?;
        }
        if let (Some(erase), None) = (erase, &self.matrix.device.path) {
            bail!(
                "--erase {}: this is on a modelled disk, and no device is erased; leave it out",
                erase.display()
            );
        }
        if let Some(path) = &self.matrix.device.path {
            ground::check_device(Path::new(path))?;
            if touches && erase != Some(Path::new(path)) {
                bail!("everything on {path} will be lost: say --erase {path} if that is meant");
            }
        }
        age::check_room(self)?;
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

    /// What would be done, for how long, and at what risk.
    fn describe(&self) -> Result<()> {
        let Matrix {
            device,
            runs,
            workloads,
            systems,
            schedulers,
            ..
        } = &self.matrix;
        let cells = self.matrix.cells().len() as u64;
        let [least, most] = [runs.least, runs.most].map(|blocks| u64::from(blocks) * cells);
        let (w, s, k) = (workloads.len(), systems.len(), schedulers.names.len());
        say!(
            "{w} workloads x {s} file systems x {k} schedulers: {cells} cells, {least} to {most} runs"
        );
        let hours = |runs_: u64| (runs_ * runs.seconds) as f64 / 3600.0;
        say!(
            "{:.1} to {:.1} hours of running; making files and file systems comes on top",
            hours(least),
            hours(most)
        );
        for (at, workload) in workloads.iter().enumerate() {
            let sets = preview(&plan(
                &self.scripts[at],
                self.options(at, 0, Path::new("/"))?,
            )?);
            let (files, bytes) = sets
                .iter()
                .fold((0, 0), |(f, b), set| (f + set.files, b + set.bytes));
            say!(
                "workload {}: {files} files, {}",
                workload.name,
                human(bytes)
            );
        }
        if let Some(words) = age::described(self, [least, most])? {
            say!("{words}");
        }
        for (at, system) in systems
            .iter()
            .enumerate()
            .filter(|(at, _)| self.in_guest(*at))
        {
            let why = if system.place.is_some() {
                "as it says".into()
            } else {
                format!("this kernel has no {}", systems[at].kind.name())
            };
            say!(
                "system {}: in a guest, {why}; each run takes some seconds more, and is not ranked on the clock",
                system.name
            );
        }
        match (&device.profile, &device.path) {
            (Some(profile), _) => {
                say!("on modelled disks of {profile}: no device of this machine is touched")
            }
            (_, Some(path)) => say!("on {path}: everything that is on it will be lost"),
            _ => {}
        }
        Ok(())
    }

    /// The runs that are there; the directory is made if it is not.
    fn open(&self, text: &str) -> Result<Vec<Run>> {
        std::fs::create_dir_all(&self.results)
            .with_context(|| self.results.display().to_string())?;
        // From here on it is a directory of results.
        drop(self.kept()?);
        let runs = read_runs(&self.results.join(MARK))?;
        let kept = self.results.join("matrix.toml");
        match std::fs::read_to_string(&kept) {
            Ok(there) if there == text => {}
            Ok(_) if !runs.is_empty() => {
                bail!(
                    "{} has the results of another matrix; say another --results",
                    self.results.display()
                )
            }
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(e).with_context(|| kept.display().to_string());
            }
            _ => std::fs::write(&kept, text).with_context(|| kept.display().to_string())?,
        }
        Ok(runs)
    }

    /// The run of a cell in a block, if it is there.
    fn of<'a>(&self, runs: &'a [Run], block: u32, cell: Cell) -> Option<&'a Run> {
        let names = self.matrix.names(cell);
        runs.iter()
            .find(|run| run.block == block && [&run.workload, &run.system, &run.scheduler] == names)
    }

    /// Where runs are kept.
    fn kept(&self) -> Result<File> {
        let path = self.results.join(MARK);
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| path.display().to_string())
    }

    /// Runs a cell and keeps the run; `None` if that was interrupted.
    fn run(&self, kept: &mut File, cell: Cell, block: u32) -> Result<Option<Run>> {
        let [workload, system, scheduler] = self.matrix.names(cell);
        let run = if self.in_guest(cell.system) {
            far::run(self, cell, block)
        } else {
            cell::run(self, cell, block)
        };
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

    /// Cells that came to nothing, and have not been run since.
    fn failures(&self, runs: &[Run]) -> Result<Vec<Failure>> {
        let all: Vec<Failure> = super::lines::read(&self.results.join(FAILED))?;
        let is_run = |of: &Failure| {
            runs.iter().any(|run| {
                run.block == of.block
                    && [&run.workload, &run.system, &run.scheduler] == of.names.each_ref()
            })
        };
        Ok(all.into_iter().filter(|of| !is_run(of)).collect())
    }

    fn fail(&self, cell: Cell, block: u32, error: &anyhow::Error) -> Result<()> {
        let failure = Failure {
            names: self.matrix.names(cell).map(str::to_owned),
            block,
            why: format!("{error:#}"),
        };
        let path = self.results.join(FAILED);
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let line = serde_json::to_string(&failure)?;
        file.and_then(|mut file| writeln!(file, "{line}"))
            .with_context(|| path.display().to_string())
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

    fn report(&self, runs: &[Run]) -> Result<()> {
        let findings = Findings::with(&self.matrix, runs, &self.failures(runs)?);
        let meter = match (&self.matrix.device.profile, &self.matrix.meter) {
            (Some(profile), _) => {
                format!(
                    "modelled by {profile} from the requests that reached the device, in virtual time"
                )
            }
            (None, Some(meter)) => format!("measured by {}", meter.name()),
            (None, None) => "not known: the device has no meter".to_owned(),
        };
        let name = self
            .results
            .file_name()
            .map_or("Matrix".into(), |name| name.to_string_lossy());
        let machine = versions::lines(&self.results)?;
        let erase = self
            .matrix
            .device
            .path
            .as_ref()
            .map_or(String::new(), |path| format!(" --erase {path}"));
        let commands = vec![
            format!("teal lab matrix matrix.toml --results again{erase}"),
            "teal lab compare . again".into(),
        ];
        let page = format!(
            "# {}\n\n{}.\n\n{}\n## To have it again\n\n```console\n{}\n```\n",
            escaped(&name),
            machine.join("; "),
            markdown(&self.matrix, &findings, &meter),
            commands.join("\n")
        );
        let path = self.results.join("report.md");
        std::fs::write(&path, page).with_context(|| path.display().to_string())?;
        let about = About {
            title: name.into_owned(),
            machine,
            meter,
            commands,
        };
        let beside = path.with_extension("html");
        std::fs::write(&beside, html(&self.matrix, &findings, &about))
            .with_context(|| beside.display().to_string())?;
        say!(
            "{} runs; {}, {}",
            findings.runs,
            path.display(),
            beside.display()
        );
        Ok(())
    }
}

/// What it was run on.
fn machine() -> String {
    let uname = rustix::system::uname();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{} {}, {processors} processors, TealFS {}",
        uname.sysname().to_string_lossy(),
        uname.release().to_string_lossy(),
        env!("CARGO_PKG_VERSION")
    )
}

impl Bench {
    /// A run, for people.
    fn line(&self, run: &Run) -> String {
        let workload = self
            .matrix
            .workloads
            .iter()
            .find(|of| of.name == run.workload);
        let short = run.shortfall(workload.and_then(|of| of.operations));
        shown::line(run) + &short.map_or(String::new(), |short| format!("; {short}"))
    }
}

/// Reads runs, and takes away a last line that is not whole.
pub(super) fn read_runs(path: &Path) -> Result<Vec<Run>> {
    let runs: Vec<Run> = super::lines::read(path)?;
    if let Some(at) = runs.iter().position(|run| run.version != Run::VERSION) {
        bail!(
            "{}, line {}: version {} is not known here",
            path.display(),
            at + 1,
            runs[at].version
        );
    }
    Ok(runs)
}
