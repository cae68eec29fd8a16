//! Renders findings in Markdown.

use super::cell_row::CellRow;
use super::decide::{BestChoice, Cemp};
use super::file::Matrix;
use super::findings::{MatrixFindings, WorkloadVerdict};
use super::run::CellFailure;
use crate::statistics::{ConfidenceInterval, LinearTrend};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Escapes text for Markdown, so that no character is taken for a mark.
pub fn escape_markdown(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if r"\`*_<>[]|".contains(c) {
            out.push('\\');
        }
        out.push(if c == '\n' { ' ' } else { c });
    }
    out
}

/// Returns whether the runs suffice: every interval is narrow enough.
pub fn is_settled(matrix: &Matrix, findings: &MatrixFindings) -> bool {
    findings.blocks >= matrix.runs.least
        && findings
            .widest_interval()
            .is_some_and(|widest| widest <= matrix.runs.within)
}

/// Formats a figure with its interval.
pub(super) fn format_interval(of: Option<ConfidenceInterval>) -> String {
    match of {
        None => "–".into(),
        Some(of) if of.half_width.is_infinite() => format!("{} (one run)", format_short(of.mean)),
        Some(of) => format!(
            "{} ± {:.1} %",
            format_short(of.mean),
            of.relative_half_width() * 100.0
        ),
    }
}

/// Formats a figure with about three significant digits.
pub(super) fn format_short(x: f64) -> String {
    match x.abs() {
        of if of >= 1000.0 => format!("{x:.0}"),
        of if of >= 100.0 => format!("{x:.1}"),
        of if of >= 1.0 => format!("{x:.2}"),
        0.0 => "0".into(),
        _ => format!("{x:.4}"),
    }
}

/// Explains the runs that were short of their operations.
pub(super) const SHORT: &str = "These runs did fewer operations than were asked for. They are not \
    ranked with those that did more.";

/// Stands in place of a figure by the clock.
const NO_CLOCK: &str = "in a guest: not ranked on the clock";

/// Formats operations a second on the clock.
pub(super) fn format_clock_rate(row: &CellRow) -> String {
    if row.guest.is_some() {
        NO_CLOCK.to_owned()
    } else {
        format_interval(row.rate)
    }
}

/// Returns a text on the file systems that ran in a guest, and on the meaning of their figures.
pub(super) fn describe_guests(findings: &MatrixFindings) -> Option<String> {
    // The kernels are named once, whatever the number of systems in them.
    let kernels: BTreeSet<&str> = findings
        .rows
        .iter()
        .filter_map(|row| row.guest.as_deref())
        .collect();
    let systems: BTreeSet<&str> = findings
        .rows
        .iter()
        .filter(|row| row.guest.is_some())
        .map(|row| row.names[1].as_str())
        .collect();
    // Without guests there is nothing to explain.
    let list = |of: BTreeSet<&str>| of.into_iter().collect::<Vec<_>>().join(", ");
    (!systems.is_empty()).then(|| {
        format!(
            "In a guest ({}): {}. Joules and operations for each second that the device worked \
             are of the same modelled disk as everywhere, and compare; but the requests are those \
             of another kernel than this machine's. Operations a second and latencies on the \
             clock of a guest do not compare, and are not ranked.",
            list(kernels),
            list(systems)
        )
    })
}

/// Writes a name for the target: Markdown or HTML.
pub(super) type NameWriter = fn(&str) -> String;

fn format_name(names: &[String; 3], write: NameWriter) -> String {
    format!("{}, {}", write(&names[1]), write(&names[2]))
}

fn describe_choice(of: Option<&BestChoice>, without: &str, write: NameWriter) -> String {
    // The text says what is missing when there is no choice.
    let Some(of) = of else {
        return without.to_owned();
    };
    let mut text = format!("**{}**", format_name(&of.best.names, write));
    if let Some((low, high)) = of.gain {
        let _ = write!(
            text,
            " ({} to {} times what file systems without options give)",
            format_short(low),
            format_short(high)
        );
    }
    // Ties are named with their intervals, so that the reader can choose among them.
    match &of.ties[..] {
        [] => text.push_str("; nothing else comes near"),
        ties => {
            let ties = ties.iter().map(|(score, by)| {
                format!(
                    "{} ({:.2} to {:.2})",
                    format_name(&score.names, write),
                    by.low,
                    by.high
                )
            });
            let _ = write!(
                text,
                "; not to be told from it: {}",
                ties.collect::<Vec<_>>().join("; ")
            );
        }
    }
    text
}

fn describe_cemp(of: &Cemp) -> String {
    let value = of
        .value()
        .map_or("no change of performance".into(), |value| {
            format!("{value:.2}")
        });
    format!(
        "{value} (energy {:+.1} %, performance {:+.1} %)",
        of.energy * 100.0,
        of.performance * 100.0
    )
}

pub(super) fn write_verdict(
    out: &mut String,
    findings: &MatrixFindings,
    of: &WorkloadVerdict,
    write: NameWriter,
) {
    let _ = writeln!(out, "### {}\n", write(&of.workload));
    write_choices(out, findings, of, write);
    write_trade_off(out, findings, of, write);
    if let Some(drift) = of.drift {
        // The drift is measured on the first system.
        let system = findings.rows.first().map(|row| write(&row.names[1]));
        write_drift(out, &system.unwrap_or_default(), drift);
    }
    out.push('\n');
}

/// Writes the best cell by the clock, by the device's time and by joules.
fn write_choices(
    out: &mut String,
    findings: &MatrixFindings,
    of: &WorkloadVerdict,
    write: NameWriter,
) {
    // Cells without runs have nothing to say.
    let rows: Vec<&CellRow> = findings
        .rows
        .iter()
        .filter(|row| row.names[0] == of.workload && row.runs > 0)
        .collect();
    let guests = rows.iter().filter(|row| row.guest.is_some()).count();
    // Guests have no ranking by the clock, so the text depends on the number of rows in them.
    let clock = match guests {
        0 => describe_choice(of.by_rate.as_ref(), "not steady here: no ranking", write),
        all if all == rows.len() => NO_CLOCK.to_owned(),
        _ => {
            describe_choice(of.by_rate.as_ref(), "not steady here: no ranking", write)
                + "; file systems in a guest are not ranked on the clock"
        }
    };
    let _ = writeln!(out, "- Operations a second on the clock: {clock}");
    let none = "not known: fewer than two blocks";
    let device = describe_choice(of.by_device.as_ref(), none, write);
    let _ = writeln!(
        out,
        "- Operations for each second the device worked: {device}"
    );
    // A workload without runs must not claim that the device has no meter.
    let has_joules = rows.is_empty() || rows.iter().any(|row| row.joules_per_thousand.is_some());
    let none = if has_joules {
        none
    } else {
        "not known: the device has no meter"
    };
    let joule = describe_choice(of.by_joule.as_ref(), none, write);
    let _ = writeln!(out, "- Operations for each joule: {joule}");
}

/// Writes how performance and energy go together, and the cells that are not beaten in both.
fn write_trade_off(
    out: &mut String,
    findings: &MatrixFindings,
    of: &WorkloadVerdict,
    write: NameWriter,
) {
    // The two goals agree as a rule, so it is worth a line when they do not.
    if let (Some(rate), Some(joule)) = (&of.by_device, &of.by_joule)
        && rate.best.names != joule.best.names
    {
        let _ = writeln!(out, "- The fastest is not the most frugal here.");
    }
    if let Some(r) = of.r {
        let _ = write!(
            out,
            "- Operations for each joule go with operations a second of the device: r = {r:.3}"
        );
        let _ = match of.watts {
            Some((low, high)) => writeln!(out, ", power {low:.2} to {high:.2} W"),
            None => writeln!(out),
        };
    }
    if !of.front.is_empty() {
        let mut names = Vec::new();
        for row in &of.front {
            names.push(format_name(&findings.rows[*row].names, write));
        }
        let _ = writeln!(out, "- Not beaten in both: {}", names.join("; "));
    }
    // The indicators of the study, with both changes beside each.
    if let Some([ah, pa, ph]) = &of.cemp {
        let _ = writeln!(
            out,
            "- Cemp: largest AI to best performance {}; least power to largest AI {}; least power \
             to best performance {}",
            describe_cemp(ah),
            describe_cemp(pa),
            describe_cemp(ph)
        );
    }
}

/// Writes the drift of a system. It is told even if none is seen: silence would be read as none.
fn write_drift(out: &mut String, system: &str, drift: LinearTrend) {
    let LinearTrend {
        n,
        ratio,
        low,
        high,
    } = drift;
    let words = if drift.is_inconclusive() {
        "none is seen"
    } else {
        "the machine did not stay the same"
    };
    let _ = writeln!(
        out,
        "- Drift of {system}, operations a second on the clock, from the first block to the last: \
         {ratio:.2} (95 %: {low:.2} to {high:.2}, {n} blocks): {words}"
    );
}

/// Describes the state of file systems before runs, and the other work of the machine.
pub(super) fn describe_circumstances(matrix: &Matrix, findings: &MatrixFindings) -> String {
    let mut out = String::new();
    if let Some(aged) = matrix.runs.aged {
        let _ = write!(
            out,
            " File systems are aged: before each run they were filled with files of 4 to 60 KiB, \
             of which {aged} %, drawn anew in each block, were left."
        );
    }
    if let Some([least, middle, most]) = findings.load {
        let _ = write!(
            out,
            " Before runs {least:.1} to {most:.1} processes wanted to run, {middle:.1} in the \
             median (load of a minute, what runs leave behind in it)."
        );
    }
    out
}

/// Lists failed cells with their reasons, a line each.
pub(super) fn describe_failures(findings: &MatrixFindings) -> Vec<String> {
    let line =
        |of: &CellFailure| format!("{}, in block {}: {}", of.names.join(", "), of.block, of.why);
    findings.failures.iter().map(line).collect()
}

/// Renders everything as a page: the best cell of each workload, then the table of all cells.
pub fn render_markdown(matrix: &Matrix, findings: &MatrixFindings, meter: &str) -> String {
    // The first paragraph says how the figures are to be read.
    let mut out = format!(
        "{} runs of {} cells, {} whole blocks. Energy: {meter}. ± is half of the 95 % interval of \
         the mean (Student's t over runs); cells are compared in pairs of the same \
         block, on a log scale; those whose interval holds 1 are not told from the best.{}\n\n## \
         What to take\n\n",
        findings.runs,
        findings.rows.len(),
        findings.blocks,
        describe_circumstances(matrix, findings)
    );
    findings
        .verdicts
        .iter()
        .for_each(|of| write_verdict(&mut out, findings, of, escape_markdown));
    // Failed cells are named before those that were merely short.
    let failed = describe_failures(findings);
    if !failed.is_empty() {
        out.push_str("## What failed\n\n");
        for line in &failed {
            let _ = writeln!(out, "- {}", escape_markdown(line));
        }
        out.push('\n');
    }
    if !findings.short.is_empty() {
        let _ = writeln!(out, "## What ended early\n\n{SHORT}\n");
        for line in &findings.short {
            let _ = writeln!(out, "- {}", escape_markdown(line));
        }
        out.push('\n');
    }
    // One row for each cell, in the order of the file.
    out.push_str("## Cells\n\n");
    out.push_str(
        "| workload | file system | scheduler | runs (steady) | ops/s on the clock | \
                  ops/s of the device | J per 1,000 ops | of that in the drain | W | AI: ops/s, \
                  MB/s, 1/latency by J |\n",
    );
    out.push_str("|---|---|---|---:|---:|---:|---:|---:|---:|---:|\n");
    for row in &findings.rows {
        let ai = row
            .ai
            .map(|ai| ai.map_or("–".into(), format_short))
            .join(", ");
        let memory = if row.is_of_memory {
            " (of memory: the device was hardly needed)"
        } else {
            ""
        };
        let [workload, system, scheduler] = row.names.each_ref().map(|name| escape_markdown(name));
        let _ = writeln!(
            out,
            "| {workload} | {system} | {scheduler} | {} ({}) | {} | {}{memory} | {} | {:.0} % | \
             {} | {ai} |",
            row.runs,
            row.steady,
            format_clock_rate(row),
            format_interval(row.rate_of_device),
            format_interval(row.joules_per_thousand),
            row.drained * 100.0,
            row.watts.map_or("–".into(), |watts| format!("{watts:.2}")),
        );
    }
    // Conditions that limit the comparison stand below the table.
    if let Some(guests) = describe_guests(findings) {
        let _ = writeln!(out, "\n{guests}");
    }
    if matrix.runs.scale != 1.0 {
        let _ = writeln!(out, "\nFile sets are scaled by {}.", matrix.runs.scale);
    }
    out
}
