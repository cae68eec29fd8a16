//! Implements `teal lab replay`: replays a trace under policies of energy, in virtual time.

mod figures;

use crate::cli::{ReplayArgs, ReplayConditions};
use crate::trace::{open_trace, say_ending};
use anyhow::{Context, Result, bail};
use std::process::ExitCode;
use teal_command::profile::{load_profile, nearest_name};
use teal_command::say::say;
use teal_energy::policy::PowerSupply;
use teal_energy::profile::DeviceKind;
use teal_energy::sim::ReplayPace;
use teal_rig::path_context::PathContext as _;
use teal_study::replay::explain::DecisionSelector;
use teal_study::replay::{
    EnergyBound, ModelledMachine, NAMED_MACHINES, NamedPolicy, PolicyRun, PreparedReplay,
    ReplayAssumptions, plot,
};
use teal_trace::TraceEnding;
use teal_types::{Time, TimeSpan};

/// Product of devices and events for which the bound takes seconds.
const QUICK: usize = 200;
/// Rounds of price ascent for the bound.
const ROUNDS: usize = 40;

/// Runs the command.
pub(crate) fn run_replay(args: &ReplayArgs) -> Result<ExitCode> {
    let machine = build_machine(args)?;
    let policies = parse_policies(&args.policy)?;
    let which = args.explain.as_deref().map(parse_decision).transpose()?;
    if which.is_some() && policies.len() != 1 {
        bail!("--explain is for one policy; name it with --policy");
    }
    let mut trace = open_trace(&args.trace)?;
    let read = PreparedReplay::read(&mut trace, machine, &replay_assumptions(&args.conditions));
    let (scene, ending) = read.at_path(&args.trace)?;
    say_ending(&args.trace, Some(&ending));
    if let Some(which) = which {
        print_decision(&scene, &policies[0], which)?;
        return Ok(ExitCode::SUCCESS);
    }
    let runs: Vec<PolicyRun> = policies.iter().map(|policy| scene.run(policy)).collect();
    let bound = compute_bound(args, &scene, &runs);
    if let Some(path) = &args.plot {
        let title = args.trace.file_name().unwrap_or(args.trace.as_os_str());
        let svg = plot::render_svg(&title.to_string_lossy(), &scene.machine, &runs, &bound);
        std::fs::write(path, svg).at_path(path)?;
    }
    if args.json {
        let is_complete = matches!(ending, TraceEnding::Complete);
        let json = figures::replay_json(&scene, &runs, &bound, is_complete);
        say!("{}", serde_json::to_string_pretty(&json)?);
        return Ok(ExitCode::SUCCESS);
    }
    for line in figures::replay_lines(&scene, &runs, &bound) {
        say!("{line}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Computes the bound, if the trace is not too long for that.
fn compute_bound(args: &ReplayArgs, scene: &PreparedReplay, runs: &[PolicyRun]) -> EnergyBound {
    // The bound's schedule may be as late with bursts as the policies were.
    let late = teal_energy::oracle::longest_lateness(runs.iter().map(|run| &run.report));
    // The cost of the bound grows with devices and events.
    debug_assert!(
        !scene.machine.parts.is_empty(),
        "a machine has a device at least"
    );
    let most = args.bound.unwrap_or(QUICK / scene.machine.parts.len());
    scene.energy_bound(&late, most, ROUNDS)
}

/// Returns the assumptions on memory, pace and supply that the arguments ask for.
fn replay_assumptions(of: &ReplayConditions) -> ReplayAssumptions {
    let pace = if of.closed {
        ReplayPace::Closed
    } else {
        ReplayPace::Open
    };
    let supply = if of.powered {
        PowerSupply::Powered
    } else {
        PowerSupply::Battery
    };
    ReplayAssumptions {
        memory: of.memory,
        pace,
        supply,
        ..ReplayAssumptions::default()
    }
}

/// Prints a decision of a policy with its reasons.
fn print_decision(
    scene: &PreparedReplay,
    policy: &NamedPolicy,
    which: DecisionSelector,
) -> Result<()> {
    let (run, found) = scene.explain_decision(policy, which);
    let Some(found) = found else {
        bail!("{} makes no such decision on this trace", run.policy)
    };
    say!(
        "{}, decision {} at {}, modelled by {}",
        run.policy,
        found.number,
        found.at,
        scene.machine.profile_names().join(", ")
    );
    found.lines.iter().for_each(|line| say!("{line}"));
    Ok(())
}

/// Builds the machine from the name of a machine, or from the profiles of its devices.
fn build_machine(args: &ReplayArgs) -> Result<ModelledMachine> {
    // A single name may be that of a machine; a profile has it too if its file is named.
    let mut machine = match &args.profiles[..] {
        [name] if ModelledMachine::by_name(name).is_some() => {
            ModelledMachine::by_name(name).context("it was there")?
        }
        [name]
            if !name.contains(['/', '.']) && teal_energy::Profile::find_shipped(name).is_none() =>
        {
            let machines = NAMED_MACHINES.iter().map(|(known, ..)| *known);
            match nearest_name(name, machines.clone()) {
                Some(known) => bail!("there is no machine {name}; did you mean {known}?"),
                None => ModelledMachine::from_profiles(name, &[load_profile(name)?])?,
            }
        }
        names => {
            let profiles = names
                .iter()
                .map(|name| load_profile(name))
                .collect::<Result<Vec<_>>>()?;
            ModelledMachine::from_profiles(&names.join(","), &profiles)?
        }
    };
    if args.conditions.spread {
        machine = machine.with_spread_disks();
    }
    let has_link = machine
        .parts
        .iter()
        .any(|part| part.device.kind == DeviceKind::Link);
    if args.conditions.warm < 100 && !has_link {
        bail!("--warm is for machines with a link, which has what the disks lack");
    }
    // Only devices that keep content have room for it, and only disks hold files at first.
    for part in &mut machine.parts {
        part.room = args.conditions.cache.filter(|_| part.keeps);
        if part.device.kind == DeviceKind::Disk {
            part.holds.files = args.conditions.warm;
        }
    }
    Ok(machine)
}

fn parse_policies(names: &[String]) -> Result<Vec<NamedPolicy>> {
    if names.iter().any(|name| name == "all") {
        return Ok(NamedPolicy::ALL.to_vec());
    }
    Ok(names
        .iter()
        .map(|name| name.parse())
        .collect::<Result<_, _>>()?)
}

/// Parses a number, `90s`, `1.5h`, or a time as it is printed: `0:01:30.500`.
fn parse_decision(text: &str) -> Result<DecisionSelector> {
    if let Ok(number) = text.parse::<u64>() {
        if number == 0 {
            bail!("decisions are counted from 1");
        }
        return Ok(DecisionSelector::Number(number));
    }
    let refused = || {
        format!(
            "'{text}' is neither a decision's number nor a time; say 17, 90s, 1.5h or 0:01:30.5"
        )
    };
    // A time has a unit, or is printed as hours, minutes and seconds.
    let seconds = match text.strip_suffix(['s', 'm', 'h']) {
        Some(digits) => {
            let unit = match text.as_bytes()[digits.len()] {
                b'h' => 3600.0,
                b'm' => 60.0,
                _ => 1.0,
            };
            digits.parse::<f64>().ok().map(|number| number * unit)
        }
        None => text.split(':').try_fold(0.0, |sum, part| {
            Some(sum * 60.0 + part.parse::<f64>().ok()?)
        }),
    };
    let seconds = seconds
        .filter(|seconds| (0.0..1e9).contains(seconds))
        .with_context(refused)?;
    Ok(DecisionSelector::At(Time::after_start(
        TimeSpan::from_nanos((seconds * 1e9) as u64),
    )))
}
