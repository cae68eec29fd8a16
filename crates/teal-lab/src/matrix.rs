//! `teal lab matrix`: runs a matrix of workloads, file systems and schedulers, and says what to
//! take.
//!
//! # The directory of results
//! | file | what |
//! |---|---|
//! | `matrix.toml` | the matrix as it was when the first run began; another one is refused |
//! | `runs.jsonl` | one run a line; a line that was cut off in the middle is taken away |
//! | `failed.jsonl` | one cell a line that came to nothing, and why; the next command tries them again |
//! | `scripts.json` | the scripts of the workloads, with what they load; another one is refused |
//! | `versions.json` | kernels and programs that made the runs |
//! | `owner` | the process that measures; it is there as long as one does ([`ownership`]) |
//! | `report.md`, `report.html` | what follows, made anew after every block; the page needs nothing else |
//!
//! # Guarantees
//! 1. Nothing is written to a device that is in use, nor to a real one without being told to lose
//!    what is on it.
//! 2. Each run begins on a fresh file system, on a fresh disk if that is modelled.
//! 3. Whatever is interrupted goes on with the next run; what was mounted and started for a run
//!    goes with it, or, if this program was killed, when it goes on.
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

use crate::cli::MatrixArgs as Args;
use anyhow::{Context, Result, bail};
use bench::{MARK, MatrixBench};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use teal_rig::ownership::{self, ResultsOwnership};
use teal_study::matrix::Matrix;

/// Runs the command.
pub(crate) fn run_matrix(args: &Args) -> Result<ExitCode> {
    let name = args.file.display();
    let text = std::fs::read_to_string(&args.file).with_context(|| name.to_string())?;
    let matrix = Matrix::parse(&text).with_context(|| name.to_string())?;
    let beside = args.file.parent().unwrap_or(Path::new("."));
    let sources = scripts::scripts_of(&matrix, beside)?;
    let bench = MatrixBench::new(matrix, sources, &args.kept.results)?;
    ownership::check_directory(&bench.results, MARK)?;
    // Before anything is looked at: a killed run may have left the device mounted.
    let _owned = if args.kept.dry_run {
        None
    } else {
        Some(ResultsOwnership::claim(&bench.results, MARK)?)
    };
    // A report takes nothing of what runs take.
    if !args.kept.only_report {
        bench.check_all(args.erase.as_deref(), !args.kept.dry_run)?;
    }
    if args.kept.dry_run {
        bench.print_forecast()?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut runs = bench.open_results(&text)?;
    if !args.kept.only_report {
        bench.end_on_signals()?;
        bench.prepare_runs(&runs)?;
        bench.try_all(&runs)?;
        bench.run_blocks(&mut runs)?;
    }
    bench.write_report(&runs)?;
    if bench.ended.load(Ordering::Relaxed) {
        bail!(
            "interrupted after {} runs; the same command goes on",
            runs.len()
        );
    }
    let failures = bench.unresolved_failures(&runs)?;
    if !args.kept.only_report && !failures.is_empty() {
        let lines: Vec<String> = failures
            .iter()
            .map(|of| format!("{}: {}", of.names.join(", "), of.why))
            .collect();
        bail!(
            "{} cells failed, and the same command tries them again: {}",
            failures.len(),
            lines.join("; ")
        );
    }
    Ok(ExitCode::SUCCESS)
}
