//! One group of rows on one subject in one round: what a row may use.

use super::lab::Lab;
use super::meter::{Sample, client_cpu, now, server_cpu};
use super::subject::Kind;
use anyhow::Result;
use std::path::{Path, PathBuf};

pub(super) struct Stage<'a> {
    lab: &'a mut Lab,
    kind: Kind,
    round: usize,
    samples: &'a mut Vec<Sample>,
}

/// How much one timed part does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) ops: u64,
    pub(super) user_bytes: u64,
}

/// So many operations that write nothing worth counting.
pub(super) fn ops(ops: u64) -> Work {
    Work { ops, user_bytes: 0 }
}

impl<'a> Stage<'a> {
    pub(super) fn new(
        lab: &'a mut Lab,
        kind: Kind,
        round: usize,
        samples: &'a mut Vec<Sample>,
    ) -> Self {
        Self {
            lab,
            kind,
            round,
            samples,
        }
    }

    /// The directory to work in.
    pub(super) fn dir(&mut self) -> Result<PathBuf> {
        Ok(self.lab.subject(self.kind)?.dir())
    }

    /// A directory that is there in every round; `make` fills it the first time.
    pub(super) fn fixture(
        &mut self,
        name: &str,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let path = self.dir()?.join(name);
        if !path.exists() {
            std::fs::create_dir(&path)?;
            make(&path)?;
            self.commit()?;
        }
        Ok(path)
    }

    /// A new, empty directory.
    pub(super) fn fresh(&mut self, name: &str) -> Result<PathBuf> {
        let path = self.dir()?.join(name);
        std::fs::create_dir(&path)?;
        Ok(path)
    }

    /// Removes what a row made.
    pub(super) fn discard(&mut self, path: &Path) -> Result<()> {
        std::fs::remove_dir_all(path)?;
        self.commit()
    }

    /// Makes everything durable.
    pub(super) fn commit(&mut self) -> Result<()> {
        self.lab.subject(self.kind)?.commit()
    }

    /// Makes everything cold.
    pub(super) fn chill(&mut self) -> Result<()> {
        self.commit()?;
        self.lab.remount()
    }

    pub(super) fn archive(&self, extension: &str) -> PathBuf {
        self.lab.archive(extension)
    }

    /// Times `work`, which makes nothing durable by itself.
    pub(super) fn time(
        &mut self,
        row: &'static str,
        work: Work,
        run: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.measure(row, work, |_| run())
    }

    /// Times `work` and a commit of everything after it.
    pub(super) fn time_durable(
        &mut self,
        row: &'static str,
        work: Work,
        run: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.measure(row, work, |stage| run().and_then(|()| stage.commit()))
    }

    fn measure(
        &mut self,
        row: &'static str,
        work: Work,
        run: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let subject = self.lab.subject(self.kind)?;
        let pids = subject.pids().to_vec();
        let before = subject.counts()?;
        let (client, server, wall) = (client_cpu()?, server_cpu(&pids), now());
        run(self)?;
        let (wall, client, server) = (
            now() - wall,
            client_cpu()? - client,
            server_cpu(&pids) - server,
        );
        let counts = self.lab.subject(self.kind)?.counts()?.since(&before);
        self.samples.push(Sample {
            row,
            subject: self.kind.name(),
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
