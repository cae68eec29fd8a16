//! `cargo xtask bench andrew`: unpack, configure, build and clean OpenSSH on ext4 and on a replica
//! whose server is near and far.
//!
//! # How
//! 1. Places are ext4 (a loop device with direct I/O on the disk that is measured) and, for each
//!    round trip, a replica with a store on the same disk; its server is another mount on this
//!    machine, made anew for each.
//! 2. Places take turns: each round goes through all of them, beginning one further each time. A
//!    ratio is taken within a round.
//! 3. Between a replica and its server is a line of ours ([`road`]), with the round trip and the
//!    bandwidth that were asked for.
//! 4. Counts decide: `waits` is how often an operation had to wait for the server. Times are
//!    printed beside processor time, which others on the machine stretch less.
//! 5. Then a tree is unpacked on the serving machine, and two machines join at the middle delay:
//!    one reads all of it, one builds it.
//! 6. With `--peers`, others do the same over the same line ([`peers`]).

mod build;
mod cold;
pub(super) mod pair;
mod peers;
mod report;
pub(super) mod road;

use super::lab::{self, Site, run};
use super::meter::{children_cpu, now, server_cpu};
use super::undo::{self, Undo};
use crate::arguments::{count, positive};
use anyhow::{Context as _, Result, ensure};
use cold::Cold;
use pair::{Counts, Pair};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds OpenSSH on ext4 and on a replica whose server is near and far (root).
#[derive(Debug, clap::Args)]
pub(crate) struct Plan {
    /// Rounds through ext4 and all delays; 0: none
    #[arg(long, value_name = "N", default_value = "1")]
    rounds: usize,
    /// Round trips to the server in milliseconds
    #[arg(
        long,
        value_name = "MS,MS,...",
        value_delimiter = ',',
        default_value = "0,30,60"
    )]
    delays: Vec<u64>,
    /// Jobs of make
    #[arg(long, value_name = "N", default_value = "2", value_parser = count(1))]
    jobs: usize,
    /// Bandwidth of the line each way, in Mbit/s
    #[arg(long, value_name = "MBIT", default_value = "100", value_parser = positive)]
    bandwidth: f64,
    /// Without machines that join when the tree is there
    #[arg(long)]
    no_cold: bool,
    /// These too, at the middle delay: juicefs, sshfs; installs redis-server, openssh-server, sshfs
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = peers::Kind::named)]
    peers: Vec<peers::Kind>,
    /// Raw samples; the table goes beside them as .md [default: target/bench/andrew.json]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where images and mounts lie: the disk that is measured [default: target/bench]
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl Plan {
    fn is_cold(&self) -> bool {
        !self.no_cold
    }

    /// Refuses arguments that leave nothing to measure.
    fn check(&self) -> Result<()> {
        let is_something = self.rounds > 0 || self.is_cold() || !self.peers.is_empty();
        ensure!(is_something, "nothing would be measured");
        Ok(())
    }
}

/// Where the tree is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Ext4,
    /// A replica, with this round trip to its server in milliseconds.
    Teal(u64),
}

impl Place {
    fn name(self) -> String {
        match self {
            Self::Ext4 => "ext4".to_owned(),
            Self::Teal(delay) => format!("teal, {delay} ms"),
        }
    }
}

/// One build in one place.
#[derive(Debug)]
struct Sample {
    place: Place,
    round: usize,
    /// Wall seconds of each phase, in the order of [`build::PHASES`].
    phases: [f64; build::PHASES.len()],
    /// Processor seconds of the build.
    client_cpu: f64,
    /// Processor seconds of the replica's daemon, and of the one that serves.
    daemons: (f64, f64),
    /// What passed between replica and server from the first phase to the end of the last.
    counts: Counts,
    /// The same, until a flush behind it had ended, and the seconds it took.
    drained: (Counts, f64),
    /// Of the machine, when it had ended.
    load: f64,
}

/// All that was measured so far.
#[derive(Debug, Default)]
struct Found {
    samples: Vec<Sample>,
    cold: Option<Cold>,
    peers: Vec<peers::Sample>,
}

pub(crate) fn bench(plan: &Plan) -> Result<bool> {
    plan.check()?;
    let site = Site::begin("andrew", plan.json.as_deref(), plan.dir.as_deref())?;
    let target = &site.target;
    if plan.rounds > 0 || plan.is_cold() {
        lab::build(&[&["-p", "teal", "--bin", "teal"]])?;
    }
    let archive = build::source(&target.join("bench/openssh"))?;
    let ext4 = attach_ext4(&site.dir)?;
    let (program, dir, bandwidth) = (
        target.join("release/teal"),
        site.dir.clone(),
        plan.bandwidth,
    );
    let work = Work {
        program,
        archive,
        dir,
        ext4,
        jobs: plan.jobs,
        bandwidth,
    };
    let places: Vec<Place> = [Place::Ext4]
        .into_iter()
        .chain(plan.delays.iter().copied().map(Place::Teal))
        .collect();
    let middle = plan.delays[plan.delays.len() / 2];
    let mut found = Found::default();
    // A run takes long: what is known so far is kept.
    let keep = |found: &Found, rounds| -> Result<String> {
        site.keep(
            rounds,
            |of| report::json(found, plan, of),
            |of| report::markdown(found, plan, of),
        )
    };
    for round in 0..plan.rounds {
        let mut turn = places.clone();
        turn.rotate_left(round % places.len());
        for place in turn {
            eprintln!("round {}/{}: {}", round + 1, plan.rounds, place.name());
            found
                .samples
                .push(work.measure(place, round).with_context(|| place.name())?);
            keep(&found, round + 1)?;
        }
    }
    if plan.is_cold() {
        eprintln!("machines that join, {middle} ms");
        let pair = Pair::begin(&work.program, &work.dir.join("cold"), middle, bandwidth)?;
        found.cold = Some(cold::measure(
            &pair,
            middle,
            &work.archive,
            &work.dir.join("said"),
            plan.jobs,
        )?);
        pair.end()?;
        keep(&found, plan.rounds)?;
    }
    let (dir, archive) = (&work.dir, &work.archive);
    let with = peers::Setting {
        target,
        dir,
        archive,
        jobs: plan.jobs,
        delay: middle,
        mbit: bandwidth,
    };
    for kind in &plan.peers {
        eprintln!("{}, {middle} ms", kind.name());
        found
            .peers
            .push(peers::measure(*kind, &with).with_context(|| kind.name())?);
        keep(&found, plan.rounds)?;
    }
    println!("{}", keep(&found, plan.rounds)?);
    Ok(true)
}

/// An ext4 of its own, mounted.
fn attach_ext4(dir: &Path) -> Result<PathBuf> {
    let (image, point) = (dir.join("ext4.img"), dir.join("ext4"));
    std::fs::create_dir(&point)?;
    run(Command::new("fallocate").args(["-l", "2G"]).arg(&image))?;
    run(Command::new("mkfs.ext4")
        .args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
        .arg(&image))?;
    let attached = run(Command::new("losetup")
        .args(["--direct-io=on", "--show", "-f"])
        .arg(&image))?;
    let device = PathBuf::from(attached.trim());
    undo::note(Undo::Loop(device.clone()));
    undo::note(Undo::Mount(point.clone()));
    run(Command::new("mount")
        .args(["-t", "ext4"])
        .arg(&device)
        .arg(&point))?;
    Ok(point)
}

/// Returns how many tasks of the machine want a processor, over a minute.
fn load() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/loadavg")?;
    Ok(text.split(' ').next().unwrap_or_default().parse()?)
}

/// What every build needs.
struct Work {
    program: PathBuf,
    archive: PathBuf,
    dir: PathBuf,
    ext4: PathBuf,
    jobs: usize,
    /// Of the line, in Mbit/s each way.
    bandwidth: f64,
}

impl Work {
    fn measure(&self, place: Place, round: usize) -> Result<Sample> {
        match place {
            Place::Ext4 => {
                let (phases, client_cpu) = self.build(&self.ext4)?;
                std::fs::remove_dir_all(self.ext4.join("work"))?;
                let (counts, drained, daemons) =
                    (Counts::default(), (Counts::default(), 0.0), (0.0, 0.0));
                Ok(Sample {
                    place,
                    round,
                    phases,
                    client_cpu,
                    daemons,
                    counts,
                    drained,
                    load: load()?,
                })
            }
            Place::Teal(delay) => {
                let dir = self.dir.join(format!("{delay}-{round}"));
                let pair = Pair::begin(&self.program, &dir, delay, self.bandwidth)?;
                let sample = self.on_replica(&pair, place, round)?;
                pair.end()?;
                Ok(sample)
            }
        }
    }

    fn on_replica(&self, pair: &Pair, place: Place, round: usize) -> Result<Sample> {
        let (replica, nas) = (&pair.replica, &pair.nas);
        let processor = || -> Result<(f64, f64)> {
            Ok((server_cpu(&[replica.pid()?]), server_cpu(&[nas.pid()?])))
        };
        let (before, cpu) = (replica.counts()?, processor()?);
        let (phases, client_cpu) = self.build(replica.point())?;
        let (counts, after) = (replica.counts()?.since(&before), processor()?);
        let flushing = now();
        replica.flush()?;
        let drained = (replica.counts()?.since(&before), now() - flushing);
        let daemons = (after.0 - cpu.0, after.1 - cpu.1);
        Ok(Sample {
            place,
            round,
            phases,
            client_cpu,
            daemons,
            counts,
            drained,
            load: load()?,
        })
    }

    fn build(&self, point: &Path) -> Result<([f64; build::PHASES.len()], f64)> {
        let dir = point.join("work");
        std::fs::create_dir(&dir)?;
        let cpu = children_cpu()?;
        let mut phases = [0.0; build::PHASES.len()];
        for (phase, took) in build::PHASES.iter().zip(&mut phases) {
            let begun = now();
            let is_done = phase.run(
                &self.archive,
                &dir,
                &self.dir.join("said"),
                self.jobs,
                build::UNLIMITED,
            )?;
            ensure!(is_done, "{} took a day", phase.name());
            *took = now() - begun;
            eprintln!("  {:<10} {took:7.1} s", phase.name());
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
        let plan: Plan = parse(&["--rounds", "3", "--delays", "0,8", "--jobs", "4"]).unwrap();
        assert_eq!((plan.rounds, &*plan.delays, plan.jobs), (3, &[0, 8][..], 4));
        let plan: Plan = parse(&["--rounds", "0", "--peers", "sshfs,juicefs"]).unwrap();
        assert_eq!(
            (plan.rounds, &*plan.peers),
            (0, &[peers::Kind::Sshfs, peers::Kind::Juicefs][..])
        );
        assert!(plan.check().is_ok());
        let plan: Plan = parse(&["--rounds", "0", "--no-cold"]).unwrap();
        assert!(plan.check().is_err());
        for refused in [
            &["--peers", "nfs"][..],
            &["--delays", ""],
            &["--bandwidth", "0"],
            &["--rounds"],
            &["--fast"],
        ] {
            assert!(parse::<Plan>(refused).is_err(), "{refused:?}");
        }
    }
}
