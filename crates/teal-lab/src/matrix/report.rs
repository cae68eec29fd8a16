//! Writes the report of a matrix, and describes its runs for people.

use super::bench::MatrixBench;
use super::versions;
use anyhow::{Context, Result};
use teal_command::say::say;
use teal_command::size::human_size;
use teal_study::matrix::{
    CellRun, MatrixFindings, PageDetails, escape_markdown, render_html, render_markdown,
};

impl MatrixBench {
    /// Writes the report anew.
    pub(super) fn write_report(&self, runs: &[CellRun]) -> Result<()> {
        let findings = MatrixFindings::from_runs_and_failures(
            &self.matrix,
            runs,
            &self.unresolved_failures(runs)?,
        );
        // Joules need their source beside them: a model or a meter.
        let meter = match (&self.matrix.device.profile, &self.matrix.meter) {
            (Some(profile), _) => {
                format!(
                    "modelled by {profile} from the requests that reached the device, in virtual \
                     time"
                )
            }
            (None, Some(meter)) => format!("measured by {}", meter.name()),
            (None, None) => "not known: the device has no meter".to_owned(),
        };
        let name = self
            .results
            .file_name()
            .map_or("Matrix".into(), |name| name.to_string_lossy());
        let machine = versions::version_lines(&self.results)?;
        // The commands in the report must work as they are.
        let erase = self
            .matrix
            .device
            .path
            .as_ref()
            .map_or(String::new(), |path| format!(" --erase {path}"));
        let commands = vec![
            format!("teal lab matrix matrix.toml --results again{erase}"),
            "teal lab compare . again".into(),
        ];
        let page = format!(
            "# {}\n\n{}.\n\n{}\n## To have it again\n\n```console\n{}\n```\n",
            escape_markdown(&name),
            machine.join("; "),
            render_markdown(&self.matrix, &findings, &meter),
            commands.join("\n")
        );
        let path = self.results.join("report.md");
        std::fs::write(&path, page).with_context(|| path.display().to_string())?;
        let about = PageDetails {
            title: name.into_owned(),
            machine,
            meter,
            commands,
        };
        let beside = path.with_extension("html");
        std::fs::write(&beside, render_html(&self.matrix, &findings, &about))
            .with_context(|| beside.display().to_string())?;
        say!(
            "{} runs; {}, {}",
            findings.runs,
            path.display(),
            beside.display()
        );
        Ok(())
    }

    /// Describes a run for people.
    pub(super) fn run_line(&self, run: &CellRun) -> String {
        let workload = self
            .matrix
            .workloads
            .iter()
            .find(|of| of.name == run.workload);
        // A run that did less than was asked for says so.
        let short = run.describe_shortfall(workload.and_then(|of| of.operations));
        format_run(run) + &short.map_or(String::new(), |short| format!("; {short}"))
    }
}

/// Describes a run for people, without its shortfall.
fn format_run(run: &CellRun) -> String {
    let spent = run.total_use();
    let joules = if spent.joules > 0.0 {
        format!(", {:.2} J", spent.joules)
    } else {
        String::new()
    };
    // A rate before the steady state depends on the length of the run.
    let steady = if run.steady_from.is_some() {
        ""
    } else {
        " (not steady)"
    };
    // The clock of a guest does not tell the rate, but the device's time does.
    let rate = match (&run.guest, run.rate_of_device()) {
        (Some(_), Some(rate)) => format!("in a guest, {rate:.1} ops/s of the device"),
        _ => format!("{:.1} ops/s{steady}", run.rate),
    };
    format!(
        "{}, {}, {}: {rate}{joules}, {} read, {} written",
        run.workload,
        run.system,
        run.scheduler,
        human_size(spent.read),
        human_size(spent.written)
    )
}
