//! Implements `teal lab matrix`: runs a matrix of workloads, file systems and schedulers, and says
//! which to take.
//!
//! # The directory of results
//! | file | content |
//! |---|---|
//! | `matrix.toml` | the matrix as it was when the first run began; another one is refused |
//! | `runs.jsonl` | one run a line; a line that was cut off in the middle is taken away |
//! | `failed.jsonl` | one failed cell a line, and why; the next command tries them again |
//! | `scripts.json` | the scripts of the workloads, with what they load; another one is refused |
//! | `versions.json` | kernels and programs that made the runs |
//! | `owner` | the process that measures; it is there as long as one does ([`ownership`]) |
//! | `report.md`, `report.html` | the findings, written again after every block |
//!
//! # Guarantees
//! 1. Nothing is written to a device that is in use, nor to a real one unless the user says that
//!    its content may be lost.
//! 2. Each run begins on a fresh file system, on a fresh disk if the disk is modelled.
//! 3. An interrupted command goes on with the next run. The mounts and disks of a run go with it
//!    or, if this program was killed, when it goes on.
//! 4. Each file system has been made and mounted once before the first run. A cell that fails ends
//!    no other.
//! 5. The runs of a file system are all on this machine's kernel, or all in guests.

mod beforehand;
mod bench;
mod forecast;
mod measure;
mod report;
mod results;
mod room;
pub(crate) mod scripts;
mod tune;
pub(crate) mod versions;

pub(crate) use results::read_runs;
pub(crate) use tune::run_tune;

use crate::cli::MatrixArgs;
use anyhow::{Context, Result, bail};
use bench::{MARK, MatrixBench, end_on_signals};
use std::path::Path;
use std::process::ExitCode;
use teal_rig::ownership::{self, ResultsOwnership};
use teal_study::matrix::{CellRun, Matrix};

/// Runs the command.
pub(crate) fn run_matrix(args: &MatrixArgs) -> Result<ExitCode> {
    let name = args.file.display();
    let text = std::fs::read_to_string(&args.file).with_context(|| name.to_string())?;
    let matrix = Matrix::parse(&text).with_context(|| name.to_string())?;
    let beside = args.file.parent().unwrap_or(Path::new("."));
    let sources = scripts::scripts_of(&matrix, beside)?;
    let bench = MatrixBench::new(matrix, sources, &args.kept.results, end_on_signals()?)?;
    ownership::check_directory(&bench.results, MARK)?;
    // Taken before anything is looked at: a killed run may have left the device mounted.
    let _owned = if args.kept.dry_run {
        None
    } else {
        Some(ResultsOwnership::claim(&bench.results, MARK)?)
    };
    // A report needs nothing of what runs need.
    if !args.kept.only_report {
        bench.check_all(args.erase.as_deref(), !args.kept.dry_run)?;
    }
    if bench.is_interrupted() {
        bail!("interrupted before the first run");
    }
    if args.kept.dry_run {
        bench.print_forecast()?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut runs = bench.open_results(&text)?;
    if !args.kept.only_report {
        bench.prepare_runs(&runs)?;
        bench.try_all(&runs)?;
        bench.run_blocks(&mut runs)?;
    }
    // The report is made even after an interruption: it tells what is known so far.
    bench.write_report(&runs)?;
    if bench.is_interrupted() {
        bail!(
            "interrupted after {} runs; the same command goes on",
            runs.len()
        );
    }
    if !args.kept.only_report {
        check_failures(&bench, &runs)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Ends the command with an error if cells have failed, and names them.
fn check_failures(bench: &MatrixBench, runs: &[CellRun]) -> Result<()> {
    let failures = bench.unresolved_failures(runs)?;
    if failures.is_empty() {
        return Ok(());
    }
    let mut lines = Vec::new();
    for of in &failures {
        lines.push(format!("{}: {}", of.names.join(", "), of.why));
    }
    bail!(
        "{} cells failed, and the same command tries them again: {}",
        failures.len(),
        lines.join("; ")
    );
}
