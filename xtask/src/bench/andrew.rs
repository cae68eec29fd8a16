//! `cargo xtask bench andrew`: unpack, configure, build and clean OpenSSH on ext4 and on a replica
//! of a server that is near and far.
//!
//! # How
//! 1. Places are ext4 (a loop device with direct I/O on the disk that is measured) and, for each
//!    round trip, a replica with a store on the same disk; its server is another mount on this
//!    machine, made anew for each.
//! 2. Places take turns: each round goes through all of them, beginning one further each time. A
//!    ratio is taken within a round.
//! 3. Between a replica and its server is a proxy ([`delay_proxy`]) with the round trip and the
//!    bandwidth that were asked for.
//! 4. Counts decide: `waits` is how often an operation had to wait for the server. Times are
//!    printed beside processor time, which others on the machine stretch less.
//! 5. Then a tree is unpacked on the serving machine, and two machines join at the middle delay:
//!    one reads all of it, one builds it.
//! 6. With `--peers`, others do the same over the same line ([`peers`]).

mod arguments;
mod build;
mod cold;
pub(super) mod delay_proxy;
pub(super) mod pair;
mod peers;
mod report;
mod results;

use super::lab::RunSite;
use super::meter::{children_cpu, monotonic_seconds, server_cpu};
use super::programs::{build_release, run_program};
use super::undo::{self, UndoStep};
use anyhow::{Context as _, Result, ensure};
pub(crate) use arguments::AndrewArguments;
use pair::{ServedPair, UpstreamCounts};
use results::{AndrewResults, BuildPlace, BuildSample};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) fn run_bench(plan: &AndrewArguments) -> Result<bool> {
    plan.check_arguments()?;
    let site = RunSite::begin_run("andrew", plan.json.as_deref(), plan.dir.as_deref())?;
    let target = &site.target;
    if plan.rounds > 0 || plan.is_cold() {
        build_release(&[&["-p", "teal", "--bin", "teal"]])?;
    }
    let archive = build::fetch_source(&target.join("bench/openssh"))?;
    let ext4 = attach_ext4(&site.dir)?;
    let (program, dir, bandwidth) = (
        target.join("release/teal"),
        site.dir.clone(),
        plan.bandwidth,
    );
    let work = AndrewBench {
        program,
        archive,
        dir,
        ext4,
        jobs: plan.jobs,
        bandwidth,
    };
    let places: Vec<BuildPlace> = [BuildPlace::Ext4]
        .into_iter()
        .chain(plan.delays.iter().copied().map(BuildPlace::Teal))
        .collect();
    debug_assert!(
        !plan.delays.is_empty(),
        "the arguments name at least one delay"
    );
    let middle = plan.delays[plan.delays.len() / 2];
    let mut found = AndrewResults::default();
    // A run takes long, so that the results so far are written after each step.
    let keep = |found: &AndrewResults, rounds| -> Result<String> {
        site.write_results(
            rounds,
            |of| report::render_json(found, plan, of),
            |of| report::render_markdown(found, plan, of),
        )
    };
    for round in 0..plan.rounds {
        let mut turn = places.clone();
        // Places take turns in being first.
        turn.rotate_left(round % places.len());
        for place in turn {
            eprintln!("round {}/{}: {}", round + 1, plan.rounds, place.label());
            found.samples.push(
                work.measure_place(place, round)
                    .with_context(|| place.label())?,
            );
            keep(&found, round + 1)?;
        }
    }
    if plan.is_cold() {
        eprintln!("machines that join, {middle} ms");
        let pair =
            ServedPair::begin_pair(&work.program, &work.dir.join("cold"), middle, bandwidth)?;
        found.cold = Some(cold::measure_cold(
            &pair,
            middle,
            &work.archive,
            &work.dir.join("said"),
            plan.jobs,
        )?);
        pair.end_pair()?;
        keep(&found, plan.rounds)?;
    }
    let (dir, archive) = (&work.dir, &work.archive);
    let with = peers::PeerSetting {
        target,
        dir,
        archive,
        jobs: plan.jobs,
        delay: middle,
        mbit: bandwidth,
    };
    for kind in &plan.peers {
        eprintln!("{}, {middle} ms", kind.label());
        found
            .peers
            .push(peers::measure_peer(*kind, &with).with_context(|| kind.label())?);
        keep(&found, plan.rounds)?;
    }
    println!("{}", keep(&found, plan.rounds)?);
    Ok(true)
}

/// Makes an ext4 of its own, and mounts it.
fn attach_ext4(dir: &Path) -> Result<PathBuf> {
    let (image, point) = (dir.join("ext4.img"), dir.join("ext4"));
    std::fs::create_dir(&point)?;
    run_program(Command::new("fallocate").args(["-l", "2G"]).arg(&image))?;
    run_program(
        Command::new("mkfs.ext4")
            .args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
            .arg(&image),
    )?;
    let attached = run_program(
        Command::new("losetup")
            .args(["--direct-io=on", "--show", "-f"])
            .arg(&image),
    )?;
    let device = PathBuf::from(attached.trim());
    undo::note_undo(UndoStep::Loop(device.clone()));
    undo::note_undo(UndoStep::Mount(point.clone()));
    run_program(
        Command::new("mount")
            .args(["-t", "ext4"])
            .arg(&device)
            .arg(&point),
    )?;
    Ok(point)
}

/// Returns the machine's load average over a minute.
fn load_average() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/loadavg")?;
    Ok(text.split(' ').next().unwrap_or_default().parse()?)
}

/// The things that every build needs.
struct AndrewBench {
    program: PathBuf,
    archive: PathBuf,
    dir: PathBuf,
    ext4: PathBuf,
    jobs: usize,
    /// The bandwidth of the line, in Mbit/s each way.
    bandwidth: f64,
}

impl AndrewBench {
    fn measure_place(&self, place: BuildPlace, round: usize) -> Result<BuildSample> {
        match place {
            BuildPlace::Ext4 => {
                let (phases, client_cpu) = self.build_tree(&self.ext4)?;
                std::fs::remove_dir_all(self.ext4.join("work"))?;
                let (counts, drained, daemons) = (
                    UpstreamCounts::default(),
                    (UpstreamCounts::default(), 0.0),
                    (0.0, 0.0),
                );
                Ok(BuildSample {
                    place,
                    round,
                    phases,
                    client_cpu,
                    daemons,
                    counts,
                    drained,
                    load: load_average()?,
                })
            }
            BuildPlace::Teal(delay) => {
                let dir = self.dir.join(format!("{delay}-{round}"));
                let pair = ServedPair::begin_pair(&self.program, &dir, delay, self.bandwidth)?;
                let sample = self.on_replica(&pair, place, round)?;
                pair.end_pair()?;
                Ok(sample)
            }
        }
    }

    fn on_replica(
        &self,
        pair: &ServedPair,
        place: BuildPlace,
        round: usize,
    ) -> Result<BuildSample> {
        let (replica, nas) = (&pair.replica, &pair.nas);
        let processor = || -> Result<(f64, f64)> {
            Ok((server_cpu(&[replica.pid()?]), server_cpu(&[nas.pid()?])))
        };
        let (before, cpu) = (replica.read_counts()?, processor()?);
        let (phases, client_cpu) = self.build_tree(replica.mount_point())?;
        let (counts, after) = (replica.read_counts()?.since(&before), processor()?);
        // The flush behind the build is timed apart: users do not wait for it.
        let flushing = monotonic_seconds();
        replica.flush()?;
        let drained = (
            replica.read_counts()?.since(&before),
            monotonic_seconds() - flushing,
        );
        let daemons = (after.0 - cpu.0, after.1 - cpu.1);
        Ok(BuildSample {
            place,
            round,
            phases,
            client_cpu,
            daemons,
            counts,
            drained,
            load: load_average()?,
        })
    }

    fn build_tree(&self, point: &Path) -> Result<([f64; build::PHASES.len()], f64)> {
        let dir = point.join("work");
        std::fs::create_dir(&dir)?;
        let cpu = children_cpu()?;
        let mut phases = [0.0; build::PHASES.len()];
        for (phase, took) in build::PHASES.iter().zip(&mut phases) {
            let begun = monotonic_seconds();
            let is_done = phase.run_phase(
                &self.archive,
                &dir,
                &self.dir.join("said"),
                self.jobs,
                build::UNLIMITED,
            )?;
            ensure!(is_done, "{} took a day", phase.label());
            *took = monotonic_seconds() - begun;
            eprintln!("  {:<10} {took:7.1} s", phase.label());
        }
        Ok((phases, children_cpu()? - cpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::parse;

    #[test]
    fn arguments_say_what_is_measured() {
        let plan: AndrewArguments =
            parse(&["--rounds", "3", "--delays", "0,8", "--jobs", "4"]).unwrap();
        assert_eq!((plan.rounds, &*plan.delays, plan.jobs), (3, &[0, 8][..], 4));
        let plan: AndrewArguments = parse(&["--rounds", "0", "--peers", "sshfs,juicefs"]).unwrap();
        assert_eq!(
            (plan.rounds, &*plan.peers),
            (0, &[peers::PeerKind::Sshfs, peers::PeerKind::Juicefs][..])
        );
        assert!(plan.check_arguments().is_ok());
        let plan: AndrewArguments = parse(&["--rounds", "0", "--no-cold"]).unwrap();
        assert!(plan.check_arguments().is_err());
        for refused in [
            &["--peers", "nfs"][..],
            &["--delays", ""],
            &["--bandwidth", "0"],
            &["--rounds"],
            &["--fast"],
        ] {
            assert!(parse::<AndrewArguments>(refused).is_err(), "{refused:?}");
        }
    }
}
