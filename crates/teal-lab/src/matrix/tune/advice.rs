//! Describes the result of a search for people: the commands, and their gain.

use super::candidates::at_risk;
use crate::matrix::bench::MatrixBench;
use std::fmt::Write as _;
use teal_command::say::shell_quoted;
use teal_study::matrix::tune::SearchResult;
use teal_study::matrix::{FileSystemSetup, risk_of};
use teal_study::statistics::PairedComparison;

/// Message when no block was whole.
pub(super) const NOTHING: &str = "not even one block was whole: say a longer --budget, fewer \
    candidates (--space), or shorter runs";

impl MatrixBench {
    /// Returns the commands to type, and their gain.
    pub(super) fn format_advice(&self, found: &SearchResult) -> String {
        let Some(best) = found.best else {
            return format!("{NOTHING}\n");
        };
        let mut out = format!(
            "{}\nbest for {}: {}\n",
            describe_effort(found),
            self.matrix.workloads[0].name,
            self.candidate_name(best)
        );
        // Commands come first, because they are what the user wants.
        self.append_commands(best, &mut out);
        if best == found.reference {
            let system = &self.matrix.systems[self.matrix.cells()[best].system];
            let is_plain = system.mkfs.is_empty() && system.mount.is_empty();
            let what = if is_plain {
                "what one has without options"
            } else {
                "the first candidate, which all others are told by"
            };
            let _ = writeln!(out, "nothing to change: that is {what}");
        } else {
            append_gains(found, &self.candidate_name(found.reference), &mut out);
        }
        self.append_ties(found, &mut out);
        out
    }

    fn candidate_name(&self, at: usize) -> String {
        let [_, system, scheduler] = self.matrix.cell_names(self.matrix.cells()[at]);
        format!("{system} under {scheduler}")
    }

    /// Appends the commands of a candidate, and what must be known of it.
    fn append_commands(&self, at: usize, out: &mut String) {
        let cell = self.matrix.cells()[at];
        let system = &self.matrix.systems[cell.system];
        let scheduler = &self.matrix.schedulers.names[cell.scheduler];
        for command in setup_commands(system, scheduler, self.matrix.device.path.as_deref()) {
            let _ = writeln!(out, "  {command}");
        }
        // A risk is told even if the user asked for it.
        if let Some(risk) = risk_of(system) {
            let _ = writeln!(out, "at a risk: {risk}");
        }
        if self.in_guest(cell.system) {
            let _ = writeln!(
                out,
                "it ran in a guest, on another kernel: this machine's needs to have {}",
                system.kind.name()
            );
        }
    }

    /// Appends the candidates that cannot be told from the best.
    fn append_ties(&self, found: &SearchResult, out: &mut String) {
        for (at, of) in found.ties() {
            let system = &self.matrix.systems[self.matrix.cells()[at].system];
            let _ = writeln!(
                out,
                "not to be told from it: {}{} ({})",
                self.candidate_name(at),
                at_risk(system),
                format_ratio(&of)
            );
        }
    }
}

/// Describes the runs of a search. Proposals that were never measured are not counted.
fn describe_effort(found: &SearchResult) -> String {
    let mut met = 0;
    for standing in &found.standings {
        met += usize::from(!standing.runs.is_empty());
    }
    format!(
        "{} runs of {met} candidates of {}, {} whole blocks",
        found.runs,
        found.standings.len(),
        found.blocks
    )
}

/// Appends the gains of the best over the reference, as far as they are known.
fn append_gains(found: &SearchResult, reference: &str, out: &mut String) {
    let units = ["operations a second", "operations for each joule"];
    for (gain, unit) in found.gain_over_reference().into_iter().zip(units) {
        let Some(gain) = gain else { continue };
        let ratio = format_ratio(&gain);
        let _ = writeln!(out, "{ratio} times the {unit} of {reference}");
    }
}

fn format_ratio(of: &PairedComparison) -> String {
    format!(
        "{:.2} (95 %: {:.2} to {:.2}, {} blocks)",
        of.ratio, of.low, of.high, of.n
    )
}

/// Returns the commands that a person types to have it. A placeholder stands for the device if it
/// is modelled.
fn setup_commands(system: &FileSystemSetup, scheduler: &str, device: Option<&str>) -> Vec<String> {
    let device = device.unwrap_or("/dev/sdX");
    let name = device.rsplit('/').next().unwrap_or(device);
    let args = system
        .mkfs_arguments()
        .iter()
        .map(|arg| shell_quoted(arg))
        .collect::<Vec<_>>()
        .join(" ");
    let options = if system.mount.is_empty() {
        String::new()
    } else {
        format!(" -o {}", system.mount)
    };
    // Teal has a program of its own instead of mkfs and mount.
    let [mkfs, mount] = if system.kind.is_ours() {
        [
            format!("teal mkfs {args} {device}"),
            format!("teal mount{options} {device} DIR"),
        ]
    } else {
        let kind = system.kind.name();
        [
            format!("mkfs.{kind} {args} {device}"),
            format!("mount -t {kind}{options} {device} DIR"),
        ]
    };
    vec![
        mkfs,
        format!("echo {scheduler} > /sys/block/{name}/queue/scheduler"),
        mount,
    ]
}
