//! `cargo xtask score`: what every policy spends on working days made of recorded sessions, beside
//! the floor and the bound.
//!
//! Every figure is modelled, by the profiles it names. Use `cargo run --release -p xtask -- score`.

use anyhow::{Context, Result, ensure};
use clap::builder::PossibleValuesParser;
use std::path::Path;
use std::time::Duration;
use teal_energy::profile::DeviceKind;
use teal_energy::sim::SimulationReport;
use teal_study::days::{RecordedSession, compose_day};
use teal_study::replay::{
    InitialShare, ModelledMachine, NAMED_MACHINES, NamedPolicy, PreparedReplay, ReplayAssumptions,
    TIME_OUTS,
};
use teal_study::score::DayScore;
use teal_trace::TraceReader;

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
pub(crate) struct ScoreArguments {
    /// One day instead of all, and fewer rounds of prices
    #[arg(long = "short")]
    is_short: bool,
    /// The days on which policies were tuned
    #[arg(long = "tuning")]
    is_tuning: bool,
    /// Also the energy of each device, by use
    #[arg(long = "account")]
    is_account: bool,
    /// Only the policies, without the bound
    #[arg(long = "policies")]
    is_of_policies: bool,
    /// Rounds of prices [default: 60, with --short 20]
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Machines; all, if none is named
    #[arg(
        value_name = "MACHINE",
        value_parser = PossibleValuesParser::new(NAMED_MACHINES.iter().map(|(name, ..)| *name))
    )]
    machines: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(plan: &ScoreArguments) -> Result<bool> {
    let names = &plan.machines;
    let rounds = if plan.is_short { ROUNDS.1 } else { ROUNDS.0 };
    let mut seeds = if plan.is_tuning { TUNING } else { SCORED };
    if plan.is_short {
        seeds = &seeds[..1];
    }
    let known: Vec<&str> = NAMED_MACHINES.iter().map(|(name, ..)| *name).collect();
    let sessions =
        read_sessions(&crate::workspace::workspace_root().join("crates/teal-study/days"))?;
    for name in known
        .iter()
        .filter(|known| names.is_empty() || names.iter().any(|name| name == **known))
    {
        // The heading is printed once, before the first day.
        let mut modelled = None;
        for seed in seeds {
            let scene = make_scene(name, &sessions, *seed, day_habits(name))?;
            if plan.is_of_policies {
                print_policies(*seed, name, &scene, plan.is_account);
                continue;
            }
            let score = DayScore::for_replay(&scene, plan.rounds.unwrap_or(rounds))?;
            modelled.get_or_insert_with(|| {
                println!(
                    "\n{name}, modelled by {}",
                    scene.machine.profile_names().join(", ")
                );
            });
            print_score(*seed, &scene, &score);
            if plan.is_account {
                score
                    .runs
                    .iter()
                    .for_each(|run| print_account(&run.policy, &run.report, &scene));
                print_account("(foresight)", &score.feasible, &scene);
            }
        }
    }
    Ok(true)
}

fn read_sessions(dir: &Path) -> Result<Vec<RecordedSession>> {
    let mut found: Vec<_> = std::fs::read_dir(dir)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    // Only recordings: the scripts lie in the same directory.
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
        let items = TraceReader::new(&*bytes)?
            .collect::<Result<_, _>>()
            .with_context(|| name.clone())?;
        Ok(RecordedSession { kind, items })
    };
    found.iter().map(read).collect()
}

/// Returns the hours and the page cache of a machine's day.
fn day_habits(name: &str) -> (u64, u64) {
    match name {
        "handheld" => (4, 32 << 20),
        "home-server" => (12, 256 << 20),
        _ => (8, 512 << 20),
    }
}

fn make_scene(
    name: &str,
    sessions: &[RecordedSession],
    seed: u64,
    (hours, memory): (u64, u64),
) -> Result<PreparedReplay> {
    let items = compose_day(sessions, Duration::from_secs(hours * 3600), seed);
    let mut machine = ModelledMachine::by_name(name).context("it is known")?;
    // Flash has most files in the morning: the day does not begin with an empty cache.
    for part in machine
        .parts
        .iter_mut()
        .filter(|part| part.device.kind == DeviceKind::Flash)
    {
        part.holds = InitialShare {
            files: WARM,
            attributes: true,
        };
    }
    let assumptions = ReplayAssumptions {
        memory,
        ..ReplayAssumptions::default()
    };
    Ok(PreparedReplay::from_items(
        items.into_iter().map(Ok),
        machine,
        &assumptions,
    )?)
}

fn format_ratio(thousandths: u64) -> String {
    format!("{}.{:02}", thousandths / 1000, thousandths % 1000 / 10)
}

fn format_percent(thousandths: u64) -> String {
    format!("{}.{} %", thousandths / 10, thousandths % 10)
}

fn print_score(seed: u64, scene: &PreparedReplay, score: &DayScore) {
    println!(
        "day {seed}: {} events at the devices; floor {}, bound {}, with foresight {} (gap {})",
        scene.trace.events().len(),
        score.floor,
        score.least,
        score.feasible.total_energy(),
        format_percent(score.bound_gap()),
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
        print_row(&run.policy, &run.report, score);
    }
    print_row("(foresight)", &score.feasible, score);
}

/// Prints the energy of every policy and of every fixed time-out, without the bound, which takes
/// most of the time.
fn print_policies(seed: u64, name: &str, scene: &PreparedReplay, has_account: bool) {
    println!(
        "{name}, day {seed}: {} events at the devices",
        scene.trace.events().len()
    );
    let all = NamedPolicy::ALL
        .into_iter()
        .chain(TIME_OUTS.map(NamedPolicy::TimeOut));
    for run in all.map(|named| scene.run(&named)) {
        println!(
            "  {:<16} {:>11} {:>7} starts",
            run.policy,
            run.report.total_energy().to_string(),
            count_starts(&run.report)
        );
        if has_account {
            print_account(&run.policy, &run.report, scene);
        }
    }
}

/// Returns the starts of those devices that wear by them.
fn count_starts(report: &SimulationReport) -> u64 {
    report
        .devices
        .iter()
        .filter(|device| device.cycles > 0)
        .map(|device| device.starts)
        .sum()
}

/// Prints the energy of a run by device and use, with times and counts.
fn print_account(name: &str, report: &SimulationReport, scene: &PreparedReplay) {
    println!(
        "  {name}: {} while somebody waited {}",
        report.waited, report.waiting
    );
    for (part, device) in scene.machine.parts.iter().zip(&report.devices) {
        let uses = device.named_uses().map(|(what, entry)| {
            format!(
                "{what} {} in {} ({})",
                entry.energy(),
                entry.time,
                entry.count
            )
        });
        let (label, all, reads) = (&part.label, device.ledger.total_energy(), device.reads);
        println!(
            "    {label}: {all}, {reads} reads, {} starts; {}",
            device.starts,
            uses.collect::<Vec<_>>().join(", ")
        );
    }
}

fn print_row(name: &str, report: &SimulationReport, score: &DayScore) {
    let (saved, of) = score.saved_energy(report);
    let cold = format!(
        "{} {}",
        report.cold.len(),
        report.cold.iter().copied().sum::<teal_types::TimeSpan>()
    );
    let starts = count_starts(report);
    let refused: u64 = report.devices.iter().map(|device| device.refused).sum();
    println!(
        "  {name:<16} {:>11} {:>7} {:>7} {:>8} {:>9} {:>7} {cold:>12} {starts:>7} {refused:>7}",
        report.total_energy().to_string(),
        format_ratio(score.above_floor(report)),
        format_ratio(score.of_least(report)),
        format_percent(saved),
        format_percent(of),
        format_percent(score.added_waiting(report)),
    );
}
