//! `cargo xtask bench portable`: recorded activity replayed on a machine that has nothing, with and
//! without a drive (BlueFS 5.4).
//!
//! # How
//! 1. Real activity is recorded on a mount ([`session`]): a script searches this project's own
//!    sources, edits some, and packs them all. A file that was read is read as a whole, one that
//!    was written is written as a whole, as in BlueFS's traces.
//! 2. The tree is on the serving machine and on a drive. For each line (Mbit/s, round trip) a
//!    machine joins over it, looks at all names, and then replays: without the drive, with both,
//!    and once with the drive and no server.
//! 3. Between the machines is a proxy (`delay_proxy`) with the round trip and the bandwidth that
//!    were asked for.
//! 4. Then the first byte of small files is read that only a drive has, beside blocks of the drive
//!    itself ([`first`]): of drives of several kinds.
//! 5. And the line's delay jumps while content is read that a slow drive has, too ([`jump`]).

mod arguments;
mod environment;
mod first;
mod jump;
mod report;
mod samples;
mod session;

use super::andrew::pair::{BenchReplica, ServedLine, UpstreamCounts};
use super::lab::RunSite;
use super::meter::monotonic_seconds;
use super::programs::build_release;
use anyhow::{Result, ensure};
pub(crate) use arguments::PortableArguments;
use arguments::PortablePart;
use environment::{PortableBench, path_text};
use samples::{ContentOrigin, RecordedActivity, ReplaySample};
use std::path::Path;

pub(crate) fn run_bench(plan: &PortableArguments) -> Result<bool> {
    let site = RunSite::begin_run("portable", plan.json.as_deref(), plan.dir.as_deref())?;
    build_release(&[&["-p", "teal", "-p", "teal-lab", "--bins"]])?;
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

impl PortableBench {
    /// Lays out the tree on the serving machine and on a drive, and records the activity in a copy
    /// of it.
    fn record_activity(&self, nas: &BenchReplica, stick: &Path) -> Result<RecordedActivity> {
        let made = self.dir.join("usb.drive");
        nas.teal_device(&["add", path_text(&made)?, "--size", "512M", "--portable"])?;
        let tree = nas.mount_point().join("tree");
        session::lay_out(&tree)?;
        nas.flush()?;
        nas.teal_device(&["detach", "usb"])?;
        // The drive is moved, since it would be attached again where it was made.
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

    /// Replays one round through all lines.
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

    /// Makes a machine that joins, knows all names, and has none of the content. With `drive`, a
    /// copy of `stick` is attached to it, so that every machine begins with the same drive.
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
            // The copy is written out first, so that its writing does not count as the drive's
            // time.
            std::fs::OpenOptions::new()
                .write(true)
                .open(drive)?
                .sync_all()?;
            home.teal_device(&["attach", path_text(drive)?])?;
        }
        Ok(home)
    }

    /// Detaches the drive, and unmounts the machine.
    fn leave_machine(home: &BenchReplica, drive: &Path) -> Result<()> {
        if drive.exists() {
            home.teal_device(&["detach", "usb", "--fast"])?;
            std::fs::remove_file(drive)?;
        }
        home.unmount()
    }

    /// Replays the activity once. Returns the seconds, and the counters of the requests to the
    /// server.
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
        // Without its server the machine has only the drive.
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
