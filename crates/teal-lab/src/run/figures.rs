//! Formats the figures of a workload: for people, as Filebench prints them, and for programs.

use serde_json::{Value, json};
use std::fmt::Write as _;
use teal_study::workload::{
    FilesetPreview, LatencyFigures, RunOutcome, RunSummary, WorkloadPlan, preview_filesets,
};

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
        out.push(format!(
            "scaled by {}: {}",
            plan.options.scale,
            describe_scaling(&preview_filesets(plan))
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

/// Describes what scaling has done: sets with fewer files by their names, and the number of those
/// whose files keep their number and have other sizes.
fn describe_scaling(sets: &[FilesetPreview]) -> String {
    let mut parts = Vec::new();
    let mut resized = Vec::new();
    for set in sets {
        if set.files != set.files_asked {
            parts.push(format!(
                "{} has {} of {} files",
                set.name, set.files, set.files_asked
            ));
        } else if set.size_scale != 1.0 && set.files > 0 {
            resized.push(set);
        }
    }
    match resized[..] {
        [] => {}
        [set] => parts.push(format!("{} has all of its files, of other sizes", set.name)),
        _ => parts.push(format!(
            "{} filesets have all of their files, of other sizes",
            resized.len()
        )),
    }
    if parts.is_empty() {
        return "no fileset is changed by that".to_owned();
    }
    parts.join(", ")
}

/// Returns a line for each flowop, and the summary.
pub(super) fn outcome_table(outcome: &RunOutcome, strict: bool) -> Vec<String> {
    if strict {
        filebench_table(outcome)
    } else {
        teal_table(outcome)
    }
}

/// Names what is left out of the summary, in a remark below the table.
const NOT_COUNTED: &str = "* no I/O: these are not among the operations";

/// Returns a row of the table.
fn table_row(name: &str, wide: usize, figures: &LatencyFigures, nanos: u64) -> String {
    let mut row = format!(
        "{name:<wide$} {:>10} {:>11.1} {:>9.1} {:>10.4}",
        figures.count,
        per_second(figures.count, nanos),
        per_second(figures.bytes, nanos) / MIB,
        to_millis(figures.mean())
    );
    for (_, share) in &SHARES[..3] {
        let _ = write!(
            row,
            " {:>10.4}",
            to_millis(figures.percentile(*share) as f64)
        );
    }
    let _ = write!(row, " {:>10.4}", to_millis(figures.max as f64));
    row
}

fn teal_table(outcome: &RunOutcome) -> Vec<String> {
    let mut names = Vec::new();
    for line in &outcome.lines {
        let mark = if line.kind.is_io() { "" } else { " *" };
        names.push(format!("{}{mark}", line.name));
    }
    // The first column is as wide as the longest name.
    let wide = names.iter().map(String::len).max().unwrap_or(0).max(8);
    let mut out = vec![format!(
        "{:<wide$} {:>10} {:>11} {:>9} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "flowop", "ops", "ops/s", "MiB/s", "mean ms", "p50", "p95", "p99", "max"
    )];
    for (name, line) in names.iter().zip(&outcome.lines) {
        out.push(table_row(name, wide, &line.figures, outcome.nanos));
    }
    let summary = outcome.summary();
    out.push(table_row("I/O", wide, &summary.all, outcome.nanos));
    out.extend(table_remarks(outcome, &summary));
    out
}

/// Returns the lines below the table.
fn table_remarks(outcome: &RunOutcome, summary: &RunSummary) -> Vec<String> {
    let reads = per_second(summary.reads, outcome.nanos);
    let writes = per_second(summary.writes, outcome.nanos);
    let mut out = vec![format!("reads {reads:.1}/s, writes {writes:.1}/s")];
    if outcome.lines.iter().any(|line| !line.kind.is_io()) {
        out.push(NOT_COUNTED.to_owned());
    }
    // Openings take time, but are no operations of the script.
    if summary.all.opens > 0 {
        out.push(format!(
            "{} files were opened because nobody had; these are not in the counts",
            summary.all.opens
        ));
    }
    if summary.all.skips > 0 {
        out.push(format!(
            "{} files were not deleted because they were open elsewhere or gone already",
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
    let mut variables = Vec::new();
    for (name, value) in &plan.options.set {
        variables.push(format!("{name}={value}"));
    }
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
        "filesets": filesets_json(plan),
        "summary": summary_json(outcome),
        "flowops": flowops_json(outcome),
        "seconds": seconds_json(outcome),
    })
}

fn filesets_json(plan: &WorkloadPlan) -> Vec<Value> {
    let mut sets = Vec::new();
    for set in preview_filesets(plan) {
        sets.push(json!({
            "name": set.name,
            "files": set.files,
            "files_asked": set.files_asked,
            "bytes": set.bytes,
            "directories": set.dirs,
            "mean_depth": set.depth,
            "prealloc_percent": set.prealloc,
        }));
    }
    sets
}

fn summary_json(outcome: &RunOutcome) -> Value {
    let summary = outcome.summary();
    let mut all = figures_json(&summary.all, outcome.nanos);
    all["reads"] = json!(summary.reads);
    all["writes"] = json!(summary.writes);
    all
}

/// Returns the figures of each flowop, and whether it counts in the summary: limits, hogs and
/// meetings of threads are no I/O.
fn flowops_json(outcome: &RunOutcome) -> Vec<Value> {
    let mut flowops = Vec::new();
    for line in &outcome.lines {
        let mut flowop = figures_json(&line.figures, outcome.nanos);
        flowop["name"] = json!(line.name);
        flowop["kind"] = json!(line.kind.name());
        flowop["counts"] = json!(line.kind.is_io());
        flowops.push(flowop);
    }
    flowops
}

fn seconds_json(outcome: &RunOutcome) -> Vec<Value> {
    let mut seconds = Vec::new();
    for second in &outcome.seconds {
        seconds.push(json!({
            "at": second.at,
            "operations": second.operations,
            "reads": second.reads,
            "writes": second.writes,
            "bytes": second.bytes,
            "nanos": second.nanos,
        }));
    }
    seconds
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
