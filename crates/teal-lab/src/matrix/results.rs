//! Keeps the growing files of a matrix's directory of results: runs, and failed cells.

use super::bench::{FAILED, MARK, MatrixBench};
use anyhow::{Context, Result, bail};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use teal_study::matrix::{CellFailure, CellRun, MatrixCell};

impl MatrixBench {
    /// Returns the existing runs; makes the directory if it is missing.
    pub(super) fn open_results(&self, text: &str) -> Result<Vec<CellRun>> {
        std::fs::create_dir_all(&self.results)
            .with_context(|| self.results.display().to_string())?;
        // Making the file marks the directory as one of results.
        drop(self.runs_file()?);
        let runs = read_runs(&self.results.join(MARK))?;
        let kept = self.results.join("matrix.toml");
        match std::fs::read_to_string(&kept) {
            // A matrix without runs may be replaced by another.
            Ok(there) if there == text => {}
            Ok(_) if !runs.is_empty() => {
                bail!(
                    "{} has the results of another matrix; say another --results",
                    self.results.display()
                )
            }
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(e).with_context(|| kept.display().to_string());
            }
            _ => std::fs::write(&kept, text).with_context(|| kept.display().to_string())?,
        }
        Ok(runs)
    }

    /// Opens the file of runs.
    pub(super) fn runs_file(&self) -> Result<File> {
        let path = self.results.join(MARK);
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| path.display().to_string())
    }

    /// Returns cells that failed and have not been run since.
    pub(super) fn unresolved_failures(&self, runs: &[CellRun]) -> Result<Vec<CellFailure>> {
        let all: Vec<CellFailure> = crate::json_lines::read_lines(&self.results.join(FAILED))?;
        // A later run of the same cell settles the failure.
        let is_run = |of: &CellFailure| {
            runs.iter().any(|run| {
                run.block == of.block
                    && [&run.workload, &run.system, &run.scheduler] == of.names.each_ref()
            })
        };
        Ok(all.into_iter().filter(|of| !is_run(of)).collect())
    }

    pub(super) fn keep_failure(
        &self,
        cell: MatrixCell,
        block: u32,
        error: &anyhow::Error,
    ) -> Result<()> {
        let failure = CellFailure {
            names: self.matrix.cell_names(cell).map(str::to_owned),
            block,
            why: format!("{error:#}"),
        };
        let path = self.results.join(FAILED);
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let line = serde_json::to_string(&failure)?;
        file.and_then(|mut file| writeln!(file, "{line}"))
            .with_context(|| path.display().to_string())
    }
}

/// Reads runs, and removes a last line that is incomplete.
pub(crate) fn read_runs(path: &Path) -> Result<Vec<CellRun>> {
    let runs: Vec<CellRun> = crate::json_lines::read_lines(path)?;
    if let Some(at) = runs.iter().position(|run| run.version != CellRun::VERSION) {
        bail!(
            "{}, line {}: version {} is not known here",
            path.display(),
            at + 1,
            runs[at].version
        );
    }
    Ok(runs)
}
