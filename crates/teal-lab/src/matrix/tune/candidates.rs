//! What a search chooses from: file systems with their options, and schedulers.

use crate::cli::Tune as Args;
use crate::matrix::bench::MatrixBench;
use crate::matrix::room;
use anyhow::{Context, Result, bail};
use std::path::Path;
use teal_command::profile::shipped;
use teal_command::say::say;
use teal_command::size::parse_size;
use teal_rig::guest;
use teal_rig::testbed::{self, Testbed};
use teal_study::matrix::{
    Cache, Device, Kind, Matrix, Place, Runs, Schedulers, System, Workload, combinations, risk,
    space,
};

/// The candidates as a matrix.
pub(super) fn wanted(args: &Args) -> Result<Matrix> {
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

/// Returns what can be had here with its options: on this machine's kernel, or all of it in guests.
fn systems(args: &Args) -> Result<Vec<System>> {
    if !args.guests {
        let here = |kind: &Kind| testbed::check_kind(*kind).is_ok();
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

/// The schedulers of a device, the one it is under first. Modelled disks have those that loop
/// devices have.
fn schedulers(device: &Device) -> Result<Vec<String>> {
    if let Some(path) = &device.path {
        return Testbed::real(Path::new(path))?.schedulers();
    }
    let (profile, size) = (
        device.profile.as_deref().unwrap_or_default(),
        device.size.unwrap_or(0),
    );
    shipped(profile)?;
    Testbed::modelled(profile, size)?.schedulers()
}

pub(super) fn at_risk(system: &System) -> String {
    risk(system).map_or(String::new(), |risk| format!(" (at a risk: {risk})"))
}

impl MatrixBench {
    /// Prints what would be tried, and whether that fits into the time.
    pub(super) fn forecast(&self, args: &Args) -> Result<()> {
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
        if let Some(words) = room::described(self, [all, all * u64::from(args.blocks)])? {
            say!("{words}, if the budget allows for so many");
        }
        let more = combinations(systems).len() * schedulers.names.len();
        say!(
            "and {more} combinations of their options, of which those are measured that promise most"
        );
        Ok(())
    }
}
