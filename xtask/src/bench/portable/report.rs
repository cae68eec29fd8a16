//! The table for people and the raw samples for programs.

use super::super::lab::RunFacts;
use super::super::statistics::median_spread;
use super::arguments::PortableArguments;
use super::first::FirstByte;
use super::jump::DelayJump;
use super::samples::{ContentOrigin, RecordedActivity, ReplaySample};
use super::session::ReplayStep;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The goal of both together, as a ratio to the better of the two, ...
const BOTH: f64 = 1.1;
/// ... of the speed on the slowest line with the drive, as a ratio to that without, ...
const FASTER: f64 = 5.0;
/// ... of the first byte through the mount, as a ratio to the drive itself, ...
const FIRST: f64 = 2.0;
/// ... and the number of network accesses after which the choice follows a jump of the delay.
const ACCESSES: u64 = 20;

/// All measurements.
pub(super) struct PortableResults<'a> {
    pub(super) samples: &'a [ReplaySample],
    pub(super) firsts: &'a [FirstByte],
    pub(super) jump: Option<&'a DelayJump>,
    pub(super) trace: &'a RecordedActivity,
}

impl PortableResults<'_> {
    /// Returns the median seconds of a configuration on a line.
    fn median_seconds(&self, from: ContentOrigin, line: (f64, u64)) -> Option<f64> {
        let of =
            |sample: &&ReplaySample| sample.from == from && (sample.rate, sample.delay) == line;
        median_spread(self.samples.iter().filter(of).map(|sample| sample.seconds))
            .map(|spread| spread.median)
    }
}

fn format_seconds(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |value| format!("{value:.2}"))
}

pub(super) fn render_markdown(
    found: &PortableResults<'_>,
    plan: &PortableArguments,
    facts: &RunFacts,
) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "Measured {} at {}: Linux {}, {} cores, {} GiB of memory; load {}; {} rounds.",
        facts.date,
        facts.commit,
        facts.kernel,
        facts.cores,
        facts.memory_gib,
        facts.load,
        facts.rounds,
    );
    if !found.samples.is_empty() {
        write_lines(&mut out, found, plan);
    }
    if !found.firsts.is_empty() {
        write_firsts(&mut out, found.firsts);
    }
    if let Some(DelayJump {
        before,
        after,
        accesses,
    }) = found.jump
    {
        let _ = writeln!(
            out,
            "\nAfter a jump from {before} to {after} ms: {accesses} accesses of the network until \
                the drive is asked (goal {ACCESSES})."
        );
    }
    out
}

fn write_firsts(out: &mut String, firsts: &[FirstByte]) {
    let _ = writeln!(
        out,
        "\nThe first byte of a file that is on the drive and not here, and of one that is here; \
            medians.\n\n| drive | a block of it, ms | a file of 4 KiB through the mount, ms | \
            times that (goal {FIRST}) | reads of the drive for each | a file of 2 MiB, ms | from \
            the home log, ms |\n|---|---:|---:|---:|---:|---:|---:|"
    );
    for FirstByte {
        drive,
        own,
        mount,
        here,
        large,
        reads,
    } in firsts
    {
        let (reads, times) = (format_seconds(*reads), mount / own);
        let _ = writeln!(
            out,
            "| {drive} | {own:.3} | {mount:.3} | {times:.2} | {reads} | {large:.3} | {here:.3} |"
        );
    }
}

fn write_lines(out: &mut String, found: &PortableResults<'_>, plan: &PortableArguments) {
    let steps = &found.trace.steps;
    let writes = steps
        .iter()
        .filter(|step| matches!(step, ReplayStep::Write(..)))
        .count();
    let _ = writeln!(
        out,
        "The tree: {} files, {:.1} MiB. Recorded: {} steps, {writes} of them writes.\n",
        found.trace.files,
        found.trace.bytes as f64 / f64::from(1 << 20),
        steps.len(),
    );
    let _ = writeln!(
        out,
        "| line, Mbit/s | round trip, ms | no drive, s | drive only, s | both, s | both to the \
            better (goal {BOTH}) | no drive to both | content requests, no drive | with both | \
            waits for the server, no drive | with both |"
    );
    let _ = writeln!(out, "|---|{}", "---:|".repeat(10));
    for line in plan
        .rates
        .iter()
        .flat_map(|rate| plan.delays.iter().map(|delay| (*rate, *delay)))
    {
        let [server, drive, both] = ContentOrigin::ALL.map(|from| found.median_seconds(from, line));
        let better = server.into_iter().chain(drive).min_by(f64::total_cmp);
        let most = |from, count: fn(&ReplaySample) -> u64| {
            let of =
                |sample: &&ReplaySample| sample.from == from && (sample.rate, sample.delay) == line;
            found
                .samples
                .iter()
                .filter(of)
                .map(count)
                .max()
                .unwrap_or(0)
        };
        let over = |a: Option<f64>, b: Option<f64>| Some(a? / b?);
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            line.0,
            line.1,
            format_seconds(server),
            format_seconds(drive),
            format_seconds(both),
            format_seconds(over(both, better)),
            format_seconds(over(server, both)),
            most(ContentOrigin::Server, |sample| sample.requests),
            most(ContentOrigin::Both, |sample| sample.requests),
            most(ContentOrigin::Server, |sample| sample.waits),
            most(ContentOrigin::Both, |sample| sample.waits),
        );
    }
    let _ = writeln!(
        out,
        "\nGoal on the slowest line, farthest away: no drive to both at least {FASTER}, and both \
            the same from 30 ms on."
    );
}

pub(super) fn render_json(found: &PortableResults<'_>, facts: &RunFacts) -> Value {
    let sample = |s: &ReplaySample| {
        json!({
            "from": s.from.label(), "rate_mbit": s.rate, "delay_ms": s.delay, "round": s.round,
            "seconds": s.seconds,
            "waits": s.waits, "content_requests": s.requests, "fetched_bytes": s.fetched,
        })
    };
    let first = |f: &FirstByte| {
        json!({
            "drive": f.drive, "own_ms": f.own, "mount_ms": f.mount, "here_ms": f.here,
            "large_ms": f.large, "drive_reads": f.reads,
        })
    };
    let jump = found
        .jump
        .map(|j| json!({ "before_ms": j.before, "after_ms": j.after, "accesses": j.accesses }));
    json!({
        "date": facts.date, "commit": facts.commit, "kernel": facts.kernel, "cores": facts.cores,
        "load": facts.load,
        "rounds": facts.rounds, "seconds": facts.seconds, "files": found.trace.files,
        "bytes": found.trace.bytes,
        "steps": found.trace.steps.len(),
        "first": found.firsts.iter().map(first).collect::<Vec<_>>(), "jump": jump,
        "samples": found.samples.iter().map(sample).collect::<Vec<_>>(),
    })
}
