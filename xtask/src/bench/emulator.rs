//! `cargo xtask bench emulator`: a modelled disk in virtual time beside a plain loop device, both
//! over files of the same host.
//!
//! # How
//! 1. fio runs each job on both devices, one after the other, in turns; a ratio is taken within a
//!    round, the report has the median.
//! 2. The plain device is as fast as the host lets it: the ratio shows the price of serving from
//!    user space.

use super::programs::run_program;
use super::undo::{self, UndoStep};
use crate::arguments::count;
use anyhow::{Context as _, Result, ensure};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Times a modelled disk beside a plain loop device (root).
#[derive(Debug, clap::Args)]
pub(crate) struct EmulatorArguments {
    /// Rounds of both devices
    #[arg(long, value_name = "N", default_value = "3", value_parser = count(1))]
    rounds: usize,
    /// Seconds of one job on one device
    #[arg(
        long,
        value_name = "N",
        default_value = "5",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    seconds: u32,
}

/// The size of both devices.
const SIZE: &str = "512M";
/// The name of the disk while it exists.
const NAME: &str = "bench-emulator";
/// Name and arguments of fio.
const JOBS: [(&str, [&str; 3]); 4] = [
    (
        "random reads of 4 KiB",
        ["--rw=randread", "--bs=4k", "--iodepth=1"],
    ),
    (
        "random writes of 4 KiB",
        ["--rw=randwrite", "--bs=4k", "--iodepth=1"],
    ),
    (
        "random writes of 4 KiB, 16 at once",
        ["--rw=randwrite", "--bs=4k", "--iodepth=16"],
    ),
    (
        "sequential writes of 128 KiB",
        ["--rw=write", "--bs=128k", "--iodepth=1"],
    ),
];

/// A modelled disk, stopped however the run ends.
pub(super) struct ModelledDisk {
    program: PathBuf,
    name: String,
    pub(super) device: PathBuf,
}

impl ModelledDisk {
    /// Starts a disk modelled by a profile, which is shipped or a file.
    pub(super) fn start(
        program: PathBuf,
        profile: &str,
        name: &str,
        is_real_time: bool,
    ) -> Result<Self> {
        let mut command = Command::new(&program);
        command.args(["lab", "disk", "start", "--profile", profile, "--size", SIZE]);
        command.args(is_real_time.then_some("--real-time"));
        let device = PathBuf::from(run_program(command.arg(name))?.trim());
        Ok(Self {
            program,
            name: name.to_owned(),
            device,
        })
    }
}

impl Drop for ModelledDisk {
    fn drop(&mut self) {
        drop(run_program(
            Command::new(&self.program).args(["lab", "disk", "stop", &self.name]),
        ));
    }
}

pub(crate) fn run_bench(plan: &EmulatorArguments) -> Result<bool> {
    let EmulatorArguments { rounds, seconds } = *plan;
    ensure!(
        rustix::process::geteuid().is_root(),
        "bench emulator needs root: it attaches loop devices"
    );
    let target = crate::workspace::target_directory()?;
    let mut build = crate::workspace::cargo_command();
    build.current_dir(crate::workspace::workspace_root()).args([
        "build",
        "--release",
        "--quiet",
        "-p",
        "teal",
        "-p",
        "teal-lab",
        "--bins",
    ]);
    ensure!(build.status()?.success(), "the release build failed");

    let _undo = undo::undo_at_exit()?;
    let dir = target
        .join("bench")
        .join(format!("emulator-{}", std::process::id()));
    undo::note_undo(UndoStep::Tree(dir.clone()));
    std::fs::create_dir_all(&dir)?;
    let image = dir.join("plain.img");
    run_program(Command::new("truncate").args(["-s", SIZE]).arg(&image))?;
    let plain = PathBuf::from(
        run_program(Command::new("losetup").args(["--show", "-f"]).arg(&image))?.trim(),
    );
    // Noted as soon as its name is known.
    undo::note_undo(UndoStep::Loop(plain.clone()));
    let modelled = ModelledDisk::start(
        target.join("release/teal"),
        "ibm-microdrive-1gb",
        NAME,
        false,
    )?;

    let mut table = String::from(
        "| job | plain loop, ops/s | modelled disk, ops/s | ratio |\n|---|---:|---:|---:|\n",
    );
    for (name, job) in JOBS {
        let mut found = Vec::new();
        for round in 0..rounds {
            eprint!("\r{name}, round {}/{rounds}      ", round + 1);
            // The devices take turns in being first.
            let (plain, modelled) = if round.is_multiple_of(2) {
                (
                    run_fio(&plain, &job, seconds)?,
                    run_fio(&modelled.device, &job, seconds)?,
                )
            } else {
                let modelled = run_fio(&modelled.device, &job, seconds)?;
                (run_fio(&plain, &job, seconds)?, modelled)
            };
            found.push((modelled / plain, plain, modelled));
        }
        // The median round is reported, with the figures of both devices in that round.
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (ratio, plain, modelled) = found[found.len() / 2];
        writeln!(
            table,
            "| {name} | {plain:.0} | {modelled:.0} | {ratio:.2} |"
        )?;
    }
    let load = std::fs::read_to_string("/proc/loadavg")?;
    eprintln!();
    println!(
        "{table}\n{rounds} rounds of {seconds} s, the median; load {}",
        load.split(' ').next().unwrap_or_default()
    );
    Ok(true)
}

/// Runs a job with fio, and returns its operations per second.
fn run_fio(device: &Path, job: &[&str], seconds: u32) -> Result<f64> {
    let fixed = [
        "--name=job",
        "--direct=1",
        "--ioengine=libaio",
        "--time_based",
        "--output-format=json",
    ];
    let mut command = Command::new("fio");
    command
        .args(fixed)
        .args(job)
        .arg(format!("--runtime={seconds}"))
        .arg(format!("--filename={}", device.display()));
    parse_operations(&run_program(&mut command)?)
}

fn parse_operations(json: &str) -> Result<f64> {
    let json: serde_json::Value = serde_json::from_str(json).context("fio's output")?;
    let of = |direction: &str| {
        json["jobs"][0][direction]["iops"]
            .as_f64()
            .context("fio without iops")
    };
    Ok(of("read")? + of("write")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_read_from_fio() {
        let json = r#"{"jobs":[{"read":{"iops":12.5},"write":{"iops":0.0}}]}"#;
        assert_eq!(parse_operations(json).unwrap().to_string(), "12.5");
        assert!(parse_operations("{}").is_err());
    }

    #[test]
    fn bad_arguments_are_refused() {
        for refused in [&["--rounds"][..], &["--rounds", "0"], &["--fast"]] {
            assert!(
                crate::arguments::parse::<EmulatorArguments>(refused).is_err(),
                "{refused:?}"
            );
        }
    }
}
