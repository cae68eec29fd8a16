//! `cargo xtask bench attach`: measures the cost of attaching a drive, by the number of objects on
//! it and by the number of commits it has missed.
//!
//! # How
//! 1. A machine serves a volume, makes a drive for each count of objects, and writes files, which
//!    the drives get. Then objects are added to each drive that the volume knows nothing of
//!    (`teal-device/examples/many.rs`). They are zeros, so that metadata is measured.
//! 2. For each count of missed commits so many files are changed, then each drive is attached to
//!    another machine by `teal device attach` and detached again. A change is one commit of one
//!    file.
//! 3. The time is that of the command, which returns when the drive is read from. The memory is the
//!    growth of the daemon's peak.

use super::andrew::pair::{BenchReplica, ServedLine};
use super::lab::{RunFacts, RunSite};
use super::meter::monotonic_seconds;
use super::programs::{build_release, run_program};
use super::statistics::median_spread;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Times each drive is attached with nothing missed.
const TIMES: usize = 5;
/// Files in a directory.
const EACH: u64 = 500;
/// The bytes of a drive for each object.
const OBJECT: u64 = 1536;
const DRIVE: u64 = 1 << 30;

/// Times what attaching a drive costs by its objects and by the commits it has missed (root).
#[derive(Debug, clap::Args)]
pub(crate) struct AttachArguments {
    /// Objects on the drives: the default takes 3 minutes and some GiB
    #[arg(
        long,
        value_name = "N,N,...",
        value_delimiter = ',',
        default_value = "100000,1000000,10000000"
    )]
    objects: Vec<u64>,
    /// Commits that a drive has missed when it is attached
    #[arg(
        long,
        value_name = "N,N,...",
        value_delimiter = ',',
        default_value = "0,1000,10000"
    )]
    missed: Vec<u64>,
    /// Raw samples; the table goes beside them as .md [default: target/bench/attach.json]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The directory of stores, drives and mounts [default: target/bench]
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// One attachment.
#[derive(Debug)]
struct AttachSample {
    objects: u64,
    missed: u64,
    seconds: f64,
    /// Bytes by which the daemon's peak of memory grew.
    memory: u64,
}

pub(crate) fn run_bench(plan: &AttachArguments) -> Result<bool> {
    let site = RunSite::begin_run("attach", plan.json.as_deref(), plan.dir.as_deref())?;
    build_release(&[
        &["-p", "teal", "--bin", "teal"],
        &["-p", "teal-device", "--example", "many"],
    ])?;
    let nas = BenchReplica::serve_volume(&site.target.join("release/teal"), &site.dir.join("nas"))?;
    let files = plan.missed.iter().copied().max().unwrap_or(0);
    let tree = nas.mount_point().join("tree");
    for objects in &plan.objects {
        let (drive, size) = (
            site.dir.join(format!("d{objects}.drive")),
            (DRIVE + objects * OBJECT).to_string(),
        );
        nas.teal_device(&["add", path_text(&drive)?, "--size", &size, "--portable"])?;
    }
    // Drives that are attached get what is written.
    change_files(&tree, files, 0)?;
    nas.flush()?;
    for objects in &plan.objects {
        eprintln!("a drive with {objects} objects");
        nas.teal_device(&["detach", &format!("d{objects}")])?;
        // The drive is moved, since it would be attached again where it was made.
        let away = site.dir.join(format!("away-{objects}"));
        std::fs::rename(site.dir.join(format!("d{objects}.drive")), &away)?;
        let many = site.target.join("release/examples/many");
        run_program(
            Command::new(many)
                .arg("fill")
                .arg(&away)
                .arg(objects.to_string()),
        )?;
    }
    let line = ServedLine::to_volume(&site.target.join("release/teal"), &site.dir, nas)?;
    line.set_line(0, 1000.0)?;
    let home = line.join_machine("home")?;
    let mut samples = Vec::new();
    for (round, missed) in plan.missed.iter().enumerate() {
        change_files(&tree, *missed, round as u64 + 1)?;
        line.nas.flush()?;
        for objects in &plan.objects {
            let away = site.dir.join(format!("away-{objects}"));
            // A commit is missed only once.
            for _ in 0..if *missed == 0 { TIMES } else { 1 } {
                let (seconds, memory) = attach_drive(&home, &away)?;
                let there = objects_on_drive(&home, &format!("d{objects}"))?;
                // Files that have changed since may have been evicted.
                let least = if round == 0 {
                    objects + files
                } else {
                    *objects
                };
                ensure!(
                    there >= least,
                    "{there} objects are on a drive with {objects} and {files} files"
                );
                home.teal_device(&["detach", &format!("d{objects}"), "--fast"])?;
                eprintln!(
                    "{objects} objects, {missed} missed: {seconds:.3} s, {} MiB",
                    memory >> 20
                );
                samples.push(AttachSample {
                    objects: *objects,
                    missed: *missed,
                    seconds,
                    memory,
                });
            }
        }
    }
    let kept = site.write_results(
        TIMES,
        |of| to_json(&samples, of),
        |of| render_markdown(&samples, plan, of),
    )?;
    home.unmount()?;
    line.nas.unmount()?;
    println!("{kept}");
    Ok(true)
}

fn path_text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}

/// Writes so many files anew, one by one.
fn change_files(tree: &Path, files: u64, round: u64) -> Result<()> {
    for n in 0..files {
        let dir = tree.join((n / EACH).to_string());
        // A directory is made with its first file.
        if n % EACH == 0 {
            std::fs::create_dir_all(&dir)?;
        }
        std::fs::write(dir.join(n.to_string()), format!("{round} {n}"))?;
    }
    Ok(())
}

/// Attaches a drive. Returns the seconds, and the bytes by which the peak grew.
fn attach_drive(home: &BenchReplica, drive: &Path) -> Result<(f64, u64)> {
    let proc = PathBuf::from(format!("/proc/{}", home.pid()?));
    // 5: the peak begins anew at what there is (proc_pid_clear_refs(5)).
    std::fs::OpenOptions::new()
        .write(true)
        .open(proc.join("clear_refs"))?
        .write_all_at(b"5", 0)?;
    let before = status_field(&proc, "VmRSS:")?;
    let begun = monotonic_seconds();
    home.teal_device(&["attach", path_text(drive)?])?;
    let seconds = monotonic_seconds() - begun;
    Ok((
        seconds,
        status_field(&proc, "VmHWM:")?.saturating_sub(before),
    ))
}

/// Returns the number of objects on a drive.
fn objects_on_drive(home: &BenchReplica, name: &str) -> Result<u64> {
    let said: Vec<Value> = serde_json::from_str(&home.teal_device(&["ls", "--json"])?)?;
    let drive = said
        .iter()
        .find(|drive| drive["name"] == name)
        .context("a drive that is not there")?;
    drive["objects"]
        .as_u64()
        .context("a drive that does not say what is on it")
}

/// Returns a number of bytes from the status of a process.
fn status_field(proc: &Path, name: &str) -> Result<u64> {
    let status = std::fs::read_to_string(proc.join("status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .with_context(|| format!("no {name}"))?;
    Ok(line
        .split_whitespace()
        .next()
        .context("no number")?
        .parse::<u64>()?
        << 10)
}

fn samples_of(
    samples: &[AttachSample],
    objects: u64,
    missed: u64,
) -> impl Iterator<Item = &AttachSample> {
    samples
        .iter()
        .filter(move |sample| (sample.objects, sample.missed) == (objects, missed))
}

fn render_markdown(samples: &[AttachSample], plan: &AttachArguments, facts: &RunFacts) -> String {
    let mut out = format!(
        "Measured {} at {}: Linux {}, {} cores; load {}. Medians of {TIMES} where nothing was \
            missed, otherwise one. MiB: what the daemon's peak grew by.\n\n| objects |",
        facts.date, facts.commit, facts.kernel, facts.cores, facts.load
    );
    for missed in &plan.missed {
        let _ = write!(out, " {missed} missed |");
    }
    let _ = writeln!(out, "\n|---:|{}", "---:|".repeat(plan.missed.len()));
    for objects in &plan.objects {
        let _ = write!(out, "| {objects} |");
        for missed in &plan.missed {
            let seconds =
                median_spread(samples_of(samples, *objects, *missed).map(|sample| sample.seconds));
            let memory = samples_of(samples, *objects, *missed)
                .map(|sample| sample.memory >> 20)
                .max();
            let _ = write!(
                out,
                " {:.3} s, {} MiB |",
                seconds.map_or(f64::NAN, |s| s.median),
                memory.unwrap_or(0)
            );
        }
        let _ = writeln!(out);
    }
    out
}

fn to_json(samples: &[AttachSample], facts: &RunFacts) -> Value {
    let sample = |s: &AttachSample| {
        json!({
            "objects": s.objects, "missed": s.missed, "seconds": s.seconds,
            "peak_bytes": s.memory,
        })
    };
    json!({
        "date": facts.date, "commit": facts.commit, "kernel": facts.kernel, "cores": facts.cores,
        "load": facts.load,
        "seconds": facts.seconds, "samples": samples.iter().map(sample).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::parse;

    #[test]
    fn arguments_say_what_is_measured() {
        let plan: AttachArguments = parse(&["--objects", "10,20", "--missed", "3"]).unwrap();
        assert_eq!((plan.objects, plan.missed), (vec![10, 20], vec![3]));
        for refused in [&["--missed", ""][..], &["--x"], &["--objects"]] {
            assert!(parse::<AttachArguments>(refused).is_err(), "{refused:?}");
        }
    }
}
