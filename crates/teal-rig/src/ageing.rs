//! Ageing: before a run's files are made, its file system is filled and thinned out again, so that
//! free space is in pieces.
//!
//! # Guarantees
//! 1. What is done depends on the percentage and the block's seed alone: it is the same for all
//!    cells of a block. How many files fit is the file system's own affair.
//! 2. Its files lie in a directory of their own, which no workload knows.

use crate::testbed::{Mounted, Testbed};
use anyhow::{Context, Result};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use teal_study::matrix::{Cache, System};
use teal_study::phases::{Phase, PhaseEnvironment, PhaseError, ageing, carry_out};

/// Where its files lie, below the mount.
const DIR: &str = "aged";

/// A file system that is aged.
struct Ageing<'a> {
    ended: &'a AtomicBool,
    testbed: &'a Testbed,
    system: &'a System,
    dir: &'a Path,
    mounted: Option<Mounted>,
}

fn failed<T>(done: Result<T>) -> Result<T, PhaseError> {
    done.map_err(|e| PhaseError::Environment(format!("{e:#}")))
}

impl PhaseEnvironment for Ageing<'_> {
    fn mount(&mut self) -> Result<PathBuf, PhaseError> {
        self.mounted = Some(failed(self.testbed.mount(
            self.system,
            self.dir,
            Cache::Cold,
        ))?);
        let dir = self.dir.join(DIR);
        failed(std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string()))?;
        Ok(dir)
    }

    fn unmount(&mut self) -> Result<(), PhaseError> {
        self.mounted
            .take()
            .map_or(Ok(()), |mounted| failed(mounted.end()))
    }

    fn begin(&mut self, _: &Phase) -> Result<(), PhaseError> {
        Ok(())
    }

    fn ran(&mut self, _: &Phase) -> Result<(), PhaseError> {
        Ok(())
    }

    fn drained(&mut self, _: &Phase, _: u64) -> Result<(), PhaseError> {
        Ok(())
    }

    fn forget(&self, _: &File) -> Result<(), PhaseError> {
        Ok(())
    }

    fn next_tick(&self) {}

    fn is_over(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

/// Ages a file system that has just been made to so many percent, if that is wanted; `false` if
/// that was interrupted.
pub(crate) fn age(
    percent: Option<u64>,
    seed: u64,
    testbed: &Testbed,
    system: &System,
    dir: &Path,
    ended: &AtomicBool,
) -> Result<bool> {
    let Some(percent) = percent else {
        return Ok(true);
    };
    let mut stage = Ageing {
        ended,
        testbed,
        system,
        dir,
        mounted: None,
    };
    match carry_out(
        &ageing(percent, seed),
        teal_study::phases::Mode::C,
        &mut stage,
    ) {
        Err(PhaseError::Interrupted) => Ok(false),
        done => done.context("ageing").map(|()| true),
    }
}
