//! The table for people and the raw samples for programs.
//!
//! # Guarantees
//! 1. *Within a round*: a ratio is formed from two samples of the same round; over rounds comes the
//!    median with least and most.
//! 2. *The rule*: a ratio is met at its goal, or at [`ALLOWANCE`] times the mirror's if that is
//!    larger; barriers only at their goal.

use super::lab::Facts;
use super::meter::Sample;
use super::rows::{GROUPS, Goal, Row};
use super::statistics::{Spread, spread};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// How much more than a bare mirror a file system may cost where the mirror itself misses the goal.
const ALLOWANCE: f64 = 1.25;

/// Barriers of the background (a commit after five seconds, a checkpoint) that no operation asked
/// for.
const BACKGROUND: f64 = 1.05;

type Take = fn(&Sample) -> f64;

struct Figures<'a> {
    samples: &'a [Sample],
    row: &'a Row,
}

impl Figures<'_> {
    fn of<'b>(&'b self, subject: &'b str) -> impl Iterator<Item = &'b Sample> {
        self.samples
            .iter()
            .filter(move |sample| sample.row == self.row.name && sample.subject == subject)
    }

    /// `subject` to ext4, round by round.
    fn ratio(&self, subject: &str, take: Take) -> Option<Spread> {
        let base = |round| {
            self.of("ext4")
                .find(|sample| sample.round == round)
                .map(take)
        };
        spread(
            self.of(subject)
                .filter_map(|sample| Some(take(sample) / base(sample.round)?)),
        )
    }

    fn median(&self, subject: &str, take: impl Fn(&Sample) -> f64) -> Option<f64> {
        spread(self.of(subject).map(take)).map(|spread| spread.median)
    }

    /// Returns what of the goal is missed; `None` when nothing is asked or nothing was measured.
    fn missed(&self) -> Option<Vec<&'static str>> {
        let Goal {
            time,
            cpu,
            barriers,
        } = self.row.goal;
        let over = |goal: Option<f64>, take: Take| {
            let (goal, is) = (goal?, self.ratio("teal", take)?.median);
            let allowed = self
                .ratio("mirror", take)
                .map_or(goal, |mirror| goal.max(ALLOWANCE * mirror.median));
            Some(is > allowed)
        };
        let per_op = self.median("teal", |sample| {
            sample.counts.barriers as f64 / sample.ops as f64
        });
        let verdicts = [
            ("time", over(time, |sample| sample.wall)),
            ("CPU", over(cpu, Sample::cpu)),
            (
                "barriers",
                barriers
                    .zip(per_op)
                    .map(|(goal, is)| is > goal * BACKGROUND),
            ),
        ];
        let judged: Vec<_> = verdicts
            .into_iter()
            .filter_map(|(what, is_over)| Some((what, is_over?)))
            .collect();
        (!judged.is_empty()).then(|| {
            judged
                .into_iter()
                .filter(|(_, over)| *over)
                .map(|(what, _)| what)
                .collect()
        })
    }
}

fn number(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

fn ratio(value: Option<Spread>) -> String {
    value.map_or(
        "–".to_owned(),
        |Spread {
             median,
             least,
             most,
         }| {
            if (most - least).abs() < f64::EPSILON {
                number(median)
            } else {
                format!("{} ({}..{})", number(median), number(least), number(most))
            }
        },
    )
}

fn goal(goal: Goal) -> String {
    let parts = [
        (goal.time, ""),
        (goal.cpu, " CPU"),
        (goal.barriers, " barriers/op"),
    ];
    let parts: Vec<_> = parts
        .iter()
        .filter_map(|(value, what)| Some(format!("{}{what}", value.as_ref()?)))
        .collect();
    if parts.is_empty() {
        "–".to_owned()
    } else {
        parts.join(", ")
    }
}

/// `teal (other)`, of what a row counts.
fn pair(figures: &Figures<'_>, other: &str, take: impl Fn(&Sample) -> f64 + Copy) -> String {
    let shown = |subject| figures.median(subject, take).map_or("–".to_owned(), number);
    format!("{} ({})", shown("teal"), shown(other))
}

fn rows() -> impl Iterator<Item = &'static Row> {
    GROUPS.iter().flat_map(|group| group.rows)
}

pub(super) fn markdown(samples: &[Sample], facts: &Facts) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "Measured {} at {}: Linux {}, {} cores, {} GiB of memory, a disk that is {}; load {} at the end; {} rounds.\n",
        facts.date,
        facts.commit,
        facts.kernel,
        facts.cores,
        facts.memory_gib,
        facts.disk,
        facts.load,
        facts.rounds
    );
    out.push_str("Time, as a ratio to ext4: median (least..most).\n\n");
    out.push_str("| row | goal | teal | mirror | juicefs | met |\n|---|---|---|---|---|---|\n");
    let measured = |row: &&Row| samples.iter().any(|sample| sample.row == row.name);
    for row in rows().filter(measured) {
        let figures = Figures { samples, row };
        let [teal, mirror, juicefs] =
            ["teal", "mirror", "juicefs"].map(|s| ratio(figures.ratio(s, |s| s.wall)));
        let met = match figures.missed() {
            None => "–".to_owned(),
            Some(missed) if missed.is_empty() => "yes".to_owned(),
            Some(missed) => format!("**no** ({})", missed.join(", ")),
        };
        let _ = writeln!(
            out,
            "| {} | {} | {teal} | {mirror} | {juicefs} | {met} |",
            row.name,
            goal(row.goal)
        );
    }
    out.push_str("\nCounts: medians over rounds.\n\n");
    out.push_str("| row | CPU to ext4: teal (mirror) | requests/op: teal (mirror) | barriers/op: teal (ext4) ");
    out.push_str(
        "| bytes written/user byte: teal (ext4) | device reads/op: teal (ext4) |\n|---|---|---|---|---|---|\n",
    );
    for row in rows().filter(measured) {
        let figures = Figures { samples, row };
        let cpu = |s| {
            figures
                .ratio(s, Sample::cpu)
                .map_or("–".to_owned(), |spread| number(spread.median))
        };
        let requests = pair(&figures, "mirror", |s| {
            s.counts.waited_for() as f64 / s.ops as f64
        });
        let barriers = pair(&figures, "ext4", |s| {
            s.counts.barriers as f64 / s.ops as f64
        });
        let bytes = pair(&figures, "ext4", |s| {
            s.counts.bytes_written as f64 / s.user_bytes as f64
        });
        let bytes = if bytes == "– (–)" {
            "–".to_owned()
        } else {
            bytes
        };
        let reads = pair(&figures, "ext4", |s| s.counts.reads as f64 / s.ops as f64);
        let (teal, mirror) = (cpu("teal"), cpu("mirror"));
        let _ = writeln!(
            out,
            "| {} | {teal} ({mirror}) | {requests} | {barriers} | {bytes} | {reads} |",
            row.name
        );
    }
    out
}

pub(super) fn json(samples: &[Sample], facts: &Facts) -> Value {
    let samples: Vec<Value> = samples
        .iter()
        .map(|s| {
            json!({
                "row": s.row, "subject": s.subject, "round": s.round, "ops": s.ops, "user_bytes": s.user_bytes,
                "wall_seconds": s.wall, "client_cpu_seconds": s.client_cpu, "server_cpu_seconds": s.server_cpu,
                "requests": s.counts.requests, "barriers": s.counts.barriers, "writes": s.counts.writes,
                "bytes_written": s.counts.bytes_written, "reads": s.counts.reads, "bytes_read": s.counts.bytes_read,
            })
        })
        .collect();
    let machine = json!({
        "kernel": facts.kernel, "cores": facts.cores, "memory_gib": facts.memory_gib, "disk": facts.disk, "load": facts.load,
    });
    json!({
        "date": facts.date, "commit": facts.commit, "machine": machine, "rounds": facts.rounds, "seconds": facts.seconds,
        "samples": samples,
    })
}

#[cfg(test)]
mod tests;
