//! `cargo xtask bench andrew`: unpack, configure, build and clean OpenSSH on ext4 and on a replica whose server is near and far.
//!
//! # How
//! 1. Places are ext4 (a loop device with direct I/O on the disk that is measured) and, for each round trip, a replica with a store on the
//!    same disk; its server is another mount on this machine, made anew for each.
//! 2. Places take turns: each round goes through all of them, beginning one further each time. A ratio is taken within a round.
//! 3. Between a replica and its server is a line of ours ([`road`]), with the round trip and the bandwidth that were asked for.
//! 4. Counts decide: `waits` is how often an operation had to wait for the server. Times are printed beside processor time, which
//!    others on the machine stretch less.
//! 5. Then a tree is unpacked on the serving machine, and two machines join at the middle delay: one reads all of it, one builds it.
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
use anyhow::{Context as _, Result, bail, ensure};
use cold::Cold;
use pair::{Counts, Pair};
use std::path::{Path, PathBuf};
use std::process::Command;

const HELP: &str = "\
cargo xtask bench andrew [--rounds N] [--delays MS,MS,...] [--jobs N] [--bandwidth MBIT] [--no-cold] [--peers NAME,...] [--json FILE] [--dir DIR]
  --rounds N        rounds through ext4 and all delays; 0: none (1)
  --delays LIST     round trips to the server in milliseconds (0,30,60)
  --jobs N          jobs of make (2)
  --bandwidth MBIT  of the line each way, in Mbit/s (100)
  --no-cold         without machines that join when the tree is there
  --peers LIST      of juicefs, sshfs: these too, at the middle delay; installs redis-server, openssh-server, sshfs
  --json FILE       raw samples (target/bench/andrew.json; the table goes beside it as .md)
  --dir DIR         where images and mounts lie: the disk that is measured (target/bench)";

#[derive(Debug)]
struct Plan {
    rounds: usize,
    delays: Vec<u64>,
    jobs: usize,
    bandwidth: f64,
    is_cold: bool,
    peers: Vec<peers::Kind>,
    json: Option<PathBuf>,
    dir: Option<PathBuf>,
}

fn parse(args: &[&str]) -> Result<Option<Plan>> {
    let (delays, bandwidth) = (vec![0, 30, 60], 100.0);
    let mut plan = Plan {
        rounds: 1,
        delays,
        jobs: 2,
        bandwidth,
        is_cold: true,
        peers: Vec::new(),
        json: None,
        dir: None,
    };
    let mut args = args.iter();
    while let Some(&arg) = args.next() {
        let mut value = || {
            args.next()
                .copied()
                .with_context(|| format!("{arg} needs a value"))
        };
        match arg {
            "--rounds" => plan.rounds = value()?.parse().context("--rounds")?,
            "--delays" => {
                plan.delays = value()?
                    .split(',')
                    .map(str::parse)
                    .collect::<Result<_, _>>()
                    .context("--delays")?;
            }
            "--jobs" => plan.jobs = value()?.parse().context("--jobs")?,
            "--no-cold" => plan.is_cold = false,
            "--peers" => {
                plan.peers = value()?
                    .split(',')
                    .map(peers::Kind::named)
                    .collect::<Result<_>>()?
            }
            "--bandwidth" => plan.bandwidth = value()?.parse().context("--bandwidth")?,
            "--json" => plan.json = Some(value()?.into()),
            "--dir" => plan.dir = Some(value()?.into()),
            "--help" => return Ok(None),
            _ => bail!("unknown argument {arg}\n{HELP}"),
        }
    }
    let is_something = (plan.rounds > 0 || plan.is_cold || !plan.peers.is_empty())
        && plan.jobs > 0
        && !plan.delays.is_empty();
    ensure!(is_something, "nothing would be measured");
    ensure!(plan.bandwidth > 0.0, "--bandwidth 0 moves nothing");
    Ok(Some(plan))
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

pub(crate) fn bench(args: &[&str]) -> Result<bool> {
    let Some(plan) = parse(args)? else {
        println!("{HELP}");
        return Ok(true);
    };
    let site = Site::begin("andrew", plan.json.as_deref(), plan.dir.as_deref())?;
    let target = &site.target;
    if plan.rounds > 0 || plan.is_cold {
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
            |of| report::json(found, &plan, of),
            |of| report::markdown(found, &plan, of),
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
    if plan.is_cold {
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

/// How many tasks of the machine want a processor, over a minute.
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

    #[test]
    fn arguments_say_what_is_measured() {
        let plan = parse(&["--rounds", "3", "--delays", "0,8", "--jobs", "4"])
            .unwrap()
            .unwrap();
        assert_eq!((plan.rounds, plan.delays, plan.jobs), (3, vec![0, 8], 4));
        assert!(parse(&["--peers", "nfs"]).is_err() && parse(&["--delays", ""]).is_err());
        let plan = parse(&["--rounds", "0", "--peers", "sshfs,juicefs"])
            .unwrap()
            .unwrap();
        assert_eq!(
            (plan.rounds, plan.peers),
            (0, vec![peers::Kind::Sshfs, peers::Kind::Juicefs])
        );
        assert!(
            parse(&["--rounds", "0", "--no-cold"]).is_err()
                && parse(&["--rounds"]).is_err()
                && parse(&["--fast"]).is_err()
        );
    }
}
