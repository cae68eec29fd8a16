//! One group of rows on one subject in one round, and the calls that a row may use.

use super::lab::MountTestbed;
use super::meter::{RowSample, client_cpu, monotonic_seconds, server_cpu};
use super::subject::SubjectKind;
use anyhow::Result;
use std::path::{Path, PathBuf};

pub(super) struct RowStage<'a> {
    lab: &'a mut MountTestbed,
    kind: SubjectKind,
    round: usize,
    samples: &'a mut Vec<RowSample>,
}

/// The amount of work of one timed part.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowWork {
    pub(super) ops: u64,
    pub(super) user_bytes: u64,
}

/// Returns the work of so many operations that write next to nothing.
pub(super) fn ops_only(ops: u64) -> RowWork {
    RowWork { ops, user_bytes: 0 }
}

impl<'a> RowStage<'a> {
    pub(super) fn new(
        lab: &'a mut MountTestbed,
        kind: SubjectKind,
        round: usize,
        samples: &'a mut Vec<RowSample>,
    ) -> Self {
        Self {
            lab,
            kind,
            round,
            samples,
        }
    }

    /// Returns the directory to work in.
    pub(super) fn work_dir(&mut self) -> Result<PathBuf> {
        Ok(self.lab.subject_mut(self.kind)?.work_dir())
    }

    /// Returns a directory that stays for every round; `make` fills it the first time.
    pub(super) fn kept_dir(
        &mut self,
        name: &str,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let path = self.work_dir()?.join(name);
        if !path.exists() {
            std::fs::create_dir(&path)?;
            make(&path)?;
            self.commit()?;
        }
        Ok(path)
    }

    /// Makes a new, empty directory.
    pub(super) fn new_dir(&mut self, name: &str) -> Result<PathBuf> {
        let path = self.work_dir()?.join(name);
        std::fs::create_dir(&path)?;
        Ok(path)
    }

    /// Removes a directory that a row made.
    pub(super) fn remove_dir(&mut self, path: &Path) -> Result<()> {
        std::fs::remove_dir_all(path)?;
        self.commit()
    }

    /// Makes everything durable.
    pub(super) fn commit(&mut self) -> Result<()> {
        self.lab.subject_mut(self.kind)?.make_durable()
    }

    /// Makes everything cold.
    pub(super) fn make_cold(&mut self) -> Result<()> {
        self.commit()?;
        self.lab.remount_cold()
    }

    pub(super) fn archive_path(&self, extension: &str) -> PathBuf {
        self.lab.archive_path(extension)
    }

    /// Times `work`, which makes nothing durable by itself.
    pub(super) fn time_work(
        &mut self,
        row: &'static str,
        work: RowWork,
        run: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.measure_work(row, work, |_| run())
    }

    /// Times `work` and a commit of everything after it.
    pub(super) fn time_durable(
        &mut self,
        row: &'static str,
        work: RowWork,
        run: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.measure_work(row, work, |stage| run().and_then(|()| stage.commit()))
    }

    fn measure_work(
        &mut self,
        row: &'static str,
        work: RowWork,
        run: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let subject = self.lab.subject_mut(self.kind)?;
        let pids = subject.pids().to_vec();
        // Counters are read outside of the timed part.
        let before = subject.read_counts()?;
        // The clock is read last before the work, and first after it.
        let (client, server, wall) = (client_cpu()?, server_cpu(&pids), monotonic_seconds());
        run(self)?;
        let (wall, client, server) = (
            monotonic_seconds() - wall,
            client_cpu()? - client,
            server_cpu(&pids) - server,
        );
        let counts = self
            .lab
            .subject_mut(self.kind)?
            .read_counts()?
            .since(&before);
        self.samples.push(RowSample {
            row,
            subject: self.kind.label(),
            round: self.round,
            ops: work.ops,
            user_bytes: work.user_bytes,
            wall,
            client_cpu: client,
            server_cpu: server,
            counts,
        });
        Ok(())
    }
}
