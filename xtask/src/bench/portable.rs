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

use super::andrew::pair::{Line, Replica};
use super::lab;
use super::meter::now;
use super::undo::{self, Undo};
use anyhow::{Context as _, Result, bail, ensure};
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
    /// Requests for content, and bytes that came with them.
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
    ensure!(rustix::process::geteuid().is_root(), "bench portable needs root: it mounts");
    let target = crate::test::target_directory()?;
    let json = plan.json.clone().unwrap_or_else(|| target.join("bench/portable.json"));
    std::fs::create_dir_all(json.parent().context("--json")?)?;
    lab::build(&[&["-p", "teal", "--bin", "teal"]])?;
    let _undo = undo::guard()?;
    let began = now();
    let dir = plan.dir.clone().unwrap_or_else(|| target.join("bench")).join(format!("portable-{}", std::process::id()));
    undo::note(Undo::Tree(dir.clone()));
    std::fs::create_dir_all(&dir)?;
    let work = Work { program: target.join("release/teal"), dir: dir.clone() };

    eprintln!("recording");
    let (nas, trace) = work.record()?;
    let (mut samples, mut first) = (Vec::new(), None);
    let stick = dir.join("usb.drive");
    nas.teal_device(&["add", text(&stick)?, "--size", "512M", "--portable"])?;
    nas.flush()?;
    nas.teal_device(&["detach", "usb"])?;
    let line = Line::to(&work.program, &dir, nas)?;
    for round in 0..plan.rounds {
        for (rate, delay) in plan.rates.iter().flat_map(|rate| plan.delays.iter().map(|delay| (*rate, *delay))) {
            line.set(delay, rate);
            let kinds = if (rate, delay) == (plan.rates[0], plan.delays[0]) {
                &From::ALL[..]
            } else {
                &[From::Server, From::Both]
            };
            for from in kinds {
                let name = format!("{}-{rate}-{delay}-{round}", from.name().replace(' ', "-"));
                eprint!("{name}: ");
                let sample = work.replay(&line, &name, *from, &trace, &stick, &mut first)?;
                eprintln!("{:.1} s", sample.0);
                let (seconds, requests, fetched) = sample;
                samples.push(Sample { from: *from, rate, delay, round, seconds, requests, fetched });
            }
        }
    }
    let facts = lab::facts(&dir, plan.rounds, now() - began)?;
    let found = report::Found { samples: &samples, first, trace: &trace };
    std::fs::write(&json, serde_json::to_string_pretty(&report::json(&found, &facts))?)?;
    let table = report::markdown(&found, &plan, &facts);
    std::fs::write(json.with_extension("md"), &table)?;
    line.nas.down()?;
    println!("{table}\nraw samples: {}", json.display());
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
    /// The serving machine with the tree as it was before, and what was done with it.
    fn record(&self) -> Result<(Replica, Trace)> {
        let nas = Replica::serving(&self.program, &self.dir.join("nas"))?;
        let tree = nas.point().join("tree");
        session::lay_out(&tree)?;
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

    /// Seconds, requests for content, bytes fetched.
    fn replay(
        &self,
        line: &Line,
        name: &str,
        from: From,
        trace: &Trace,
        stick: &Path,
        first: &mut Option<First>,
    ) -> Result<(f64, u64, u64)> {
        let home = line.join(name)?;
        let tree = home.point().join("tree");
        session::measure(&tree)?;
        // A copy each: what one run leaves on a drive is not the next one's.
        let drive = self.dir.join(format!("{name}.drive"));
        if from != From::Server {
            std::fs::copy(stick, &drive)?;
            home.teal_device(&["attach", text(&drive)?])?;
        }
        if from == From::Drive {
            line.nas.down()?;
        }
        let (before, begun) = (home.counts()?, now());
        session::replay(&trace.steps, &tree)?;
        let (seconds, counts) = (now() - begun, home.counts()?.since(&before));
        if from == From::Drive {
            line.nas.up()?;
            if first.is_none() {
                *first = Some(self.first(line, &drive, &home)?);
            }
        }
        if from != From::Server {
            home.teal_device(&["detach", "usb"])?;
            std::fs::remove_file(&drive)?;
        }
        home.down()?;
        Ok((seconds, counts.get("request_read"), counts.get("fetched")))
    }

    /// The first byte of files that only the drive and the server have.
    fn first(&self, line: &Line, drive: &Path, home: &Replica) -> Result<First> {
        home.teal_device(&["detach", "usb"])?;
        line.nas.teal_device(&["attach", text(drive)?])?;
        let dir = line.nas.point().join("first");
        std::fs::create_dir(&dir)?;
        for n in 0..FIRST {
            std::fs::write(dir.join(n.to_string()), vec![n as u8 + 1; 4096])?;
        }
        line.nas.flush()?;
        line.nas.teal_device(&["detach", "usb"])?;
        home.teal_device(&["attach", text(drive)?])?;
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
        let mount = timed(&|n| {
            let file = std::fs::OpenOptions::new().read(true).open(there.join(n.to_string()))?;
            let mut byte = [0];
            file.read_exact_at(&mut byte, 0)?;
            ensure!(byte[0] == n as u8 + 1, "another byte");
            Ok(())
        })?;
        let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
        let raw = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(drive)?;
        let own = timed(&|n| {
            let mut pages = vec![0_u8; 8192];
            let at = pages.as_ptr().align_offset(4096);
            Ok(raw.read_exact_at(&mut pages[at..at + 4096], (n as u64 * 7919 % 12_000) * 4096)?)
        })?;
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
