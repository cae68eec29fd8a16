//! The files of a matrix's directory of results that are added to: runs, and cells that came to
//! nothing.

use super::bench::{FAILED, MARK, MatrixBench};
use anyhow::{Context, Result, bail};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use teal_study::matrix::{Cell, Failure, Run};

impl MatrixBench {
    /// The runs that are there; the directory is made if it is not.
    pub(super) fn open(&self, text: &str) -> Result<Vec<Run>> {
        std::fs::create_dir_all(&self.results)
            .with_context(|| self.results.display().to_string())?;
        // From here on it is a directory of results.
        drop(self.kept()?);
        let runs = read_runs(&self.results.join(MARK))?;
        let kept = self.results.join("matrix.toml");
        match std::fs::read_to_string(&kept) {
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

    /// Returns where runs are kept.
    pub(super) fn kept(&self) -> Result<File> {
        let path = self.results.join(MARK);
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| path.display().to_string())
    }

    /// Cells that came to nothing, and have not been run since.
    pub(super) fn failures(&self, runs: &[Run]) -> Result<Vec<Failure>> {
        let all: Vec<Failure> = crate::lines::read(&self.results.join(FAILED))?;
        let is_run = |of: &Failure| {
            runs.iter().any(|run| {
                run.block == of.block
                    && [&run.workload, &run.system, &run.scheduler] == of.names.each_ref()
            })
        };
        Ok(all.into_iter().filter(|of| !is_run(of)).collect())
    }

    pub(super) fn fail(&self, cell: Cell, block: u32, error: &anyhow::Error) -> Result<()> {
        let failure = Failure {
            names: self.matrix.names(cell).map(str::to_owned),
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

/// Reads runs, and takes away a last line that is not whole.
pub(crate) fn read_runs(path: &Path) -> Result<Vec<Run>> {
    let runs: Vec<Run> = crate::lines::read(path)?;
    if let Some(at) = runs.iter().position(|run| run.version != Run::VERSION) {
        bail!(
            "{}, line {}: version {} is not known here",
            path.display(),
            at + 1,
            runs[at].version
        );
    }
    Ok(runs)
}
