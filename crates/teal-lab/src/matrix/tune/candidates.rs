//! Lists the candidates of a search: file systems with their options, and schedulers.

use crate::cli::TuneArgs;
use crate::matrix::bench::MatrixBench;
use crate::matrix::room;
use anyhow::{Context, Result, bail};
use std::path::Path;
use teal_command::profile::shipped_profile;
use teal_command::say::say;
use teal_command::size::parse_size;
use teal_rig::guest;
use teal_rig::testbed::{self, Testbed};
use teal_study::matrix::{
    CacheState, FileSystemKind, FileSystemSetup, KernelPlace, Matrix, MatrixDevice, MatrixWorkload,
    RunRules, SchedulerList, combine_options, known_systems, risk_of,
};

/// Returns the candidates as a matrix.
pub(super) fn candidate_matrix(args: &TuneArgs) -> Result<Matrix> {
    let device = parse_device(args.device.as_deref().unwrap_or_default())?;
    // A file names the candidates; without it they are all that can be had here.
    let (systems, schedulers) = match &args.space {
        Some(file) => {
            let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
            let matrix = Matrix::parse(&text).with_context(|| file.display().to_string())?;
            (matrix.systems, matrix.schedulers)
        }
        None => (
            available_systems(args)?,
            SchedulerList {
                names: available_schedulers(&device)?,
            },
        ),
    };
    // The search decides on its own when it has enough blocks.
    let runs = RunRules {
        least: 1,
        most: args.blocks,
        within: 0.05,
        seed: args.seed,
        scale: args.scale,
        seconds: args.seconds,
        cache: CacheState::Cold,
        memory: args.memory,
        aged: args.aged,
    };
    let workloads = vec![candidate_workload(args)];
    Matrix::new(device, runs, workloads, systems, schedulers).context("what is to be tried")
}

/// Returns the workload, named after its script.
fn candidate_workload(args: &TuneArgs) -> MatrixWorkload {
    let workload = args.workload.clone().unwrap_or_default();
    let name = Path::new(&workload)
        .file_stem()
        .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let set = args
        .set
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    MatrixWorkload {
        name,
        script: workload,
        set,
        operations: args.operations,
    }
}

/// Parses a device: a path, or a modelled disk with its size.
fn parse_device(device: &str) -> Result<MatrixDevice> {
    Ok(match device.rsplit_once(':') {
        Some((profile, size)) if !device.starts_with('/') => {
            // A path may have a colon too, so only names are split.
            let size = parse_size(size).map_err(|e| anyhow::anyhow!("--device {device}: {e}"))?;
            MatrixDevice {
                profile: Some(profile.to_owned()),
                path: None,
                size: Some(size),
            }
        }
        _ if device.starts_with('/') => MatrixDevice {
            profile: None,
            path: Some(device.to_owned()),
            size: None,
        },
        _ => bail!(
            "--device {device}: a device has a path, a modelled disk a size, as in \
             desktop-7200rpm-composed:4G"
        ),
    })
}

/// Returns the file systems that can be had here with their options: on this machine's kernel, or
/// all of them in guests.
fn available_systems(args: &TuneArgs) -> Result<Vec<FileSystemSetup>> {
    if !args.guests {
        let here = |kind: &FileSystemKind| testbed::check_kind(*kind).is_ok();
        return Ok(known_systems(
            &FileSystemKind::ALL
                .iter()
                .copied()
                .filter(here)
                .collect::<Vec<_>>(),
            args.risky,
        ));
    }
    // Without any guest the reason is told, instead of an empty list.
    guest::check_guest(FileSystemKind::Ext4)?;
    let there = |kind: &FileSystemKind| !kind.is_ours() && guest::check_guest(*kind).is_ok();
    let mut all = known_systems(
        &FileSystemKind::ALL
            .iter()
            .copied()
            .filter(there)
            .collect::<Vec<_>>(),
        args.risky,
    );
    all.iter_mut()
        .for_each(|system| system.place = Some(KernelPlace::Guest));
    Ok(all)
}

/// Returns the schedulers of a device, the current one first. Modelled disks have those of loop
/// devices.
fn available_schedulers(device: &MatrixDevice) -> Result<Vec<String>> {
    if let Some(path) = &device.path {
        return Testbed::open_real(Path::new(path))?.schedulers();
    }
    let (profile, size) = (
        device.profile.as_deref().unwrap_or_default(),
        device.size.unwrap_or(0),
    );
    shipped_profile(profile)?;
    Testbed::start_modelled(profile, size)?.schedulers()
}

pub(super) fn at_risk(system: &FileSystemSetup) -> String {
    risk_of(system).map_or(String::new(), |risk| format!(" (at a risk: {risk})"))
}

impl MatrixBench {
    /// Prints the candidates, and whether they fit into the time.
    pub(super) fn print_tune_forecast(&self, args: &TuneArgs) -> Result<()> {
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
        // Runs with a number of operations may end earlier, so this is an upper limit.
        let (block, budget) = (all * runs.seconds, args.budget.as_secs());
        let most = if args.operations.is_some() {
            "at most "
        } else {
            ""
        };
        say!(
            "the first block: {all} runs, {most}{block} s of running, making files and file \
             systems on top; --budget is {budget} s"
        );
        if block > budget && args.operations.is_none() {
            say!("that is more than --budget: not even one block would be whole");
        }
        if let Some(words) = room::describe_ageing(self, [all, all * u64::from(args.blocks)])? {
            say!("{words}, if the budget allows for so many");
        }
        let more = combine_options(systems).len() * schedulers.names.len();
        say!(
            "and {more} combinations of their options, of which those are measured that promise \
             most"
        );
        Ok(())
    }
}
