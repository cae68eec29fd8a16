//! The table for people and the raw samples for programs.
//!
//! # Guarantees
//! 1. *Within a round*: a ratio is formed from two samples of the same round; over rounds comes the
//!    median with least and most.
//! 2. *The rule*: a ratio is met at its goal, or at [`ALLOWANCE`] times the mirror's if that is
//!    larger; barriers only at their goal.

use super::lab::RunFacts;
use super::meter::RowSample;
use super::rows::{BenchRow, GROUPS, RowGoal};
use super::statistics::{MedianSpread, median_spread};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The factor to a bare mirror that is allowed where the mirror itself misses the goal.
const ALLOWANCE: f64 = 1.25;

/// Barriers of the background (a commit after five seconds, a checkpoint) that no operation asked
/// for.
const BACKGROUND: f64 = 1.05;

type Take = fn(&RowSample) -> f64;

struct RowFigures<'a> {
    samples: &'a [RowSample],
    row: &'a BenchRow,
}

impl RowFigures<'_> {
    fn samples_of<'b>(&'b self, subject: &'b str) -> impl Iterator<Item = &'b RowSample> {
        self.samples
            .iter()
            .filter(move |sample| sample.row == self.row.name && sample.subject == subject)
    }

    /// Returns the ratio of `subject` to ext4, round by round.
    fn ratio_to_ext4(&self, subject: &str, take: Take) -> Option<MedianSpread> {
        let base = |round| {
            self.samples_of("ext4")
                .find(|sample| sample.round == round)
                .map(take)
        };
        median_spread(
            self.samples_of(subject)
                .filter_map(|sample| Some(take(sample) / base(sample.round)?)),
        )
    }

    fn median_of(&self, subject: &str, take: impl Fn(&RowSample) -> f64) -> Option<f64> {
        median_spread(self.samples_of(subject).map(take)).map(|spread| spread.median)
    }

    /// Returns the parts of the goal that are missed; `None` when the row has no goal or nothing
    /// was measured.
    fn missed_goals(&self) -> Option<Vec<&'static str>> {
        let RowGoal {
            time,
            cpu,
            barriers,
        } = self.row.goal;
        let over = |goal: Option<f64>, take: Take| {
            let (goal, is) = (goal?, self.ratio_to_ext4("teal", take)?.median);
            // No file system in user space can be better than a mirror that does nothing.
            let allowed = self
                .ratio_to_ext4("mirror", take)
                .map_or(goal, |mirror| goal.max(ALLOWANCE * mirror.median));
            Some(is > allowed)
        };
        let per_op = self.median_of("teal", |sample| {
            sample.counts.barriers as f64 / sample.ops as f64
        });
        let verdicts = [
            ("time", over(time, |sample| sample.wall)),
            ("CPU", over(cpu, RowSample::total_cpu)),
            (
                "barriers",
                barriers
                    .zip(per_op)
                    .map(|(goal, is)| is > goal * BACKGROUND),
            ),
        ];
        // Parts without a goal or a sample are not judged.
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

fn format_number(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

fn format_ratio(value: Option<MedianSpread>) -> String {
    value.map_or(
        "–".to_owned(),
        |MedianSpread {
             median,
             least,
             most,
         }| {
            if (most - least).abs() < f64::EPSILON {
                format_number(median)
            } else {
                format!(
                    "{} ({}..{})",
                    format_number(median),
                    format_number(least),
                    format_number(most)
                )
            }
        },
    )
}

fn format_goal(goal: RowGoal) -> String {
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

/// Returns a count of a row as `teal (other)`.
fn format_pair(
    figures: &RowFigures<'_>,
    other: &str,
    take: impl Fn(&RowSample) -> f64 + Copy,
) -> String {
    let shown = |subject| {
        figures
            .median_of(subject, take)
            .map_or("–".to_owned(), format_number)
    };
    format!("{} ({})", shown("teal"), shown(other))
}

fn all_rows() -> impl Iterator<Item = &'static BenchRow> {
    GROUPS.iter().flat_map(|group| group.rows)
}

pub(super) fn render_markdown(samples: &[RowSample], facts: &RunFacts) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "Measured {} at {}: Linux {}, {} cores, {} GiB of memory, a disk that is {}; load {} at \
            the end; {} rounds.\n",
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
    let measured = |row: &&BenchRow| samples.iter().any(|sample| sample.row == row.name);
    for row in all_rows().filter(measured) {
        let figures = RowFigures { samples, row };
        let [teal, mirror, juicefs] = ["teal", "mirror", "juicefs"]
            .map(|s| format_ratio(figures.ratio_to_ext4(s, |s| s.wall)));
        let met = match figures.missed_goals() {
            None => "–".to_owned(),
            Some(missed) if missed.is_empty() => "yes".to_owned(),
            Some(missed) => format!("**no** ({})", missed.join(", ")),
        };
        let _ = writeln!(
            out,
            "| {} | {} | {teal} | {mirror} | {juicefs} | {met} |",
            row.name,
            format_goal(row.goal)
        );
    }
    out.push_str("\nCounts: medians over rounds.\n\n");
    out.push_str(
        "| row | CPU to ext4: teal (mirror) | requests/op: teal (mirror) | barriers/op: \
        teal (ext4) ",
    );
    out.push_str(
        "| bytes written/user byte: teal (ext4) | device reads/op: teal (ext4) \
            |\n|---|---|---|---|---|---|\n",
    );
    for row in all_rows().filter(measured) {
        let figures = RowFigures { samples, row };
        let cpu = |s| {
            figures
                .ratio_to_ext4(s, RowSample::total_cpu)
                .map_or("–".to_owned(), |spread| format_number(spread.median))
        };
        let requests = format_pair(&figures, "mirror", |s| {
            s.counts.waited_for() as f64 / s.ops as f64
        });
        let barriers = format_pair(&figures, "ext4", |s| {
            s.counts.barriers as f64 / s.ops as f64
        });
        let bytes = format_pair(&figures, "ext4", |s| {
            s.counts.bytes_written as f64 / s.user_bytes as f64
        });
        let bytes = if bytes == "– (–)" {
            "–".to_owned()
        } else {
            bytes
        };
        let reads = format_pair(&figures, "ext4", |s| s.counts.reads as f64 / s.ops as f64);
        let (teal, mirror) = (cpu("teal"), cpu("mirror"));
        let _ = writeln!(
            out,
            "| {} | {teal} ({mirror}) | {requests} | {barriers} | {bytes} | {reads} |",
            row.name
        );
    }
    out
}

pub(super) fn render_json(samples: &[RowSample], facts: &RunFacts) -> Value {
    let samples: Vec<Value> = samples
        .iter()
        .map(|s| {
            json!({
                "row": s.row, "subject": s.subject, "round": s.round, "ops": s.ops,
                "user_bytes": s.user_bytes,
                "wall_seconds": s.wall, "client_cpu_seconds": s.client_cpu,
                "server_cpu_seconds": s.server_cpu,
                "requests": s.counts.requests, "barriers": s.counts.barriers,
                "writes": s.counts.writes,
                "bytes_written": s.counts.bytes_written, "reads": s.counts.reads,
                "bytes_read": s.counts.bytes_read,
            })
        })
        .collect();
    let machine = json!({
        "kernel": facts.kernel, "cores": facts.cores, "memory_gib": facts.memory_gib,
        "disk": facts.disk, "load": facts.load,
    });
    json!({
        "date": facts.date, "commit": facts.commit, "machine": machine, "rounds": facts.rounds,
        "seconds": facts.seconds,
        "samples": samples,
    })
}

#[cfg(test)]
mod tests;
