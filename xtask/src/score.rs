//! `cargo xtask score`: what every policy spends on working days made of recorded sessions, beside
//! the floor and the bound.
//!
//! Every figure is modelled, by the profiles it names. Use `cargo run --release -p xtask -- score`.

use anyhow::{Context, Result, ensure};
use clap::builder::PossibleValuesParser;
use std::path::Path;
use std::time::Duration;
use teal_energy::profile::Kind;
use teal_energy::sim::Report;
use teal_study::days::{Session, day};
use teal_study::replay::{Assumptions, Machine, NAMED, Named, Scene, Share, TIMES};
use teal_study::score::Score;
use teal_trace::Reader;

#[cfg(test)]
mod tests;

/// Days on which policies were tuned, and days on which they are scored.
const TUNING: &[u64] = &[1, 2, 3];
const SCORED: &[u64] = &[11, 12, 13, 14];
/// Rounds of prices, and in a short run.
const ROUNDS: (usize, usize) = (60, 20);
/// Percent of the files that flash holds in the morning.
const WARM: u8 = 70;

/// Computes what policies spend on working days, beside the bound.
#[derive(Debug, clap::Args)]
pub(crate) struct Plan {
    /// One day instead of all, and fewer rounds of prices
    #[arg(long = "short")]
    is_short: bool,
    /// The days on which policies were tuned
    #[arg(long = "tuning")]
    is_tuning: bool,
    /// What each device spent, too
    #[arg(long = "account")]
    is_account: bool,
    /// Only the policies, without the bound
    #[arg(long = "policies")]
    is_of_policies: bool,
    /// Rounds of prices [default: 60, with --short 20]
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Machines; all, if none is named
    #[arg(value_name = "MACHINE", value_parser = PossibleValuesParser::new(NAMED.iter().map(|(name, ..)| *name)))]
    machines: Vec<String>,
}

/// Runs the command: `false` if something is below what it was.
pub(crate) fn run(plan: &Plan) -> Result<bool> {
    let names = &plan.machines;
    let rounds = if plan.is_short { ROUNDS.1 } else { ROUNDS.0 };
    let mut seeds = if plan.is_tuning { TUNING } else { SCORED };
    if plan.is_short {
        seeds = &seeds[..1];
    }
    let known: Vec<&str> = NAMED.iter().map(|(name, ..)| *name).collect();
    let sessions = sessions(&crate::root().join("crates/teal-study/days"))?;
    for name in known
        .iter()
        .filter(|known| names.is_empty() || names.iter().any(|name| name == **known))
    {
        let mut modelled = None;
        for seed in seeds {
            let scene = scene(name, &sessions, *seed, habits(name))?;
            if plan.is_of_policies {
                policies(*seed, name, &scene, plan.is_account);
                continue;
            }
            let score = Score::of(&scene, plan.rounds.unwrap_or(rounds))?;
            modelled.get_or_insert_with(|| {
                println!(
                    "\n{name}, modelled by {}",
                    scene.machine.profiles().join(", ")
                );
            });
            print(*seed, &scene, &score);
            if plan.is_account {
                score
                    .runs
                    .iter()
                    .for_each(|run| account(&run.policy, &run.report, &scene));
                account("(foresight)", &score.feasible, &scene);
            }
        }
    }
    Ok(true)
}

fn sessions(dir: &Path) -> Result<Vec<Session>> {
    let mut found: Vec<_> = std::fs::read_dir(dir)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    found.retain(|path| path.extension().is_some_and(|extension| extension == "zst"));
    found.sort();
    ensure!(
        !found.is_empty(),
        "no sessions in {}; cargo xtask days records them",
        dir.display()
    );
    let read = |path: &std::path::PathBuf| {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let kind = name.split('-').next().unwrap_or_default().to_owned();
        let bytes = zstd::decode_all(&*std::fs::read(path)?)?;
        let items = Reader::new(&*bytes)?
            .collect::<Result<_, _>>()
            .with_context(|| name.clone())?;
        Ok(Session { kind, items })
    };
    found.iter().map(read).collect()
}

/// Hours and page cache of a machine's day.
fn habits(name: &str) -> (u64, u64) {
    match name {
        "handheld" => (4, 32 << 20),
        "home-server" => (12, 256 << 20),
        _ => (8, 512 << 20),
    }
}

fn scene(
    name: &str,
    sessions: &[Session],
    seed: u64,
    (hours, memory): (u64, u64),
) -> Result<Scene> {
    let items = day(sessions, Duration::from_secs(hours * 3600), seed);
    let mut machine = Machine::named(name).context("it is known")?;
    for part in machine
        .parts
        .iter_mut()
        .filter(|part| part.device.kind == Kind::Flash)
    {
        part.holds = Share {
            files: WARM,
            attributes: true,
        };
    }
    let assumptions = Assumptions {
        memory,
        ..Assumptions::default()
    };
    Ok(Scene::of(items.into_iter().map(Ok), machine, &assumptions)?)
}

fn times(thousandths: u64) -> String {
    format!("{}.{:02}", thousandths / 1000, thousandths % 1000 / 10)
}

fn percent(thousandths: u64) -> String {
    format!("{}.{} %", thousandths / 10, thousandths % 10)
}

fn print(seed: u64, scene: &Scene, score: &Score) {
    println!(
        "day {seed}: {} events at the devices; floor {}, bound {}, with foresight {} (gap {})",
        scene.trace.events().len(),
        score.floor,
        score.least,
        score.feasible.total(),
        percent(score.gap()),
    );
    println!(
        "  {:<16} {:>11} {:>7} {:>7} {:>8} {:>9} {:>7} {:>12} {:>7} {:>7}",
        "policy",
        "energy",
        "E-f/o-f",
        "E/o",
        "saved",
        "of o's",
        "added",
        "cold",
        "starts",
        "refused"
    );
    for run in &score.runs {
        row(&run.policy, &run.report, score);
    }
    row("(foresight)", &score.feasible, score);
}

/// What every policy spends, and every fixed time-out, without the bound, which takes most of the
/// time.
fn policies(seed: u64, name: &str, scene: &Scene, has_account: bool) {
    println!(
        "{name}, day {seed}: {} events at the devices",
        scene.trace.events().len()
    );
    let all = Named::ALL.into_iter().chain(TIMES.map(Named::TimeOut));
    for run in all.map(|named| scene.run(&named)) {
        println!(
            "  {:<16} {:>11} {:>7} starts",
            run.policy,
            run.report.total().to_string(),
            starts(&run.report)
        );
        if has_account {
            account(&run.policy, &run.report, scene);
        }
    }
}

/// Starts of what wears by them.
fn starts(report: &Report) -> u64 {
    report
        .devices
        .iter()
        .filter(|device| device.cycles > 0)
        .map(|device| device.starts)
        .sum()
}

/// What a run spent, by device and use: in all, and how often.
fn account(name: &str, report: &Report, scene: &Scene) {
    println!(
        "  {name}: {} while somebody waited {}",
        report.waited, report.waiting
    );
    for (part, device) in scene.machine.parts.iter().zip(&report.devices) {
        let uses = device.uses().map(|(what, entry)| {
            format!(
                "{what} {} in {} ({})",
                entry.energy(),
                entry.time,
                entry.count
            )
        });
        let (label, all, reads) = (&part.label, device.ledger.total(), device.reads);
        println!(
            "    {label}: {all}, {reads} reads, {} starts; {}",
            device.starts,
            uses.collect::<Vec<_>>().join(", ")
        );
    }
}

fn row(name: &str, report: &Report, score: &Score) {
    let (saved, of) = score.saved(report);
    let cold = format!(
        "{} {}",
        report.cold.len(),
        report.cold.iter().copied().sum::<teal_types::Span>()
    );
    let starts = starts(report);
    let refused: u64 = report.devices.iter().map(|device| device.refused).sum();
    println!(
        "  {name:<16} {:>11} {:>7} {:>7} {:>8} {:>9} {:>7} {cold:>12} {starts:>7} {refused:>7}",
        report.total().to_string(),
        times(score.above_floor(report)),
        times(score.of_least(report)),
        percent(saved),
        percent(of),
        percent(score.added(report)),
    );
}
