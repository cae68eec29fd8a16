//! `cargo xtask bench portable`: recorded activity replayed on a machine that has nothing, with and
//! without a drive (BlueFS 5.4).
//!
//! # How
//! 1. What happens is recorded from real activity ([`session`]): somebody searches this project's
//!    own sources, edits some, packs them all, on a mount. A file that was read is read as a whole,
//!    one that was written is written as a whole, as BlueFS's traces have it.
//! 2. The tree is on the serving machine and on a drive. For each line (Mbit/s, round trip) a
//!    machine joins over it, looks at all names, and then replays: without the drive, with both,
//!    and once with the drive and no server.
//! 3. Between the machines is a line of ours (`road`), with the round trip and the bandwidth that
//!    were asked for.
//! 4. Then the first byte of small files is read that only a drive has, beside blocks of the drive
//!    itself ([`first`]): of drives of several kinds.
//! 5. And the line's delay jumps while content is read that a slow drive has, too ([`jump`]).

mod first;
mod jump;
mod report;
mod session;

use super::andrew::pair::{Counts, Line, Replica};
use super::lab::{self, Site};
use super::meter::now;
use crate::arguments::{count, positive};
use anyhow::{Context as _, Result, ensure};
use first::First;
use jump::Jump;
use session::Step;
use std::path::{Path, PathBuf};

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Lines,
    First,
    Jump,
}

/// Replays recorded activity with and without a drive, over slow lines (root).
#[derive(Debug, clap::Args)]
pub(crate) struct Plan {
    /// No other part than this
    #[arg(long, value_name = "PART")]
    only: Option<Part>,
    /// Rounds through all lines
    #[arg(long, value_name = "N", default_value = "1", value_parser = count(1))]
    rounds: usize,
    /// Round trips to the server in milliseconds
    #[arg(
        long,
        value_name = "MS,MS,...",
        value_delimiter = ',',
        default_value = "0,30,60"
    )]
    delays: Vec<u64>,
    /// Bandwidths of the line each way, in Mbit/s
    #[arg(
        long,
        value_name = "MBIT,MBIT,...",
        value_delimiter = ',',
        default_value = "2,11",
        value_parser = positive
    )]
    rates: Vec<f64>,
    /// Raw samples; the table goes beside them as .md [default: target/bench/portable.json]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where stores, drives and mounts lie [default: target/bench]
    #[arg(long)]
    dir: Option<PathBuf>,
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

/// What was replayed.
#[derive(Debug, Default)]
struct Trace {
    steps: Vec<Step>,
    files: u64,
    bytes: u64,
}

pub(crate) fn bench(plan: &Plan) -> Result<bool> {
    let site = Site::begin("portable", plan.json.as_deref(), plan.dir.as_deref())?;
    lab::build(&[&["-p", "teal", "-p", "teal-lab", "--bins"]])?;
    let work = Work {
        program: site.target.join("release/teal"),
        dir: site.dir.clone(),
    };

    let has = |part| plan.only.is_none_or(|only| only == part);
    let (mut samples, mut trace, mut firsts, mut jumped) =
        (Vec::new(), Trace::default(), Vec::new(), None);
    let nas = Replica::serving(&work.program, &work.dir.join("nas"))?;
    let stick = work.dir.join("stick");
    if has(Part::Lines) {
        eprintln!("recording");
        trace = work.record(&nas, &stick)?;
    }
    let line = Line::to(&work.program, &work.dir, nas)?;
    if has(Part::Lines) {
        for round in 0..plan.rounds {
            work.replays(&line, plan, round, (&trace, &stick), &mut samples)?;
        }
    }
    if has(Part::First) {
        for kind in &first::KINDS {
            eprintln!("first bytes: {}", kind.name);
            firsts.push(first::measure(&work, &line, kind)?);
        }
    }
    if has(Part::Jump) {
        eprintln!("a jump of the delay");
        jumped = Some(jump::measure(&work, &line)?);
    }
    let found = report::Found {
        samples: &samples,
        firsts: &firsts,
        jump: jumped.as_ref(),
        trace: &trace,
    };
    let (json, table) = (
        |of: &_| report::json(&found, of),
        |of: &_| report::markdown(&found, plan, of),
    );
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
    /// Lays out the tree on the serving machine, as it was before, and on a drive, too; and records
    /// what is done with a copy of it.
    fn record(&self, nas: &Replica, stick: &Path) -> Result<Trace> {
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
        let steps = session::record(nas, &copy, &log)?;
        std::fs::remove_dir_all(&copy)?;
        nas.flush()?;
        let (files, bytes) = session::measure(&tree)?;
        ensure!(!steps.is_empty(), "nothing was recorded");
        Ok(Trace {
            steps,
            files,
            bytes,
        })
    }

    /// One round through all lines.
    fn replays(
        &self,
        line: &Line,
        plan: &Plan,
        round: usize,
        (trace, stick): (&Trace, &Path),
        samples: &mut Vec<Sample>,
    ) -> Result<()> {
        for (rate, delay) in plan
            .rates
            .iter()
            .flat_map(|rate| plan.delays.iter().map(|delay| (*rate, *delay)))
        {
            line.set(delay, rate)?;
            // The drive alone again on each line, as a measure of what else happens on the machine.
            for from in From::ALL {
                let name = format!("{}-{rate}-{delay}-{round}", from.name().replace(' ', "-"));
                eprint!("{name}: ");
                let (seconds, counts) = self.replay(line, &name, from, trace, stick)?;
                eprintln!("{seconds:.1} s");
                let [waits, requests, fetched] =
                    ["waits", "request_read", "fetched"].map(|name| counts.get(name));
                samples.push(Sample {
                    from,
                    rate,
                    delay,
                    round,
                    seconds,
                    waits,
                    requests,
                    fetched,
                });
            }
        }
        Ok(())
    }

    /// A machine that joins, knows all names, and has none of the content; `drive`: what is
    /// attached to it, a copy of `stick`: what is left on one is not the next one's.
    fn join(&self, line: &Line, name: &str, drive: Option<(&Path, &Path)>) -> Result<Replica> {
        let home = line.join(name)?;
        session::measure(&home.point().join("tree"))?;
        if let Some((drive, stick)) = drive {
            std::fs::copy(stick, drive)?;
            // Written before it is read past the page cache: that is not the drive's time.
            std::fs::OpenOptions::new()
                .write(true)
                .open(drive)?
                .sync_all()?;
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
    fn replay(
        &self,
        line: &Line,
        name: &str,
        from: From,
        trace: &Trace,
        stick: &Path,
    ) -> Result<(f64, Counts)> {
        let drive = self.dir.join(format!("{name}.drive"));
        let home = self.join(
            line,
            name,
            (from != From::Server).then_some((&*drive, stick)),
        )?;
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::parse;

    #[test]
    fn arguments_say_what_is_measured() {
        let plan: Plan = parse(&["--only", "jump"]).unwrap();
        assert_eq!(plan.only, Some(Part::Jump));
        let plan: Plan = parse(&["--rounds", "2", "--delays", "0,8", "--rates", "3"]).unwrap();
        assert_eq!(
            (plan.rounds, plan.delays, plan.rates),
            (2, vec![0, 8], vec![3.0])
        );
        for refused in [
            &["--only", "all"][..],
            &["--rates", "0"],
            &["--rounds", "0"],
            &["--x"],
        ] {
            assert!(parse::<Plan>(refused).is_err(), "{refused:?}");
        }
    }
}
