//! The table for people and the raw samples for programs.
//!
//! # Guarantees
//! 1. *Within a round*: a ratio is formed from two samples of the same round; over rounds comes the median with least and most.
//! 2. *Whose time*: processor time is that of the build and of the daemon it runs on; the server is another machine, its time apart.

use super::super::lab::Facts;
use super::super::statistics::{Spread, spread};
use super::build::PHASES;
use super::{Cold, Place, Plan, Sample};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// What a build may take beside ext4, and beside a server that is near.
const GOALS: (f64, f64) = (1.10, 1.05);

impl Sample {
    pub(super) fn wall(&self) -> f64 {
        self.phases.iter().sum()
    }

    /// Of this machine.
    pub(super) fn processor(&self) -> f64 {
        self.client_cpu + self.daemons.0
    }
}

/// `place` to `base`, round by round.
fn ratio(samples: &[Sample], place: Place, base: Place, take: fn(&Sample) -> f64) -> Option<Spread> {
    let of = |place| samples.iter().filter(move |sample| sample.place == place);
    let base = |round| of(base).find(|sample| sample.round == round).map(take);
    spread(of(place).filter_map(|sample| Some(take(sample) / base(sample.round)?)))
}

fn shown(value: Option<Spread>) -> String {
    value.map_or("–".to_owned(), |Spread { median, least, most }| {
        if most - least < 0.005 { format!("{median:.2}") } else { format!("{median:.2} ({least:.2}..{most:.2})") }
    })
}

fn places(samples: &[Sample]) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    for sample in samples {
        if !places.contains(&sample.place) {
            places.push(sample.place);
        }
    }
    places.sort_by_key(|place| match place {
        Place::Ext4 => None,
        Place::Teal(delay) => Some(*delay),
    });
    places
}

pub(super) fn markdown(samples: &[Sample], cold: Option<&Cold>, plan: &Plan, facts: &Facts) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "Measured {} at {}: Linux {}, {} cores, {} GiB of memory, a disk that is {}; load {} at the end; {} rounds.\n",
        facts.date, facts.commit, facts.kernel, facts.cores, facts.memory_gib, facts.disk, facts.load, facts.rounds
    );
    let names: Vec<&str> = PHASES.iter().map(|phase| phase.name()).collect();
    let _ = writeln!(
        out,
        "| place, round trip | {} | all, s | to ext4 (goal {:.2}) | to 0 ms (goal {:.2}) | processor s | to ext4 | the server's, s | waits (goal 0) | requests | sent MiB | flush behind it, s |",
        names.join(" | "),
        GOALS.0,
        GOALS.1
    );
    let _ = writeln!(out, "|---|{}", "---:|".repeat(names.len() + 10));
    for place in places(samples) {
        let of: Vec<&Sample> = samples.iter().filter(|sample| sample.place == place).collect();
        let median =
            |take: &dyn Fn(&Sample) -> f64| spread(of.iter().map(|sample| take(sample))).map_or(f64::NAN, |s| s.median);
        let phases = (0..names.len()).map(|at| format!("{:.1}", median(&|sample| sample.phases[at])));
        let near = if place == Place::Ext4 { None } else { ratio(samples, place, Place::Teal(0), Sample::wall) };
        let most = |name: &str| of.iter().map(|sample| sample.counts.get(name)).max().unwrap_or(0);
        let _ = writeln!(
            out,
            "| {} | {} | {:.1} | {} | {} | {:.1} | {} | {:.1} | {} | {} | {:.1} | {:.1} |",
            place.name(),
            phases.collect::<Vec<_>>().join(" | "),
            median(&Sample::wall),
            shown(ratio(samples, place, Place::Ext4, Sample::wall)),
            shown(near),
            median(&Sample::processor),
            shown(ratio(samples, place, Place::Ext4, Sample::processor)),
            median(&|sample| sample.daemons.1),
            most("waits"),
            most("requests"),
            median(&|sample| sample.drained.0.get("sent_bytes") as f64) / f64::from(1 << 20),
            median(&|sample| sample.drained.1),
        );
    }
    if let Some(cold) = cold {
        let transfer = cold.transfer(plan.bandwidth);
        let _ = writeln!(
            out,
            "\nA machine that joins at {} ms and reads all of it: {} files, {:.1} MiB in {:.1} s, {} requests, {} of which an operation waited for; \
             joining took {:.1} s. The bytes alone take {transfer:.1} s at {} Mbit/s: {:.2} times that (goal 3).",
            cold.delay,
            cold.files,
            cold.bytes as f64 / f64::from(1 << 20),
            cold.seconds,
            cold.counts.get("requests"),
            cold.counts.get("waits"),
            cold.joined,
            plan.bandwidth,
            cold.seconds / transfer
        );
    }
    out
}

impl Cold {
    /// What its bytes take on a line of so many Mbit/s.
    fn transfer(&self, bandwidth: f64) -> f64 {
        self.bytes as f64 * 8.0 / (bandwidth * 1e6)
    }
}

pub(super) fn json(samples: &[Sample], cold: Option<&Cold>, plan: &Plan, facts: &Facts) -> Value {
    let samples: Vec<Value> = samples
        .iter()
        .map(|s| {
            json!({
                "place": s.place.name(), "round": s.round, "phases": s.phases, "client_cpu_seconds": s.client_cpu,
                "daemon_cpu_seconds": s.daemons.0, "server_cpu_seconds": s.daemons.1, "counts": s.counts.0,
                "drained_counts": s.drained.0.0, "drain_seconds": s.drained.1, "load": s.load,
            })
        })
        .collect();
    let cold = cold.map(|c| {
        json!({
            "delay_ms": c.delay, "files": c.files, "bytes": c.bytes, "seconds": c.seconds, "join_seconds": c.joined,
            "counts": c.counts.0, "transfer_seconds": c.transfer(plan.bandwidth), "bandwidth_mbit": plan.bandwidth,
        })
    });
    let machine =
        json!({ "kernel": facts.kernel, "cores": facts.cores, "memory_gib": facts.memory_gib, "disk": facts.disk });
    json!({
        "date": facts.date, "commit": facts.commit, "machine": machine, "rounds": facts.rounds, "seconds": facts.seconds,
        "load": facts.load, "jobs": plan.jobs, "samples": samples, "cold": cold,
    })
}

#[cfg(test)]
mod tests {
    use super::super::Counts;
    use super::*;

    fn sample(place: Place, round: usize, all: f64) -> Sample {
        let counts = Counts([("waits".to_owned(), 2)].into());
        let drained = (counts.clone(), 1.0);
        let phases = [all / 4.0; PHASES.len()];
        Sample { place, round, phases, client_cpu: all, daemons: (0.0, 3.0), counts, drained, load: 0.5 }
    }

    #[test]
    fn ratios_are_of_one_round_and_places_are_in_order() {
        let samples = [
            sample(Place::Teal(60), 0, 22.0),
            sample(Place::Ext4, 0, 20.0),
            sample(Place::Teal(60), 1, 12.0),
            sample(Place::Ext4, 1, 10.0),
            sample(Place::Teal(0), 1, 12.0),
        ];
        assert_eq!(shown(ratio(&samples, Place::Teal(60), Place::Ext4, Sample::wall)), "1.15 (1.10..1.20)");
        assert_eq!(shown(ratio(&samples, Place::Teal(60), Place::Teal(0), Sample::wall)), "1.00");
        assert_eq!(places(&samples), [Place::Ext4, Place::Teal(0), Place::Teal(60)]);
    }

    #[test]
    fn bytes_take_their_time() {
        let cold =
            Cold { delay: 30, joined: 0.0, files: 1, bytes: 25_000_000, seconds: 1.0, counts: Counts::default() };
        assert!((cold.transfer(100.0) - 2.0).abs() < 1e-9);
    }
}
