//! Formats the figures of a workload: for people, as Filebench prints them, and for programs.

use serde_json::{Value, json};
use std::fmt::Write as _;
use teal_study::workload::{LatencyFigures, RunOutcome, WorkloadPlan, preview_filesets};

const MIB: f64 = 1_048_576.0;
/// Shares of the percentiles that are shown.
const SHARES: [(&str, f64); 4] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p99_9", 0.999)];

fn to_millis(nanos: f64) -> f64 {
    nanos / 1e6
}

fn per_second(count: u64, nanos: u64) -> f64 {
    count as f64 * 1e9 / (nanos as f64).max(1.0)
}

/// Returns the lines at the end of a run.
pub(super) fn outcome_lines(outcome: &RunOutcome, plan: &WorkloadPlan) -> Vec<String> {
    let mut out = outcome_table(outcome, plan.options.strict);
    // The script asks for histograms with its own command.
    if plan.lathist {
        for line in &outcome.lines {
            let powers = line.figures.log2_histogram().map(|n| n.to_string());
            out.push(format!("{:<20} [ {} ]", line.name, powers.join(" ")));
        }
    }
    // Scaled figures must not be taken for those of the whole workload.
    if plan.options.scale != 1.0 {
        let sets = preview_filesets(plan);
        let sets = sets.iter().map(|set| {
            format!(
                "{} has {} of {} files",
                set.name, set.files, set.files_asked
            )
        });
        out.push(format!(
            "scaled by {}: {}",
            plan.options.scale,
            sets.collect::<Vec<_>>().join(", ")
        ));
    }
    out.push(format!(
        "{:.3} s by {} threads; ended because {}",
        outcome.nanos as f64 / 1e9,
        outcome.threads,
        outcome.ended
    ));
    out
}

/// Returns a line for each flowop, and the summary.
pub(super) fn outcome_table(outcome: &RunOutcome, strict: bool) -> Vec<String> {
    if strict {
        filebench_table(outcome)
    } else {
        teal_table(outcome)
    }
}

fn teal_table(outcome: &RunOutcome) -> Vec<String> {
    // The first column is as wide as the longest name.
    let wide = outcome
        .lines
        .iter()
        .map(|line| line.name.len())
        .max()
        .unwrap_or(0)
        .max(8);
    let mut out = vec![format!(
        "{:<wide$} {:>10} {:>11} {:>9} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "flowop", "ops", "ops/s", "MiB/s", "mean ms", "p50", "p95", "p99", "max"
    )];
    let mut row = |name: &str, figures: &LatencyFigures| {
        let mut line = format!(
            "{name:<wide$} {:>10} {:>11.1} {:>9.1} {:>10.4}",
            figures.count,
            per_second(figures.count, outcome.nanos),
            per_second(figures.bytes, outcome.nanos) / MIB,
            to_millis(figures.mean())
        );
        for (_, share) in &SHARES[..3] {
            let _ = write!(
                line,
                " {:>10.4}",
                to_millis(figures.percentile(*share) as f64)
            );
        }
        let _ = write!(line, " {:>10.4}", to_millis(figures.max as f64));
        out.push(line);
    };
    outcome
        .lines
        .iter()
        .for_each(|line| row(&line.name, &line.figures));
    let summary = outcome.summary();
    row("I/O", &summary.all);
    let (reads, writes) = (
        per_second(summary.reads, outcome.nanos),
        per_second(summary.writes, outcome.nanos),
    );
    out.push(format!("reads {reads:.1}/s, writes {writes:.1}/s"));
    // Openings take time, but are no operations of the script.
    if summary.all.opens > 0 {
        out.push(format!(
            "{} files were opened because nobody had; these are not in the counts",
            summary.all.opens
        ));
    }
    if summary.all.skips > 0 {
        out.push(format!(
            "{} files were not deleted because they were open elsewhere",
            summary.all.skips
        ));
    }
    out
}

/// Returns Filebench 1.5's lines, which other programs parse, in its order: the last first.
fn filebench_table(outcome: &RunOutcome) -> Vec<String> {
    let at = outcome.at as f64 / 1e9;
    let mut out = vec![format!("{at:.3}: Per-Operation Breakdown")];
    for line in outcome.lines.iter().rev() {
        let figures = &line.figures;
        out.push(format!(
            "{:<20} {}ops {:>8.0}ops/s {:>5.1}mb/s {:>8.3}ms/op [{:.3}ms - {:.3}ms]",
            line.name,
            figures.count,
            per_second(figures.count, outcome.nanos),
            per_second(figures.bytes, outcome.nanos) / MIB,
            to_millis(figures.mean()),
            to_millis(figures.min as f64),
            to_millis(figures.max as f64)
        ));
    }
    let summary = outcome.summary();
    out.push(format!(
        "{at:.3}: IO Summary: {:5} ops {:.3} ops/s {:.0}/{:.0} rd/wr {:>5.1}mb/s {:.3}ms/op",
        summary.all.count,
        per_second(summary.all.count, outcome.nanos),
        per_second(summary.reads, outcome.nanos),
        per_second(summary.writes, outcome.nanos),
        per_second(summary.all.bytes, outcome.nanos) / MIB,
        to_millis(summary.all.mean())
    ));
    out
}

fn figures_json(figures: &LatencyFigures, nanos: u64) -> Value {
    let mut latency = json!({ "mean": figures.mean(), "min": figures.min, "max": figures.max });
    for (name, share) in SHARES {
        latency[name] = json!(figures.percentile(share));
    }
    json!({
        "operations": figures.count,
        "per_second": per_second(figures.count, nanos),
        "bytes": figures.bytes,
        "bytes_per_second": per_second(figures.bytes, nanos),
        "implicit_opens": figures.opens,
        "skipped": figures.skips,
        "latency_ns": latency,
    })
}

/// Returns everything for programs; times are in nanoseconds.
pub(super) fn outcome_json(workload: &str, outcome: &RunOutcome, plan: &WorkloadPlan) -> Value {
    let summary = outcome.summary();
    let mut all = figures_json(&summary.all, outcome.nanos);
    all["reads"] = json!(summary.reads);
    all["writes"] = json!(summary.writes);
    let flowops = outcome.lines.iter().map(|line| {
        let mut flowop = figures_json(&line.figures, outcome.nanos);
        flowop["name"] = json!(line.name);
        flowop["kind"] = json!(line.kind.name());
        flowop
    });
    let sets = preview_filesets(plan).into_iter().map(|set| {
        json!({
            "name": set.name,
            "files": set.files,
            "files_asked": set.files_asked,
            "bytes": set.bytes,
            "directories": set.dirs,
            "mean_depth": set.depth,
            "prealloc_percent": set.prealloc,
        })
    });
    let variables = plan.options.set.iter();
    let variables: Vec<_> = variables
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let seconds = outcome.seconds.iter().map(|second| {
        json!({
            "at": second.at,
            "operations": second.operations,
            "reads": second.reads,
            "writes": second.writes,
            "bytes": second.bytes,
            "nanos": second.nanos,
        })
    });
    json!({
        "version": 1,
        "workload": workload,
        "dir": plan.options.dir,
        "scale": plan.options.scale,
        "seed": plan.options.seed,
        "set": variables,
        "strict_filebench": plan.options.strict,
        "nanos": outcome.nanos,
        "threads": outcome.threads,
        "ended": outcome.ended,
        "interrupted": outcome.was_interrupted,
        "filesets": sets.collect::<Vec<_>>(),
        "summary": all,
        "flowops": flowops.collect::<Vec<_>>(),
        "seconds": seconds.collect::<Vec<_>>(),
    })
}

/// Returns a row for each second.
pub(super) fn seconds_csv(outcome: &RunOutcome) -> String {
    let mut out = "second,operations,reads,writes,bytes,mean_ns\n".to_owned();
    for second in &outcome.seconds {
        let mean = second.nanos as f64 / (second.operations as f64).max(1.0);
        let (at, operations) = (second.at as f64 / 1e9, second.operations);
        let _ = writeln!(
            out,
            "{at:.3},{operations},{},{},{},{mean:.0}",
            second.reads, second.writes, second.bytes
        );
    }
    out
}
