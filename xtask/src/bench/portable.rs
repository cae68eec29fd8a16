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

use super::andrew::pair::{BenchReplica, ServedLine, UpstreamCounts};
use super::lab::{self, RunSite};
use super::meter::monotonic_seconds;
use crate::arguments::{count, positive};
use anyhow::{Context as _, Result, ensure};
use first::FirstByte;
use jump::DelayJump;
use session::ReplayStep;
use std::path::{Path, PathBuf};

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum PortablePart {
    Lines,
    First,
    Jump,
}

/// Replays recorded activity with and without a drive, over slow lines (root).
#[derive(Debug, clap::Args)]
pub(crate) struct PortableArguments {
    /// No other part than this
    #[arg(long, value_name = "PART")]
    only: Option<PortablePart>,
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
enum ContentOrigin {
    Server,
    Drive,
    Both,
}

impl ContentOrigin {
    const ALL: [Self; 3] = [Self::Server, Self::Drive, Self::Both];

    fn label(self) -> &'static str {
        match self {
            Self::Server => "no drive",
            Self::Drive => "drive only",
            Self::Both => "both",
        }
    }
}

/// One replay.
#[derive(Debug)]
struct ReplaySample {
    from: ContentOrigin,
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
struct RecordedActivity {
    steps: Vec<ReplayStep>,
    files: u64,
    bytes: u64,
}

pub(crate) fn run_bench(plan: &PortableArguments) -> Result<bool> {
    let site = RunSite::begin_run("portable", plan.json.as_deref(), plan.dir.as_deref())?;
    lab::build_release(&[&["-p", "teal", "-p", "teal-lab", "--bins"]])?;
    let work = PortableBench {
        program: site.target.join("release/teal"),
        dir: site.dir.clone(),
    };

    let has = |part| plan.only.is_none_or(|only| only == part);
    let (mut samples, mut trace, mut firsts, mut jumped) =
        (Vec::new(), RecordedActivity::default(), Vec::new(), None);
    let nas = BenchReplica::serve_volume(&work.program, &work.dir.join("nas"))?;
    let stick = work.dir.join("stick");
    if has(PortablePart::Lines) {
        eprintln!("recording");
        trace = work.record_activity(&nas, &stick)?;
    }
    let line = ServedLine::to_volume(&work.program, &work.dir, nas)?;
    if has(PortablePart::Lines) {
        for round in 0..plan.rounds {
            work.replay_round(&line, plan, round, (&trace, &stick), &mut samples)?;
        }
    }
    if has(PortablePart::First) {
        for kind in &first::KINDS {
            eprintln!("first bytes: {}", kind.name);
            firsts.push(first::measure_first(&work, &line, kind)?);
        }
    }
    if has(PortablePart::Jump) {
        eprintln!("a jump of the delay");
        jumped = Some(jump::measure_jump(&work, &line)?);
    }
    let found = report::PortableResults {
        samples: &samples,
        firsts: &firsts,
        jump: jumped.as_ref(),
        trace: &trace,
    };
    let (json, table) = (
        |of: &_| report::render_json(&found, of),
        |of: &_| report::render_markdown(&found, plan, of),
    );
    let kept = site.write_results(plan.rounds, json, table)?;
    line.nas.unmount()?;
    println!("{kept}");
    Ok(true)
}

fn path_text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}

struct PortableBench {
    program: PathBuf,
    dir: PathBuf,
}

impl PortableBench {
    /// Lays out the tree on the serving machine, as it was before, and on a drive, too; and records
    /// what is done with a copy of it.
    fn record_activity(&self, nas: &BenchReplica, stick: &Path) -> Result<RecordedActivity> {
        let made = self.dir.join("usb.drive");
        nas.teal_device(&["add", path_text(&made)?, "--size", "512M", "--portable"])?;
        let tree = nas.mount_point().join("tree");
        session::lay_out(&tree)?;
        nas.flush()?;
        nas.teal_device(&["detach", "usb"])?;
        // Where it was made, it would be attached again.
        std::fs::rename(&made, stick)?;
        let copy = nas.mount_point().join("session");
        session::lay_out(&copy)?;
        nas.flush()?;
        nas.remount()?;
        let log = self.dir.join("session.trace");
        let steps = session::record_steps(nas, &copy, &log)?;
        std::fs::remove_dir_all(&copy)?;
        nas.flush()?;
        let (files, bytes) = session::count_tree(&tree)?;
        ensure!(!steps.is_empty(), "nothing was recorded");
        Ok(RecordedActivity {
            steps,
            files,
            bytes,
        })
    }

    /// One round through all lines.
    fn replay_round(
        &self,
        line: &ServedLine,
        plan: &PortableArguments,
        round: usize,
        (trace, stick): (&RecordedActivity, &Path),
        samples: &mut Vec<ReplaySample>,
    ) -> Result<()> {
        for (rate, delay) in plan
            .rates
            .iter()
            .flat_map(|rate| plan.delays.iter().map(|delay| (*rate, *delay)))
        {
            line.set_line(delay, rate)?;
            // The drive alone again on each line, as a measure of what else happens on the machine.
            for from in ContentOrigin::ALL {
                let name = format!("{}-{rate}-{delay}-{round}", from.label().replace(' ', "-"));
                eprint!("{name}: ");
                let (seconds, counts) = self.replay_once(line, &name, from, trace, stick)?;
                eprintln!("{seconds:.1} s");
                let [waits, requests, fetched] =
                    ["waits", "request_read", "fetched"].map(|name| counts.get(name));
                samples.push(ReplaySample {
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
    fn join_machine(
        &self,
        line: &ServedLine,
        name: &str,
        drive: Option<(&Path, &Path)>,
    ) -> Result<BenchReplica> {
        let home = line.join_machine(name)?;
        session::count_tree(&home.mount_point().join("tree"))?;
        if let Some((drive, stick)) = drive {
            std::fs::copy(stick, drive)?;
            // Written before it is read past the page cache: that is not the drive's time.
            std::fs::OpenOptions::new()
                .write(true)
                .open(drive)?
                .sync_all()?;
            home.teal_device(&["attach", path_text(drive)?])?;
        }
        Ok(home)
    }

    /// Takes a drive out, and the machine away.
    fn leave_machine(home: &BenchReplica, drive: &Path) -> Result<()> {
        if drive.exists() {
            home.teal_device(&["detach", "usb", "--fast"])?;
            std::fs::remove_file(drive)?;
        }
        home.unmount()
    }

    /// Seconds, and what passed between the machine and its server.
    fn replay_once(
        &self,
        line: &ServedLine,
        name: &str,
        from: ContentOrigin,
        trace: &RecordedActivity,
        stick: &Path,
    ) -> Result<(f64, UpstreamCounts)> {
        let drive = self.dir.join(format!("{name}.drive"));
        let home = self.join_machine(
            line,
            name,
            (from != ContentOrigin::Server).then_some((&*drive, stick)),
        )?;
        if from == ContentOrigin::Drive {
            line.nas.unmount()?;
        }
        let (before, begun) = (home.read_counts()?, monotonic_seconds());
        session::replay_steps(&trace.steps, &home.mount_point().join("tree"))?;
        let (seconds, counts) = (
            monotonic_seconds() - begun,
            home.read_counts()?.since(&before),
        );
        Self::leave_machine(&home, &drive)?;
        if from == ContentOrigin::Drive {
            line.nas.mount_again()?;
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
        let plan: PortableArguments = parse(&["--only", "jump"]).unwrap();
        assert_eq!(plan.only, Some(PortablePart::Jump));
        let plan: PortableArguments =
            parse(&["--rounds", "2", "--delays", "0,8", "--rates", "3"]).unwrap();
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
            assert!(parse::<PortableArguments>(refused).is_err(), "{refused:?}");
        }
    }
}
