//! Renders findings as one HTML page that needs nothing else: figures, plots, and the commands that
//! make them again.
//!
//! # Guarantees
//! 1. The page refers to nothing outside of it: no scripts, no fonts, no pictures.
//! 2. Every text that comes from a matrix or a machine is escaped.

mod plot;

use super::cell_row::CellRow;
use super::file::Matrix;
use super::findings::{MatrixFindings, WorkloadVerdict};
use super::show::{
    SHORT, describe_circumstances, describe_failures, describe_guests, format_clock_rate,
    format_interval, format_short, write_verdict,
};
use std::fmt::Write as _;

/// Holds what a page says besides findings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageDetails {
    /// The page's title.
    pub title: String,
    /// Kernel, processors and versions, a line each.
    pub machine: Vec<String>,
    /// Source of the joules.
    pub meter: String,
    /// Commands that make these results again.
    pub commands: Vec<String>,
}

const STYLE: &str = "\
body{font:15px/1.45 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem;\
color:#1c2024;background:#fff}\
h1,h2,h3{line-height:1.2}table{border-collapse:collapse;font-size:13px}\
td,th{padding:.2rem .5rem;border-bottom:1px solid #d8dce0;text-align:left}\
td.n{text-align:right;font-variant-numeric:tabular-nums}.wide{overflow-x:auto}\
pre{background:#f2f4f6;padding:.7rem;overflow-x:auto}svg{max-width:100%;height:auto}\
svg text{font:12px system-ui,sans-serif;fill:#1c2024}.grid{stroke:#d8dce0}.bar{fill:#8fb4d9}\
.bar.best{fill:#1f6fb2}.dot{fill:#8fb4d9}.dot.front{fill:#c2410c}\
.line{fill:none;stroke:#c2410c;stroke-width:1.5}.whisker{stroke:#1c2024}\
@media(prefers-color-scheme:dark){body{color:#e3e6e8;background:#16181b}\
svg text{fill:#e3e6e8}pre{background:#22262a}\
.grid,td,th{stroke:#3a4046;border-color:#3a4046}.whisker{stroke:#e3e6e8}}";

/// Escapes text for HTML.
pub(super) fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Renders the page.
pub fn render_html(matrix: &Matrix, findings: &MatrixFindings, about: &PageDetails) -> String {
    // Everything that comes from outside is escaped here.
    let title = escape_html(&about.title);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{title}</title>\n\
         <style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n"
    );
    // The machine's lines tell later readers what the figures are of.
    let machine: Vec<String> = about.machine.iter().map(|line| escape_html(line)).collect();
    let _ = writeln!(
        out,
        "<p>{}</p>\n<p>{} runs of {} cells, {} whole blocks. File sets scaled by {}. Energy: {}. \
         Whiskers and &#177; are 95 % intervals of the mean (Student's t over runs).{}</p>",
        machine.join("<br>"),
        findings.runs,
        findings.rows.len(),
        findings.blocks,
        matrix.runs.scale,
        escape_html(&about.meter),
        escape_html(&describe_circumstances(matrix, findings))
    );
    if let Some(guests) = describe_guests(findings) {
        let _ = writeln!(out, "<p>{}</p>", escape_html(&guests));
    }
    out.push_str("<h2>What to take</h2>\n");
    // Each workload has its verdict, its plots and its power.
    for of in &findings.verdicts {
        render_workload(&mut out, matrix, findings, of);
    }
    // Failures are told before the table, where they would be overlooked.
    let failed = describe_failures(findings);
    if !failed.is_empty() {
        let lines: Vec<String> = failed
            .iter()
            .map(|line| format!("<li>{}</li>\n", escape_html(line)))
            .collect();
        let _ = writeln!(out, "<h2>What failed</h2>\n<ul>{}</ul>", lines.concat());
    }
    if !findings.short.is_empty() {
        let lines: Vec<String> = findings
            .short
            .iter()
            .map(|line| format!("<li>{}</li>\n", escape_html(line)))
            .collect();
        let _ = writeln!(
            out,
            "<h2>What ended early</h2>\n<p>{SHORT}</p>\n<ul>{}</ul>",
            lines.concat()
        );
    }
    out.push_str("<h2>All cells</h2>\n");
    render_table(&mut out, findings);
    // The commands and the matrix make the page reproducible.
    out.push_str("<h2>To have it again</h2>\n");
    let _ = writeln!(
        out,
        "<pre>{}</pre>",
        escape_html(&about.commands.join("\n"))
    );
    let _ = writeln!(
        out,
        "<p>With this as <code>matrix.toml</code>:</p>\n<pre>{}</pre>\n</body></html>",
        escape_html(&matrix.to_toml())
    );
    out
}

fn render_workload(
    out: &mut String,
    matrix: &Matrix,
    findings: &MatrixFindings,
    of: &WorkloadVerdict,
) {
    // The words are those of the Markdown report, with HTML in place of its marks.
    let mut words = String::new();
    write_verdict(&mut words, findings, of, str::to_owned);
    let _ = writeln!(out, "<h3>{}</h3>\n<ul>", escape_html(&of.workload));
    for line in words.lines().filter_map(|line| line.strip_prefix("- ")) {
        let _ = writeln!(out, "<li>{}</li>", render_strong(&escape_html(line)));
    }
    out.push_str("</ul>\n");
    let rows: Vec<(usize, &CellRow)> = findings
        .rows
        .iter()
        .enumerate()
        .filter(|(_, row)| row.names[0] == of.workload && row.runs > 0)
        .collect();
    out.push_str(&plot::draw_scatter(&rows, &of.front));
    out.push_str(&plot::draw_bars(&rows, of));
    // The power of the most frugal cell is the most telling one.
    if let Some(row) = rows.iter().map(|(_, row)| *row).find(|row| {
        of.by_joule
            .as_ref()
            .is_some_and(|choice| choice.best.names == row.names)
    }) {
        out.push_str(&plot::draw_power(row, matrix.device.profile.is_some()));
    }
}

/// Turns `**word**` of Markdown into HTML.
fn render_strong(text: &str) -> String {
    let mut parts = text.split("**");
    let mut out = parts.next().unwrap_or_default().to_owned();
    while let (Some(inner), rest) = (parts.next(), parts.next()) {
        let _ = write!(out, "<strong>{inner}</strong>{}", rest.unwrap_or_default());
    }
    out
}

fn render_table(out: &mut String, findings: &MatrixFindings) {
    // A wide table scrolls by itself.
    out.push_str("<div class=\"wide\"><table><thead><tr>");
    for name in [
        "workload",
        "file system",
        "scheduler",
        "runs (steady)",
        "ops/s on the clock",
        "ops/s of the device",
        "J per 1,000 ops",
        "in the drain",
        "W",
        "AI: ops/s, MB/s, 1/latency by J",
    ] {
        let _ = write!(out, "<th>{name}</th>");
    }
    out.push_str("</tr></thead><tbody>\n");
    // One row for each cell, those without runs too.
    for row in &findings.rows {
        out.push_str("<tr>");
        for name in &row.names {
            let _ = write!(out, "<td>{}</td>", escape_html(name));
        }
        let memory = if row.is_of_memory { " (of memory)" } else { "" };
        for text in [
            format!("{} ({})", row.runs, row.steady),
            format_clock_rate(row),
            format_interval(row.rate_of_device),
            format_interval(row.joules_per_thousand) + memory,
            format!("{:.0} %", row.drained * 100.0),
            row.watts.map_or("–".into(), |watts| format!("{watts:.2}")),
            row.ai
                .map(|ai| ai.map_or("–".into(), format_short))
                .join(", "),
        ] {
            let _ = write!(out, "<td class=\"n\">{text}</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}
