//! Findings in Markdown.

use super::decide::{Cemp, Choice};
use super::file::Matrix;
use super::findings::{Findings, Row, Verdict};
use super::run::Failure;
use crate::statistics::{Interval, Trend};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// As text of Markdown: what would be a mark is none.
pub fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if r"\`*_<>[]|".contains(c) {
            out.push('\\');
        }
        out.push(if c == '\n' { ' ' } else { c });
    }
    out
}

/// Returns whether a block more would tell more: no, when every interval is narrow enough.
pub fn settled(matrix: &Matrix, findings: &Findings) -> bool {
    findings.blocks >= matrix.runs.least
        && findings
            .widest()
            .is_some_and(|widest| widest <= matrix.runs.within)
}

/// A figure with what may be wrong with it.
pub(super) fn figure(of: Option<Interval>) -> String {
    match of {
        None => "–".into(),
        Some(of) if of.half.is_infinite() => format!("{} (one run)", short(of.mean)),
        Some(of) => format!("{} ± {:.1} %", short(of.mean), of.relative() * 100.0),
    }
}

/// Three digits that count.
pub(super) fn short(x: f64) -> String {
    match x.abs() {
        of if of >= 1000.0 => format!("{x:.0}"),
        of if of >= 100.0 => format!("{x:.1}"),
        of if of >= 1.0 => format!("{x:.2}"),
        0.0 => "0".into(),
        _ => format!("{x:.4}"),
    }
}

/// Of runs that were short of what was asked for.
pub(super) const SHORT: &str = "These runs did fewer operations than were asked for. They are not ranked with those that did more.";

/// Instead of a figure by the clock.
const NO_CLOCK: &str = "in a guest: not ranked on the clock";

/// Operations a second on the clock.
pub(super) fn on_the_clock(row: &Row) -> String {
    if row.guest.is_some() {
        NO_CLOCK.to_owned()
    } else {
        figure(row.rate)
    }
}

/// Returns which file systems ran in a guest, and what that means for their figures.
pub(super) fn guests(findings: &Findings) -> Option<String> {
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
    let list = |of: BTreeSet<&str>| of.into_iter().collect::<Vec<_>>().join(", ");
    (!systems.is_empty()).then(|| {
        format!(
            "In a guest ({}): {}. Joules and operations for each second that the device worked are of the same modelled disk as everywhere, and compare; but the requests are those \
             of another kernel than this machine's. Operations a second and latencies on the clock of a guest do not compare, and are not ranked.",
            list(kernels),
            list(systems)
        )
    })
}

/// How names are written.
pub(super) type Write = fn(&str) -> String;

fn name(names: &[String; 3], write: Write) -> String {
    format!("{}, {}", write(&names[1]), write(&names[2]))
}

fn choice(of: Option<&Choice>, without: &str, write: Write) -> String {
    let Some(of) = of else {
        return without.to_owned();
    };
    let mut text = format!("**{}**", name(&of.best.names, write));
    if let Some((low, high)) = of.gain {
        let _ = write!(
            text,
            " ({} to {} times what file systems without options give)",
            short(low),
            short(high)
        );
    }
    match &of.ties[..] {
        [] => text.push_str("; nothing else comes near"),
        ties => {
            let ties = ties.iter().map(|(score, by)| {
                format!(
                    "{} ({:.2} to {:.2})",
                    name(&score.names, write),
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

fn cemp(of: &Cemp) -> String {
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

pub(super) fn verdict(out: &mut String, findings: &Findings, of: &Verdict, write: Write) {
    let _ = writeln!(out, "### {}\n", write(&of.workload));
    let rows = || {
        findings
            .rows
            .iter()
            .filter(|row| row.names[0] == of.workload && row.runs > 0)
    };
    let guests = rows().filter(|row| row.guest.is_some()).count();
    let clock = match guests {
        0 => choice(of.by_rate.as_ref(), "not steady here: no ranking", write),
        all if all == rows().count() => NO_CLOCK.to_owned(),
        _ => {
            choice(of.by_rate.as_ref(), "not steady here: no ranking", write)
                + "; file systems in a guest are not ranked on the clock"
        }
    };
    let _ = writeln!(out, "- Operations a second on the clock: {clock}");
    let none = "not known: fewer than two blocks";
    let _ = writeln!(
        out,
        "- Operations for each second the device worked: {}",
        choice(of.by_device.as_ref(), none, write)
    );
    let has_joules = rows().count() == 0 || rows().any(|row| row.joules_per_thousand.is_some());
    let none = if has_joules {
        none
    } else {
        "not known: the device has no meter"
    };
    let _ = writeln!(
        out,
        "- Operations for each joule: {}",
        choice(of.by_joule.as_ref(), none, write)
    );
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
        let names: Vec<String> = of
            .front
            .iter()
            .map(|row| name(&findings.rows[*row].names, write))
            .collect();
        let _ = writeln!(out, "- Not beaten in both: {}", names.join("; "));
    }
    if let Some([ah, pa, ph]) = &of.cemp {
        let _ = writeln!(
            out,
            "- Cemp: largest AI to best performance {}; least power to largest AI {}; least power to best performance {}",
            cemp(ah),
            cemp(pa),
            cemp(ph)
        );
    }
    if let Some(drift) = of.drift {
        let Trend {
            n,
            ratio,
            low,
            high,
        } = drift;
        let words = if drift.is_none() {
            "none is seen"
        } else {
            "the machine did not stay the same"
        };
        let _ = writeln!(
            out,
            "- Drift of {}, operations a second on the clock, from the first block to the last: {ratio:.2} (95 %: {low:.2} to {high:.2}, {n} blocks): {words}",
            findings
                .rows
                .first()
                .map_or(String::new(), |row| write(&row.names[1]))
        );
    }
    out.push('\n');
}

/// From what state file systems were run, and what else the machine did.
pub(super) fn circumstances(matrix: &Matrix, findings: &Findings) -> String {
    let mut out = String::new();
    if let Some(aged) = matrix.runs.aged {
        let _ = write!(
            out,
            " File systems are aged: before each run they were filled with files of 4 to 60 KiB, of which {aged} %, drawn anew in each block, were left."
        );
    }
    if let Some([least, middle, most]) = findings.load {
        let _ = write!(
            out,
            " Before runs {least:.1} to {most:.1} processes wanted to run, {middle:.1} in the median (load of a minute, what runs leave behind in it)."
        );
    }
    out
}

/// Cells that came to nothing, and why; a line each.
pub(super) fn failures(findings: &Findings) -> Vec<String> {
    let line = |of: &Failure| format!("{}, in block {}: {}", of.names.join(", "), of.block, of.why);
    findings.failures.iter().map(line).collect()
}

/// Everything, as a page: what is best for each workload, then the table of all cells.
pub fn markdown(matrix: &Matrix, findings: &Findings, meter: &str) -> String {
    let mut out = format!(
        "{} runs of {} cells, {} whole blocks. Energy: {meter}. ± is half of the 95 % interval of the mean (Student's t over runs); cells are compared in pairs of the same \
         block, on a log scale; those whose interval holds 1 are not told from the best.{}\n\n## What to take\n\n",
        findings.runs,
        findings.rows.len(),
        findings.blocks,
        circumstances(matrix, findings)
    );
    findings
        .verdicts
        .iter()
        .for_each(|of| verdict(&mut out, findings, of, escaped));
    let failed = failures(findings);
    if !failed.is_empty() {
        out.push_str("## What failed\n\n");
        for line in &failed {
            let _ = writeln!(out, "- {}", escaped(line));
        }
        out.push('\n');
    }
    if !findings.short.is_empty() {
        let _ = writeln!(out, "## What ended early\n\n{SHORT}\n");
        for line in &findings.short {
            let _ = writeln!(out, "- {}", escaped(line));
        }
        out.push('\n');
    }
    out.push_str("## Cells\n\n");
    out.push_str("| workload | file system | scheduler | runs (steady) | ops/s on the clock | ops/s of the device | J per 1,000 ops | of that in the drain | W | AI: ops/s, MB/s, 1/latency by J |\n");
    out.push_str("|---|---|---|---:|---:|---:|---:|---:|---:|---:|\n");
    for row in &findings.rows {
        let ai = row.ai.map(|ai| ai.map_or("–".into(), short)).join(", ");
        let memory = if row.is_of_memory {
            " (of memory: the device was hardly needed)"
        } else {
            ""
        };
        let [workload, system, scheduler] = row.names.each_ref().map(|name| escaped(name));
        let _ = writeln!(
            out,
            "| {workload} | {system} | {scheduler} | {} ({}) | {} | {}{memory} | {} | {:.0} % | {} | {ai} |",
            row.runs,
            row.steady,
            on_the_clock(row),
            figure(row.rate_of_device),
            figure(row.joules_per_thousand),
            row.drained * 100.0,
            row.watts.map_or("–".into(), |watts| format!("{watts:.2}")),
        );
    }
    if let Some(guests) = guests(findings) {
        let _ = writeln!(out, "\n{guests}");
    }
    if matrix.runs.scale != 1.0 {
        let _ = writeln!(out, "\nFile sets are scaled by {}.", matrix.runs.scale);
    }
    out
}
