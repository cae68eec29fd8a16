//! `cargo xtask bench portable`: recorded activity replayed on a machine that has nothing, with and without a drive (BlueFS 5.4).
//!
//! # How
//! 1. What happens is recorded from real activity ([`session`]): somebody searches this project's own sources, edits some, packs them all, on a mount. A
//!    file that was read is read as a whole, one that was written is written as a whole, as BlueFS's traces have it.
//! 2. The tree is on the serving machine and on a drive. For each line (Mbit/s, round trip) a machine joins over it, looks at all names, and
//!    then replays: without the drive, with both, and once with the drive and no server.
//! 3. Between the machines is a line of ours (`road`), with the round trip and the bandwidth that were asked for.
//! 4. Then the first byte of small files is read that only the drive has, beside reads of blocks of the drive's own file.

mod report;
mod session;

use super::andrew::pair::{Counts, Line, Replica};
use super::lab::{self, Site};
use super::meter::now;
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use session::Step;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

const HELP: &str = "\
cargo xtask bench portable [--rounds N] [--delays MS,MS,...] [--rates MBIT,MBIT,...] [--json FILE] [--dir DIR]
  --rounds N     rounds through all lines (1)
  --delays LIST  round trips to the server in milliseconds (0,30,60)
  --rates LIST   of the line each way, in Mbit/s (2,11)
  --json FILE    raw samples (target/bench/portable.json; the table goes beside it as .md)
  --dir DIR      where stores, drives and mounts lie (target/bench)";
/// Small files whose first byte is read.
const FIRST: usize = 200;

#[derive(Debug)]
struct Plan {
    rounds: usize,
    delays: Vec<u64>,
    rates: Vec<f64>,
    json: Option<PathBuf>,
    dir: Option<PathBuf>,
}

fn parse(args: &[&str]) -> Result<Option<Plan>> {
    let mut plan = Plan { rounds: 1, delays: vec![0, 30, 60], rates: vec![2.0, 11.0], json: None, dir: None };
    let mut args = args.iter();
    while let Some(&arg) = args.next() {
        let mut value = || args.next().copied().with_context(|| format!("{arg} needs a value"));
        match arg {
            "--rounds" => plan.rounds = value()?.parse().context("--rounds")?,
            "--delays" => {
                plan.delays = value()?.split(',').map(str::parse).collect::<Result<_, _>>().context("--delays")?;
            }
            "--rates" => {
                plan.rates = value()?.split(',').map(str::parse).collect::<Result<_, _>>().context("--rates")?;
            }
            "--json" => plan.json = Some(value()?.into()),
            "--dir" => plan.dir = Some(value()?.into()),
            "--help" => return Ok(None),
            _ => bail!("unknown argument {arg}\n{HELP}"),
        }
    }
    ensure!(plan.rounds > 0 && !plan.delays.is_empty(), "nothing would be measured");
    ensure!(!plan.rates.is_empty() && plan.rates.iter().all(|rate| *rate > 0.0), "--rates 0 moves nothing");
    Ok(Some(plan))
}

/// What content can come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    Server,
    Drive,
    Both,
}

impl From {
    const ALL: [Self; 3] = [Self::Server, Self::Drive, Self::Both];

    fn name(self) -> &'static str {
        match self {
            Self::Server => "no drive",
            Self::Drive => "drive only",
            Self::Both => "both",
        }
    }
}

/// One replay.
#[derive(Debug)]
struct Sample {
    from: From,
    /// Mbit/s, and milliseconds there and back.
    rate: f64,
    delay: u64,
    round: usize,
    seconds: f64,
    /// Times somebody waited for the server, requests for content, and bytes that came.
    waits: u64,
    requests: u64,
    fetched: u64,
}

/// Milliseconds until the first byte, medians: of the drive's own file, and through the mount.
#[derive(Debug, Clone, Copy)]
struct First {
    own: f64,
    mount: f64,
}

/// What was replayed.
#[derive(Debug, Default)]
struct Trace {
    steps: Vec<Step>,
    files: u64,
    bytes: u64,
}

pub(crate) fn bench(args: &[&str]) -> Result<bool> {
    let Some(plan) = parse(args)? else {
        println!("{HELP}");
        return Ok(true);
    };
    let site = Site::begin("portable", plan.json.as_deref(), plan.dir.as_deref())?;
    lab::build(&[&["-p", "teal", "--bin", "teal"]])?;
    let work = Work { program: site.target.join("release/teal"), dir: site.dir.clone() };

    eprintln!("recording");
    let stick = work.dir.join("stick");
    let (nas, trace) = work.record(&stick)?;
    let mut samples = Vec::new();
    let line = Line::to(&work.program, &work.dir, nas)?;
    for round in 0..plan.rounds {
        for (rate, delay) in plan.rates.iter().flat_map(|rate| plan.delays.iter().map(|delay| (*rate, *delay))) {
            line.set(delay, rate)?;
            // The drive alone again on each line, as a measure of what else happens on the machine.
            for from in &From::ALL {
                let name = format!("{}-{rate}-{delay}-{round}", from.name().replace(' ', "-"));
                eprint!("{name}: ");
                let sample = work.replay(&line, &name, *from, &trace, &stick)?;
                eprintln!("{:.1} s", sample.0);
                let (seconds, counts) = sample;
                let [waits, requests, fetched] = ["waits", "request_read", "fetched"].map(|name| counts.get(name));
                samples.push(Sample { from: *from, rate, delay, round, seconds, waits, requests, fetched });
            }
        }
    }
    eprintln!("first bytes");
    line.set(plan.delays[plan.delays.len() - 1], plan.rates[0])?;
    let first = work.first(&line, &stick)?;
    let found = report::Found { samples: &samples, first, trace: &trace };
    let (json, table) = (|of: &_| report::json(&found, of), |of: &_| report::markdown(&found, &plan, of));
    let kept = site.keep(plan.rounds, json, table)?;
    line.nas.down()?;
    println!("{kept}");
    Ok(true)
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}

struct Work {
    program: PathBuf,
    dir: PathBuf,
}

impl Work {
    /// The serving machine with the tree as it was before, which is on a drive, too; and what was done with a copy of it.
    fn record(&self, stick: &Path) -> Result<(Replica, Trace)> {
        let nas = Replica::serving(&self.program, &self.dir.join("nas"))?;
        let made = self.dir.join("usb.drive");
        nas.teal_device(&["add", text(&made)?, "--size", "512M", "--portable"])?;
        let tree = nas.point().join("tree");
        session::lay_out(&tree)?;
        nas.flush()?;
        nas.teal_device(&["detach", "usb"])?;
        // Where it was made, it would be attached again.
        std::fs::rename(&made, stick)?;
        let copy = nas.point().join("session");
        session::lay_out(&copy)?;
        nas.flush()?;
        nas.remount()?;
        let log = self.dir.join("session.trace");
        let steps = session::record(&nas, &copy, &log)?;
        std::fs::remove_dir_all(&copy)?;
        nas.flush()?;
        let (files, bytes) = session::measure(&tree)?;
        ensure!(!steps.is_empty(), "nothing was recorded");
        Ok((nas, Trace { steps, files, bytes }))
    }

    /// A machine that joins, knows all names, and has none of the content; `drive`: what is attached to it, a copy of `stick`: what is left on one is not the
    /// next one's.
    fn join(&self, line: &Line, name: &str, drive: Option<(&Path, &Path)>) -> Result<Replica> {
        let home = line.join(name)?;
        session::measure(&home.point().join("tree"))?;
        if let Some((drive, stick)) = drive {
            std::fs::copy(stick, drive)?;
            // Written before it is read past the page cache: that is not the drive's time.
            std::fs::OpenOptions::new().write(true).open(drive)?.sync_all()?;
            home.teal_device(&["attach", text(drive)?])?;
        }
        Ok(home)
    }

    /// Takes a drive out, and the machine away.
    fn leave(home: &Replica, drive: &Path) -> Result<()> {
        if drive.exists() {
            home.teal_device(&["detach", "usb", "--fast"])?;
            std::fs::remove_file(drive)?;
        }
        home.down()
    }

    /// Seconds, and what passed between the machine and its server.
    fn replay(&self, line: &Line, name: &str, from: From, trace: &Trace, stick: &Path) -> Result<(f64, Counts)> {
        let drive = self.dir.join(format!("{name}.drive"));
        let home = self.join(line, name, (from != From::Server).then_some((&*drive, stick)))?;
        if from == From::Drive {
            line.nas.down()?;
        }
        let (before, begun) = (home.counts()?, now());
        session::replay(&trace.steps, &home.point().join("tree"))?;
        let (seconds, counts) = (now() - begun, home.counts()?.since(&before));
        Self::leave(&home, &drive)?;
        if from == From::Drive {
            line.nas.up()?;
        }
        Ok((seconds, counts))
    }

    /// The first byte of files that only the drive and the server have.
    fn first(&self, line: &Line, stick: &Path) -> Result<First> {
        let drive = &self.dir.join("first.drive");
        line.nas.teal_device(&["attach", text(stick)?])?;
        let dir = line.nas.point().join("first");
        std::fs::create_dir(&dir)?;
        for n in 0..FIRST {
            std::fs::write(dir.join(n.to_string()), vec![n as u8 + 1; 4096])?;
        }
        line.nas.flush()?;
        line.nas.teal_device(&["detach", "usb"])?;
        let home = self.join(line, "first", Some((drive, stick)))?;
        let there = home.point().join("first");
        session::measure(&there)?;
        let timed = |read: &dyn Fn(usize) -> Result<()>| -> Result<f64> {
            let times: Result<Vec<f64>> = (0..FIRST)
                .map(|n| {
                    let begun = now();
                    read(n)?;
                    Ok((now() - begun) * 1e3)
                })
                .collect();
            Ok(super::statistics::spread(times?).context("no times")?.median)
        };
        let reads = || -> Result<u64> {
            let said: Value = serde_json::from_str(&home.teal_device(&["ls", "--json"])?)?;
            let counts: Vec<(String, u64)> = serde_json::from_value(said[0]["counts"].clone())?;
            counts.into_iter().find(|(name, _)| name == "reads").map(|(_, count)| count).context("no reads")
        };
        let before = reads()?;
        let mount = timed(&|n| {
            let file = std::fs::OpenOptions::new().read(true).open(there.join(n.to_string()))?;
            let mut byte = [0];
            file.read_exact_at(&mut byte, 0)?;
            ensure!(byte[0] == n as u8 + 1, "another byte");
            Ok(())
        })?;
        let from_it = reads()? - before;
        ensure!(from_it * 10 >= FIRST as u64 * 9, "only {from_it} of {FIRST} files came from the drive");
        let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
        let raw = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(drive)?;
        let own = timed(&|n| {
            let mut pages = vec![0_u8; 8192];
            let at = pages.as_ptr().align_offset(4096);
            Ok(raw.read_exact_at(&mut pages[at..at + 4096], (n as u64 * 7919 % 12_000) * 4096)?)
        })?;
        Self::leave(&home, drive)?;
        Ok(First { own, mount })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_say_what_is_measured() {
        let plan = parse(&["--rounds", "2", "--delays", "0,8", "--rates", "3"]).unwrap().unwrap();
        assert_eq!((plan.rounds, plan.delays, plan.rates), (2, vec![0, 8], vec![3.0]));
        assert!(parse(&["--rates", "0"]).is_err() && parse(&["--rounds", "0"]).is_err() && parse(&["--x"]).is_err());
    }
}
