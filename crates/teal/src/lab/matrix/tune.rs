//! `teal lab tune`: searches for the file system, options and scheduler that are best for a workload on a device.
//!
//! The directory of results is that of a matrix (`matrix.toml`: the candidates; `runs.jsonl`), and `tune.md`: what was found.
//!
//! # Guarantees
//! 1. What cannot be made or mounted here is left out, and said.
//! 2. The same command goes on where it was interrupted.
//! 3. Combinations of the candidates' options are candidates, too, and measured when they are likely to be the best.

use super::super::guest;
use super::super::held::{self, Held};
use super::ground::{self, Ground};
use super::{Bench, MARK, age, scripts, versions};
use crate::cli::lab::{Aim, Tune as Args};
use crate::cli::parse_size;
use crate::say::{quoted, say};
use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;
use teal_env::{Clock as _, SystemClock};
use teal_study::matrix::tune::{
    self as search, Answer, Candidate, Found, Limits, Measured, Replay, search,
};
use teal_study::matrix::{
    Cache, Device, Kind, Matrix, Place, Run, Runs, Schedulers, System, Workload,
};
use teal_study::matrix::{combinations, features, risk, space};
use teal_study::statistics::Comparison;

/// What there is to say without a whole block.
const NOTHING: &str = "not even one block was whole: say a longer --budget, fewer candidates (--space), or shorter runs";

fn aim(of: Aim) -> search::Aim {
    match of {
        Aim::Rate => search::Aim::Rate,
        Aim::Joule => search::Aim::Joule,
        Aim::Both => search::Aim::Both,
    }
}

/// Runs the command.
pub(crate) fn tune(args: &Args) -> Result<ExitCode> {
    if let Some(dir) = &args.replay {
        return replay(dir, args);
    }
    let (Some(name), Some(kept)) = (&args.workload, &args.kept) else {
        bail!("say --workload, --device and --results");
    };
    let began = SystemClock.monotonic();
    let results = crate::paths::absolute(&kept.results)?;
    held::check(&results, MARK)?;
    let _held = if kept.dry_run {
        None
    } else {
        Some(Held::claim(&results, MARK)?)
    };
    let sources = scripts::sources(name, Path::new("."))?;
    let mut bench = Bench::new(wanted(args)?, vec![sources], &kept.results)?;
    bench.check(args.erase.as_deref(), !kept.dry_run && !kept.only_report)?;
    if kept.dry_run {
        bench.forecast(args)?;
        return Ok(ExitCode::SUCCESS);
    }
    bench.listen()?;
    if kept.only_report && !bench.results.join(MARK).exists() {
        bail!("{} has no runs to report on", bench.results.display());
    }
    bench.narrow()?;
    if bench.ended.load(Ordering::Relaxed) {
        bail!("interrupted before the first run; the same command begins anew");
    }
    let single = bench.matrix.systems.len();
    bench
        .matrix
        .systems
        .extend(combinations(&bench.matrix.systems));
    let text = bench.matrix.text();
    let mut runs = bench.open(&text)?;
    if !kept.only_report {
        bench.begin(&runs)?;
    }
    let found = bench.seek(args, began, single, &mut runs)?;
    let report = bench.advice(&found);
    if found.best.is_some() {
        report.lines().for_each(|line| say!("{line}"));
    }
    let machine = versions::lines(&bench.results)?.join("; ");
    let page = format!("# Tuning\n\n{machine}.\n\n```text\n{report}```\n");
    let path = bench.results.join("tune.md");
    std::fs::write(&path, page).with_context(|| path.display().to_string())?;
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

/// The candidates as a matrix.
fn wanted(args: &Args) -> Result<Matrix> {
    let device = args.device.as_deref().unwrap_or_default();
    let device = match device.rsplit_once(':') {
        Some((profile, size)) if !device.starts_with('/') => {
            let size = parse_size(size).map_err(|e| anyhow::anyhow!("--device {device}: {e}"))?;
            Device {
                profile: Some(profile.to_owned()),
                path: None,
                size: Some(size),
            }
        }
        _ if device.starts_with('/') => Device {
            profile: None,
            path: Some(device.to_owned()),
            size: None,
        },
        _ => bail!(
            "--device {device}: a device has a path, a modelled disk a size, as in desktop-7200rpm-composed:4G"
        ),
    };
    let (systems, schedulers) = match &args.space {
        Some(file) => {
            let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
            let matrix = Matrix::parse(&text).with_context(|| file.display().to_string())?;
            (matrix.systems, matrix.schedulers)
        }
        None => (
            systems(args)?,
            Schedulers {
                names: schedulers(&device)?,
            },
        ),
    };
    let runs = Runs {
        least: 1,
        most: args.blocks,
        within: 0.05,
        seed: args.seed,
        scale: args.scale,
        seconds: args.seconds,
        cache: Cache::Cold,
        memory: args.memory,
        aged: args.aged,
    };
    let workload = args.workload.clone().unwrap_or_default();
    let name = Path::new(&workload)
        .file_stem()
        .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let set = args
        .set
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let workload = Workload {
        name,
        script: workload,
        set,
        operations: args.operations,
    };
    Matrix::new(device, runs, vec![workload], systems, schedulers).context("what is to be tried")
}

/// What can be had here with its options: on this machine's kernel, or all of it in guests.
fn systems(args: &Args) -> Result<Vec<System>> {
    if !args.guests {
        let here = |kind: &Kind| ground::check_kind(*kind).is_ok();
        return Ok(space(
            &Kind::ALL.iter().copied().filter(here).collect::<Vec<_>>(),
            args.risky,
        ));
    }
    guest::check(Kind::Ext4)?;
    let there = |kind: &Kind| !kind.is_ours() && guest::check(*kind).is_ok();
    let mut all = space(
        &Kind::ALL.iter().copied().filter(there).collect::<Vec<_>>(),
        args.risky,
    );
    all.iter_mut()
        .for_each(|system| system.place = Some(Place::Guest));
    Ok(all)
}

/// The schedulers of a device, the one it is under first. Modelled disks have those that loop devices have.
fn schedulers(device: &Device) -> Result<Vec<String>> {
    if let Some(path) = &device.path {
        return Ground::real(Path::new(path))?.schedulers();
    }
    let (profile, size) = (
        device.profile.as_deref().unwrap_or_default(),
        device.size.unwrap_or(0),
    );
    super::super::shipped(profile)?;
    Ground::modelled(profile, size)?.schedulers()
}

fn at_risk(system: &System) -> String {
    risk(system).map_or(String::new(), |risk| format!(" (at a risk: {risk})"))
}

impl Bench {
    /// What would be tried, and whether that fits into the time.
    fn forecast(&self, args: &Args) -> Result<()> {
        let Matrix {
            systems,
            schedulers,
            runs,
            ..
        } = &self.matrix;
        let all = systems.len() * schedulers.names.len();
        say!(
            "{all} candidates: {} file systems under {}",
            systems.len(),
            schedulers.names.join(", ")
        );
        for (at, system) in systems.iter().enumerate() {
            say!(
                "  {}{}{}",
                system.name,
                at_risk(system),
                if self.in_guest(at) {
                    " (in a guest)"
                } else {
                    ""
                }
            );
        }
        let all = all as u64;
        let (block, budget) = (all * runs.seconds, args.budget.as_secs());
        let most = if args.operations.is_some() {
            "at most "
        } else {
            ""
        };
        say!(
            "the first block: {all} runs, {most}{block} s of running, making files and file systems on top; --budget is {budget} s"
        );
        if block > budget && args.operations.is_none() {
            say!("that is more than --budget: not even one block would be whole");
        }
        if let Some(words) = age::described(self, [all, all * u64::from(args.blocks)])? {
            say!("{words}, if the budget allows for so many");
        }
        let more = combinations(systems).len() * schedulers.names.len();
        say!(
            "and {more} combinations of their options, of which those are measured that promise most"
        );
        Ok(())
    }

    /// Leaves out what cannot be made or mounted here. What earlier runs of this search have left out, too.
    fn narrow(&mut self) -> Result<()> {
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

    /// `single`: so many file systems are no combinations.
    fn seek(
        &self,
        args: &Args,
        began: Duration,
        single: usize,
        runs: &mut Vec<Run>,
    ) -> Result<Found> {
        let only_report = args.kept.as_ref().is_some_and(|kept| kept.only_report);
        let cells = self.matrix.cells();
        let candidates = self.candidates(single);
        let mut is_tried = vec![false; self.matrix.systems.len()];
        let (clock, mut file) = (SystemClock, self.kept()?);
        // The longest so far, trial included; what was run before has had its time.
        let Runs { seconds, .. } = self.matrix.runs;
        let mut longest = Duration::from_secs(if args.operations.is_none() {
            seconds
        } else {
            0
        });
        let mut measure = |at: usize, block: u32| -> Result<Answer> {
            if let Some(run) = self.of(runs, block, cells[at]) {
                is_tried[cells[at].system] = true;
                return Ok(Answer::Run(measured(run)));
            }
            let spent = clock.monotonic().saturating_sub(began);
            if only_report || self.ended.load(Ordering::Relaxed) || spent + longest > args.budget {
                return Ok(Answer::Stop);
            }
            let system = &self.matrix.systems[cells[at].system];
            let is_known = std::mem::replace(&mut is_tried[cells[at].system], true);
            if candidates[at].is_proposal
                && !is_known
                && let Err(error) = self.try_out(system)
            {
                say!("left out: {}: {error:#}", system.name);
                return Ok(Answer::Impossible);
            }
            let run = match self.run(&mut file, cells[at], block) {
                Ok(Some(run)) => run,
                Ok(None) => return Ok(Answer::Stop),
                Err(error) => {
                    say!("left out: {error:#}");
                    return Ok(Answer::Impossible);
                }
            };
            longest = longest.max(clock.monotonic().saturating_sub(began + spent));
            say!("block {block}: {}", self.line(&run));
            let shown = measured(&run);
            runs.push(run);
            Ok(Answer::Run(shown))
        };
        let limits = Limits {
            blocks: args.blocks,
            runs: usize::MAX,
        };
        search(
            &candidates,
            0,
            aim(args.aim),
            limits,
            args.seed,
            &mut measure,
        )
    }

    /// What may be measured, in the order of the cells.
    fn candidates(&self, single: usize) -> Vec<Candidate> {
        let Matrix {
            systems,
            schedulers,
            ..
        } = &self.matrix;
        let cells = self.matrix.cells();
        let pairs: Vec<(&System, &str)> = cells
            .iter()
            .map(|cell| (&systems[cell.system], &*schedulers.names[cell.scheduler]))
            .collect();
        let of = features(&pairs).into_iter().zip(&cells);
        of.map(|(features, cell)| Candidate {
            features,
            is_proposal: cell.system >= single,
        })
        .collect()
    }

    /// What to do, and what that brings.
    fn advice(&self, found: &Found) -> String {
        let cells = self.matrix.cells();
        let mut out = String::new();
        let Some(best) = found.best else {
            return format!("{NOTHING}\n");
        };
        let name = |at: usize| {
            let [_, system, scheduler] = self.matrix.names(cells[at]);
            format!("{system} under {scheduler}")
        };
        let met = found
            .standings
            .iter()
            .filter(|of| !of.runs.is_empty())
            .count();
        let (runs, blocks, all) = (found.runs, found.blocks, cells.len());
        let _ = writeln!(
            out,
            "{runs} runs of {met} candidates of {all}, {blocks} whole blocks"
        );
        let _ = writeln!(
            out,
            "best for {}: {}",
            self.matrix.workloads[0].name,
            name(best)
        );
        let system = &self.matrix.systems[cells[best].system];
        let scheduler = &self.matrix.schedulers.names[cells[best].scheduler];
        for command in commands(system, scheduler, self.matrix.device.path.as_deref()) {
            let _ = writeln!(out, "  {command}");
        }
        if let Some(risk) = risk(system) {
            let _ = writeln!(out, "at a risk: {risk}");
        }
        if self.in_guest(cells[best].system) {
            let _ = writeln!(
                out,
                "it ran in a guest, on another kernel: this machine's needs to have {}",
                system.kind.name()
            );
        }
        if best == found.reference {
            let is_plain = system.mkfs.is_empty() && system.mount.is_empty();
            let what = if is_plain {
                "what one has without options"
            } else {
                "the first candidate, which all others are told by"
            };
            let _ = writeln!(out, "nothing to change: that is {what}");
        } else {
            for (gain, what) in found
                .gain()
                .into_iter()
                .zip(["operations a second", "operations for each joule"])
            {
                let Some(gain) = gain else { continue };
                let _ = writeln!(
                    out,
                    "{} times the {what} of {}",
                    by(&gain),
                    name(found.reference)
                );
            }
        }
        for (at, of) in found.ties() {
            let _ = writeln!(
                out,
                "not to be told from it: {}{} ({})",
                name(at),
                at_risk(&self.matrix.systems[cells[at].system]),
                by(&of)
            );
        }
        out
    }
}

/// What a run of a cell counts by: a modelled disk's own time, the clock on a real device.
fn measured(run: &Run) -> Measured {
    Measured {
        rate: run.rate_to_compare().unwrap_or(0.0),
        per_joule: run.per_joule(),
    }
}

fn by(of: &Comparison) -> String {
    format!(
        "{:.2} (95 %: {:.2} to {:.2}, {} blocks)",
        of.ratio, of.low, of.high, of.n
    )
}

/// What a person types to have it. Where the device is modelled, they put the name of theirs in.
fn commands(system: &System, scheduler: &str, device: Option<&str>) -> Vec<String> {
    let device = device.unwrap_or("/dev/sdX");
    let name = device.rsplit('/').next().unwrap_or(device);
    let args = system
        .format()
        .iter()
        .map(|arg| quoted(arg))
        .collect::<Vec<_>>()
        .join(" ");
    let options = if system.mount.is_empty() {
        String::new()
    } else {
        format!(" -o {}", system.mount)
    };
    let [mkfs, mount] = if system.kind.is_ours() {
        [
            format!("teal mkfs {args} {device}"),
            format!("teal mount{options} {device} DIR"),
        ]
    } else {
        let kind = system.kind.name();
        [
            format!("mkfs.{kind} {args} {device}"),
            format!("mount -t {kind}{options} {device} DIR"),
        ]
    };
    vec![
        mkfs,
        format!("echo {scheduler} > /sys/block/{name}/queue/scheduler"),
        mount,
    ]
}

/// How often a search would have found what all runs of a matrix say.
fn replay(dir: &Path, args: &Args) -> Result<ExitCode> {
    let path = dir.join("matrix.toml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let matrix = Matrix::parse(&text).with_context(|| path.display().to_string())?;
    let runs = super::read_runs(&dir.join("runs.jsonl"))?;
    for (at, workload) in matrix.workloads.iter().enumerate() {
        let replay = Replay::of(&matrix, &runs, at);
        let replay = replay
            .with_context(|| format!("{}: every cell needs two runs with joules", workload.name))?;
        for (aim, what) in [(search::Aim::Rate, "ops/s"), (search::Aim::Joule, "ops/J")] {
            let trials = (0..args.seeds).map(|seed| {
                replay
                    .trial(aim, seed, args.part)
                    .context("--part is too small")
            });
            let trials = trials.collect::<Result<Vec<_>>>()?;
            let ties = trials.iter().filter(|trial| trial.is_tie).count();
            let good = trials
                .iter()
                .filter(|trial| trial.is_tie || trial.part >= 0.95)
                .count();
            let took: usize = trials.iter().map(|trial| trial.runs).sum();
            let worst = trials.iter().map(|trial| trial.part).fold(1.0, f64::min);
            say!(
                "{}, {what}: {good} of {} searches found the best (a tie with it {ties}; else within 5 %), the worst {:.1} % of it, with {:.0} % of the {} runs",
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
