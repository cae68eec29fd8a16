//! The table for people and the raw samples for programs.
//!
//! # Guarantees
//! 1. *Within a round*: a ratio is formed from two samples of the same round; over rounds comes the
//!    median with least and most.
//! 2. *Processor time* is that of the build and of the daemon it runs on; the server is another
//!    machine, and its time is counted apart.

use super::super::lab::RunFacts;
use super::super::statistics::{MedianSpread, median_spread};
use super::arguments::AndrewArguments;
use super::build::PHASES;
use super::cold::ColdMachines;
use super::pair::UpstreamCounts;
use super::peers;
use super::results::{AndrewResults, BuildPlace, BuildSample};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The goals of a build, as ratios to ext4 and to a server that is near.
const GOALS: (f64, f64) = (1.10, 1.05);
/// The goal of a cold machine, as a ratio to the time of the bytes alone.
const COLD_GOAL: f64 = 3.0;

impl BuildSample {
    pub(super) fn wall_seconds(&self) -> f64 {
        self.phases.iter().sum()
    }

    /// Returns the processor seconds of this machine.
    pub(super) fn cpu_seconds(&self) -> f64 {
        self.client_cpu + self.daemons.0
    }
}

/// Returns the ratio of `place` to `base`, round by round.
fn ratio_between(
    samples: &[BuildSample],
    place: BuildPlace,
    base: BuildPlace,
    take: fn(&BuildSample) -> f64,
) -> Option<MedianSpread> {
    let of = |place| samples.iter().filter(move |sample| sample.place == place);
    let base = |round| of(base).find(|sample| sample.round == round).map(take);
    median_spread(of(place).filter_map(|sample| Some(take(sample) / base(sample.round)?)))
}

fn format_spread(value: Option<MedianSpread>) -> String {
    value.map_or(
        "–".to_owned(),
        |MedianSpread {
             median,
             least,
             most,
         }| {
            if most - least < 0.005 {
                format!("{median:.2}")
            } else {
                format!("{median:.2} ({least:.2}..{most:.2})")
            }
        },
    )
}

fn sorted_places(samples: &[BuildSample]) -> Vec<BuildPlace> {
    let mut places: Vec<BuildPlace> = Vec::new();
    for sample in samples {
        if !places.contains(&sample.place) {
            places.push(sample.place);
        }
    }
    places.sort_by_key(|place| match place {
        BuildPlace::Ext4 => None,
        BuildPlace::Teal(delay) => Some(*delay),
    });
    places
}

pub(super) fn render_markdown(
    found: &AndrewResults,
    plan: &AndrewArguments,
    facts: &RunFacts,
) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "Measured {} at {}: Linux {}, {} cores, {} GiB of memory, a disk that is {}; a line of {} \
            Mbit/s; load {} at the end; {} rounds.\n",
        facts.date,
        facts.commit,
        facts.kernel,
        facts.cores,
        facts.memory_gib,
        facts.disk,
        plan.bandwidth,
        facts.load,
        facts.rounds
    );
    if !found.samples.is_empty() {
        write_builds(&mut out, &found.samples);
    }
    if let Some(cold) = &found.cold {
        write_cold(&mut out, cold, plan.bandwidth);
    }
    found
        .peers
        .iter()
        .for_each(|peer| write_peer(&mut out, peer, plan.bandwidth));
    out
}

fn write_builds(out: &mut String, samples: &[BuildSample]) {
    let names: Vec<&str> = PHASES.iter().map(|phase| phase.label()).collect();
    let _ = writeln!(
        out,
        "| place, round trip | {} | all, s | to ext4 (goal {:.2}) | to 0 ms (goal {:.2}) | \
            processor s | to ext4 | the server's, s | waits (goal 0) | requests | sent MiB | \
            flush behind it, s |",
        names.join(" | "),
        GOALS.0,
        GOALS.1
    );
    let _ = writeln!(out, "|---|{}", "---:|".repeat(names.len() + 10));
    for place in sorted_places(samples) {
        let of: Vec<&BuildSample> = samples
            .iter()
            .filter(|sample| sample.place == place)
            .collect();
        let median = |take: &dyn Fn(&BuildSample) -> f64| {
            median_spread(of.iter().map(|sample| take(sample))).map_or(f64::NAN, |s| s.median)
        };
        let phases =
            (0..names.len()).map(|at| format!("{:.1}", median(&|sample| sample.phases[at])));
        let near = if place == BuildPlace::Ext4 {
            None
        } else {
            ratio_between(
                samples,
                place,
                BuildPlace::Teal(0),
                BuildSample::wall_seconds,
            )
        };
        let most = |name: &str| {
            of.iter()
                .map(|sample| sample.counts.get(name))
                .max()
                .unwrap_or(0)
        };
        let _ = writeln!(
            out,
            "| {} | {} | {:.1} | {} | {} | {:.1} | {} | {:.1} | {} | {} | {:.1} | {:.1} |",
            place.label(),
            phases.collect::<Vec<_>>().join(" | "),
            median(&BuildSample::wall_seconds),
            format_spread(ratio_between(
                samples,
                place,
                BuildPlace::Ext4,
                BuildSample::wall_seconds
            )),
            format_spread(near),
            median(&BuildSample::cpu_seconds),
            format_spread(ratio_between(
                samples,
                place,
                BuildPlace::Ext4,
                BuildSample::cpu_seconds
            )),
            median(&|sample| sample.daemons.1),
            most("waits"),
            most("requests"),
            median(&|sample| to_mib(sample.drained.0.get("sent_bytes"))),
            median(&|sample| sample.drained.1),
        );
    }
}

/// Returns the number of requests of each kind.
fn format_requests(counts: &UpstreamCounts) -> String {
    let kinds = counts
        .0
        .iter()
        .filter_map(|(name, count)| Some((name.strip_prefix("request_")?, count)));
    let shown: Vec<String> = kinds
        .filter(|(_, count)| **count > 0)
        .map(|(kind, n)| format!("{n} {kind}"))
        .collect();
    shown.join(", ")
}

fn write_cold(out: &mut String, cold: &ColdMachines, mbit: f64) {
    let (look, build) = (&cold.look, &cold.build);
    let transfer = transfer_seconds(look.read.bytes, mbit);
    let _ = writeln!(
        out,
        "\nA machine that joins at {} ms and reads all of it: {} files, {:.1} MiB in {:.2} s. The \
            bytes alone take {transfer:.2} s: {:.2} times that \
         (goal {COLD_GOAL}). Operations waited {} times, {:.2} s together; requests: {}. Joining \
         took {:.1} s.",
        cold.delay,
        look.read.files,
        to_mib(look.read.bytes),
        look.seconds,
        look.seconds / transfer,
        look.counts.get("waits"),
        waited_seconds(&look.counts),
        format_requests(&look.counts),
        look.joined,
    );
    let (fetched, transfer) = (
        build.counts.get("fetched"),
        self::transfer_seconds(build.counts.get("fetched"), mbit),
    );
    let _ = writeln!(
        out,
        "\nA machine that joins at {} ms and builds it, having nothing of it: {:.1} s, of which \
            operations waited {} times, {:.2} s together, for {:.1} MiB \
         that take {transfer:.2} s alone: {:.2} times that (goal {COLD_GOAL}). Requests: {}.",
        cold.delay,
        build.seconds,
        build.counts.get("waits"),
        waited_seconds(&build.counts),
        to_mib(fetched),
        waited_seconds(&build.counts) / transfer,
        format_requests(&build.counts),
    );
}

fn write_peer(out: &mut String, peer: &peers::PeerSample, mbit: f64) {
    let (read, transfer) = (peer.read, transfer_seconds(peer.read.bytes, mbit));
    let phases: Vec<String> = PHASES
        .iter()
        .zip(&peer.phases)
        .enumerate()
        .map(|(at, (phase, seconds))| {
            let capped = if peer.is_capped && at + 1 == peer.phases.len() {
                ", capped"
            } else {
                ""
            };
            format!("{} {seconds:.1} s{capped}", phase.label())
        })
        .collect();
    let _ = writeln!(
        out,
        "\n{} at {} ms: reading {} files, {:.1} MiB cold took {:.1} s{}, {:.2} times what the \
            bytes alone take. Building: {}.",
        peer.kind.label(),
        peer.delay,
        read.files,
        to_mib(read.bytes),
        peer.read_seconds,
        if read.is_capped { " (capped)" } else { "" },
        peer.read_seconds / transfer,
        phases.join(", ")
    );
}

fn to_mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Returns the seconds in which operations waited for the server.
fn waited_seconds(counts: &UpstreamCounts) -> f64 {
    counts.get("waited_us") as f64 / 1e6
}

/// Returns the seconds that bytes take on a line of so many Mbit/s.
fn transfer_seconds(bytes: u64, mbit: f64) -> f64 {
    bytes as f64 * 8.0 / (mbit * 1e6)
}

pub(super) fn render_json(
    found: &AndrewResults,
    plan: &AndrewArguments,
    facts: &RunFacts,
) -> Value {
    let sample = |s: &BuildSample| {
        json!({
            "place": s.place.label(), "round": s.round, "phases": s.phases,
            "client_cpu_seconds": s.client_cpu,
            "daemon_cpu_seconds": s.daemons.0, "server_cpu_seconds": s.daemons.1,
            "counts": s.counts.0,
            "drained_counts": s.drained.0.0, "drain_seconds": s.drained.1, "load": s.load,
        })
    };
    let cold = found
        .cold
        .as_ref()
        .map(|ColdMachines { delay, look, build }| {
            let transfer = transfer_seconds(look.read.bytes, plan.bandwidth);
            json!({
                "delay_ms": delay, "files": look.read.files, "bytes": look.read.bytes,
                "seconds": look.seconds,
                "join_seconds": look.joined, "counts": look.counts.0, "transfer_seconds": transfer,
                "build_seconds": build.seconds, "build_counts": build.counts.0,
            })
        });
    let peer = |peer: &peers::PeerSample| {
        json!({
            "name": peer.kind.label(), "delay_ms": peer.delay, "files": peer.read.files,
            "bytes": peer.read.bytes,
            "read_seconds": peer.read_seconds, "read_is_capped": peer.read.is_capped,
            "phases": peer.phases,
            "is_capped": peer.is_capped,
        })
    };
    let machine = json!({
        "kernel": facts.kernel, "cores": facts.cores, "memory_gib": facts.memory_gib,
        "disk": facts.disk,
    });
    json!({
        "date": facts.date, "commit": facts.commit, "machine": machine, "rounds": facts.rounds,
        "seconds": facts.seconds,
        "load": facts.load, "jobs": plan.jobs, "bandwidth_mbit": plan.bandwidth, "cold": cold,
        "samples": found.samples.iter().map(sample).collect::<Vec<_>>(),
        "peers": found.peers.iter().map(peer).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::UpstreamCounts;
    use super::*;

    fn sample(place: BuildPlace, round: usize, all: f64) -> BuildSample {
        let counts = UpstreamCounts([("waits".to_owned(), 2)].into());
        let drained = (counts.clone(), 1.0);
        let phases = [all / 4.0; PHASES.len()];
        BuildSample {
            place,
            round,
            phases,
            client_cpu: all,
            daemons: (0.0, 3.0),
            counts,
            drained,
            load: 0.5,
        }
    }

    #[test]
    fn ratios_are_of_one_round_and_places_are_in_order() {
        let samples = [
            sample(BuildPlace::Teal(60), 0, 22.0),
            sample(BuildPlace::Ext4, 0, 20.0),
            sample(BuildPlace::Teal(60), 1, 12.0),
            sample(BuildPlace::Ext4, 1, 10.0),
            sample(BuildPlace::Teal(0), 1, 12.0),
        ];
        assert_eq!(
            format_spread(ratio_between(
                &samples,
                BuildPlace::Teal(60),
                BuildPlace::Ext4,
                BuildSample::wall_seconds
            )),
            "1.15 (1.10..1.20)"
        );
        assert_eq!(
            format_spread(ratio_between(
                &samples,
                BuildPlace::Teal(60),
                BuildPlace::Teal(0),
                BuildSample::wall_seconds
            )),
            "1.00"
        );
        assert_eq!(
            sorted_places(&samples),
            [BuildPlace::Ext4, BuildPlace::Teal(0), BuildPlace::Teal(60)]
        );
    }

    #[test]
    fn bytes_take_their_time_and_requests_are_named() {
        assert!((transfer_seconds(25_000_000, 100.0) - 2.0).abs() < 1e-9);
        let counts = [
            ("request_list", 3),
            ("request_read", 4),
            ("request_bye", 0),
            ("waits", 5),
        ];
        let counts = UpstreamCounts(
            counts
                .into_iter()
                .map(|(name, count)| (name.to_owned(), count))
                .collect(),
        );
        assert_eq!(format_requests(&counts), "3 list, 4 read");
    }
}
