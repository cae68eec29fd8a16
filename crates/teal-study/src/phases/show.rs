//! Renders the results of phases as tables in Markdown.

use super::cell::{PhaseCell, PhaseResult};
use super::plan::PhaseGroup;
use std::fmt::Write as _;

/// Holds the data of the tables.
#[derive(Debug)]
pub struct PhaseSheet<'a> {
    /// Results of all cells.
    pub cells: &'a [PhaseCell],
    /// Figures of the disk that have no source.
    pub assumed: &'a [String],
}

/// Renders joules by phase and file system, as multiples of the floor, and by their use.
pub fn render_markdown(sheet: &PhaseSheet<'_>) -> String {
    let Some(first) = sheet.cells.first() else {
        return "No phase has been measured.\n".into();
    };
    let mut text = format!(
        "All joules are modelled by {}, a disk of {} bytes, in virtual time; mode {:?}, scale {}. \
         Assumed: {}.\n",
        first.profile,
        first.size,
        first.mode,
        first.scale,
        if sheet.assumed.is_empty() {
            "nothing".into()
        } else {
            sheet.assumed.join(", ")
        }
    );
    // The columns are the file systems, in the order of their first cell.
    let systems = list_systems(sheet.cells);
    text.push_str("\n## Joules, and how many times the floor\n\n| phase |");
    for system in &systems {
        let _ = write!(text, " {system} |");
    }
    text.push_str(" floor |\n|---|");
    text.push_str(&"---:|".repeat(systems.len() + 1));
    text.push('\n');
    // Rows follow the groups, and the phases within them.
    for group in PhaseGroup::ALL {
        for (at, phase) in list_phases(sheet.cells, &group).into_iter().enumerate() {
            let found: Vec<_> = systems
                .iter()
                .map(|system| find_phase(sheet.cells, system, &group, at))
                .collect();
            let _ = write!(text, "| {} {phase} |", group.name());
            for measured in &found {
                match measured {
                    Some(of) => {
                        _ = write!(
                            text,
                            " {} ({:.1}) |",
                            format_short(of.tally.joules()),
                            of.floor_ratio()
                        )
                    }
                    None => text.push_str(" |"),
                }
            }
            // The floor depends on the disk and the phase only, so any cell has it.
            let floor = found
                .iter()
                .flatten()
                .next()
                .map_or(0.0, |of| of.floor_microjoules as f64 / 1e6);
            let _ = writeln!(text, " {} |", format_short(floor));
        }
    }
    // After the overview each file system has a table of its own.
    for system in &systems {
        text.push_str(&render_spending(sheet.cells, system));
    }
    text
}

/// Renders the joules of a file system by their use.
fn render_spending(cells: &[PhaseCell], system: &str) -> String {
    let of: Vec<&PhaseCell> = cells.iter().filter(|cell| cell.system == system).collect();
    let kernel = of.first().map_or("", |cell| cell.kernel.as_str());
    let mut text = format!(
        "\n## {system} ({kernel})\n\n| phase | J | seek | rotate | transfer | commands | other | \
         after the last | seeks | reads | MiB | writes | MiB | of the user | flushes |\n|---|"
    );
    text.push_str(&"---:|".repeat(14));
    text.push('\n');
    // All phases of the file system, in the order of the groups.
    for group in PhaseGroup::ALL {
        for cell in of.iter().filter(|cell| cell.group == group.name()) {
            for measured in &cell.phases {
                let _ = writeln!(
                    text,
                    "| {} {} |{}",
                    cell.group,
                    measured.phase,
                    render_row(measured)
                );
            }
        }
    }
    text
}

fn render_row(of: &PhaseResult) -> String {
    let tally = &of.tally;
    let by = |name| tally.joules_of(name);
    let (seek, rotate, commands) = (by("seek"), by("rotate"), by("commands"));
    // Reading and writing are both transfers.
    let transfer = by("read") + by("write");
    // Everything that is neither work of the arm nor of the interface.
    let other = tally.joules() - seek - rotate - commands - transfer;
    let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    let drain = of.drain_microjoules as f64 / 1e6;
    let joules = [
        tally.joules(),
        seek,
        rotate,
        transfer,
        commands,
        other,
        drain,
    ]
    .map(format_short)
    .join(" | ");
    format!(
        " {joules} | {} | {} | {} | {} | {} | {} | {} |",
        tally.seeks,
        tally.reads,
        mib(tally.bytes_read),
        tally.writes,
        mib(tally.bytes_written),
        mib(of.bytes),
        tally.flushes
    )
}

/// Returns the file systems in the order in which they came.
fn list_systems(cells: &[PhaseCell]) -> Vec<&str> {
    let mut systems: Vec<&str> = Vec::new();
    for cell in cells {
        if !systems.contains(&cell.system.as_str()) {
            systems.push(&cell.system);
        }
    }
    systems
}

/// Returns the names of the phases of a group, of the cell that has the most.
fn list_phases(cells: &[PhaseCell], group: &PhaseGroup) -> Vec<String> {
    let of = cells
        .iter()
        .filter(|cell| cell.group == group.name())
        .max_by_key(|cell| cell.phases.len());
    of.map_or(Vec::new(), |cell| {
        cell.phases
            .iter()
            .map(|measured| measured.phase.clone())
            .collect()
    })
}

fn find_phase<'a>(
    cells: &'a [PhaseCell],
    system: &str,
    group: &PhaseGroup,
    at: usize,
) -> Option<&'a PhaseResult> {
    let cell = cells
        .iter()
        .find(|cell| cell.system == system && cell.group == group.name())?;
    cell.phases.get(at)
}

/// Formats joules with three significant digits.
fn format_short(joules: f64) -> String {
    match joules.abs() {
        of if of >= 100.0 => format!("{joules:.0}"),
        of if of >= 10.0 => format!("{joules:.1}"),
        of if of >= 1.0 => format!("{joules:.2}"),
        of if of < 0.0005 => "0".into(),
        _ => format!("{joules:.3}"),
    }
}
