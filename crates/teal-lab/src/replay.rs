//! `teal lab replay`: a trace under policies of energy, in virtual time.

mod figures;

use crate::cli::Replay;
use crate::trace::{reader, say_ending};
use anyhow::{Context, Result, bail};
use std::process::ExitCode;
use teal_command::profile::{nearest, profile};
use teal_command::say::say;
use teal_energy::policy::Supply;
use teal_energy::profile::Kind;
use teal_energy::sim::Pace;
use teal_study::replay::explain::Which;
use teal_study::replay::{Assumptions, Machine, NAMED, Named, Run, Scene, plot};
use teal_trace::Ending;
use teal_types::{Span, Time};

/// Events at the devices times devices for which the bound takes seconds.
const QUICK: usize = 200;
/// Rounds of prices for the bound.
const ROUNDS: usize = 40;

/// Runs the command.
pub(crate) fn replay(args: &Replay) -> Result<ExitCode> {
    let machine = machine(args)?;
    let policies = policies(&args.policy)?;
    let which = args.explain.as_deref().map(which).transpose()?;
    if which.is_some() && policies.len() != 1 {
        bail!("--explain is for one policy; name it with --policy");
    }
    let assumptions = Assumptions {
        memory: args.memory,
        pace: if args.closed {
            Pace::Closed
        } else {
            Pace::Open
        },
        supply: if args.powered {
            Supply::Powered
        } else {
            Supply::Battery
        },
        ..Assumptions::default()
    };
    let mut trace = reader(&args.trace)?;
    let read = Scene::read(&mut trace, machine, &assumptions);
    let (scene, ending) = read.with_context(|| args.trace.display().to_string())?;
    say_ending(&args.trace, Some(&ending));
    if let Some(which) = which {
        explain(&scene, &policies[0], which)?;
        return Ok(ExitCode::SUCCESS);
    }
    let runs: Vec<Run> = policies.iter().map(|policy| scene.run(policy)).collect();
    let late = teal_energy::oracle::lateness(runs.iter().map(|run| &run.report));
    let most = args.bound.unwrap_or(QUICK / scene.machine.parts.len());
    let bound = scene.bound(&late, most, ROUNDS);
    if let Some(path) = &args.plot {
        let title = args
            .trace
            .file_name()
            .unwrap_or(args.trace.as_os_str())
            .to_string_lossy();
        let svg = plot::svg(&title, &scene.machine, &runs, &bound);
        std::fs::write(path, svg).with_context(|| path.display().to_string())?;
    }
    if args.json {
        let json = figures::json(&scene, &runs, &bound, matches!(ending, Ending::Complete));
        say!("{}", serde_json::to_string_pretty(&json)?);
    } else {
        figures::lines(&scene, &runs, &bound)
            .iter()
            .for_each(|line| say!("{line}"));
    }
    Ok(ExitCode::SUCCESS)
}

fn explain(scene: &Scene, policy: &Named, which: Which) -> Result<()> {
    let (run, found) = scene.explain(policy, which);
    let Some(found) = found else {
        bail!("{} makes no such decision on this trace", run.policy)
    };
    say!(
        "{}, decision {} at {}, modelled by {}",
        run.policy,
        found.number,
        found.at,
        scene.machine.profiles().join(", ")
    );
    found.lines.iter().for_each(|line| say!("{line}"));
    Ok(())
}

fn machine(args: &Replay) -> Result<Machine> {
    let mut machine = match &args.profiles[..] {
        [name] if Machine::named(name).is_some() => Machine::named(name).context("it was there")?,
        [name] if !name.contains(['/', '.']) && teal_energy::Profile::shipped(name).is_none() => {
            let machines = NAMED.iter().map(|(known, ..)| *known);
            match nearest(name, machines.clone()) {
                Some(known) => bail!("there is no machine {name}; did you mean {known}?"),
                None => Machine::of(name, &[profile(name)?])?,
            }
        }
        names => {
            let profiles = names
                .iter()
                .map(|name| profile(name))
                .collect::<Result<Vec<_>>>()?;
            Machine::of(&names.join(","), &profiles)?
        }
    };
    if args.spread {
        machine = machine.with_spread_disks();
    }
    let has_link = machine
        .parts
        .iter()
        .any(|part| part.device.kind == Kind::Link);
    if args.warm < 100 && !has_link {
        bail!("--warm is for machines with a link, which has what the disks lack");
    }
    for part in &mut machine.parts {
        part.room = args.cache.filter(|_| part.keeps);
        if part.device.kind == Kind::Disk {
            part.holds.files = args.warm;
        }
    }
    Ok(machine)
}

fn policies(names: &[String]) -> Result<Vec<Named>> {
    if names.iter().any(|name| name == "all") {
        return Ok(Named::ALL.to_vec());
    }
    Ok(names
        .iter()
        .map(|name| name.parse())
        .collect::<Result<_, _>>()?)
}

/// A number, `90s`, `1.5h`, or a time as it is printed: `0:01:30.500`.
fn which(text: &str) -> Result<Which> {
    if let Ok(number) = text.parse::<u64>() {
        if number == 0 {
            bail!("decisions are counted from 1");
        }
        return Ok(Which::Number(number));
    }
    let refused = || {
        format!(
            "'{text}' is neither a decision's number nor a time; say 17, 90s, 1.5h or 0:01:30.5"
        )
    };
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
    Ok(Which::At(Time::after_start(Span::nanos(
        (seconds * 1e9) as u64,
    ))))
}
