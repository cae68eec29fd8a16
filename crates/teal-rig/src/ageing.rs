//! Ages file systems: before a run's files are made, its file system is filled and thinned out
//! again, so that free space is fragmented.
//!
//! # Guarantees
//! 1. Ageing depends on the percentage and the block's seed alone: it is the same for all cells of
//!    a block. The number of files that fit depends on the file system.
//! 2. Its files lie in a directory of their own, which no workload knows.

use crate::testbed::{Testbed, TestbedMount};
use anyhow::{Context, Result};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use teal_study::matrix::{CacheState, FileSystemSetup};
use teal_study::phases::{PhaseEnvironment, PhaseError, WorkloadPhase, ageing_phases, carry_out};

/// Directory of its files, below the mount.
const DIR: &str = "aged";

/// Holds a file system while it is aged.
struct AgeingEnvironment<'a> {
    ended: &'a AtomicBool,
    testbed: &'a Testbed,
    system: &'a FileSystemSetup,
    dir: &'a Path,
    mounted: Option<TestbedMount>,
}

fn environment_error<T>(done: Result<T>) -> Result<T, PhaseError> {
    done.map_err(|e| PhaseError::Environment(format!("{e:#}")))
}

// Every failure here is one of the environment, not of a phase.
impl PhaseEnvironment for AgeingEnvironment<'_> {
    fn mount(&mut self) -> Result<PathBuf, PhaseError> {
        self.mounted = Some(environment_error(self.testbed.mount(
            self.system,
            self.dir,
            CacheState::Cold,
        ))?);
        let dir = self.dir.join(DIR);
        environment_error(
            std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string()),
        )?;
        Ok(dir)
    }

    fn unmount(&mut self) -> Result<(), PhaseError> {
        self.mounted
            .take()
            .map_or(Ok(()), |mounted| environment_error(mounted.finish()))
    }

    fn begin_phase(&mut self, _: &WorkloadPhase) -> Result<(), PhaseError> {
        Ok(())
    }

    fn end_operations(&mut self, _: &WorkloadPhase) -> Result<(), PhaseError> {
        Ok(())
    }

    fn end_drain(&mut self, _: &WorkloadPhase, _: u64) -> Result<(), PhaseError> {
        Ok(())
    }

    fn drop_cached(&self, _: &File) -> Result<(), PhaseError> {
        Ok(())
    }

    fn next_tick(&self) {}

    fn is_over(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

/// Ages a fresh file system to this percentage, if that is wanted; returns `false` if it was
/// interrupted.
pub(crate) fn age_filesystem(
    percent: Option<u64>,
    seed: u64,
    testbed: &Testbed,
    system: &FileSystemSetup,
    dir: &Path,
    ended: &AtomicBool,
) -> Result<bool> {
    let Some(percent) = percent else {
        return Ok(true);
    };
    // Its files stay in a directory of their own, beside those of the workload.
    let mut stage = AgeingEnvironment {
        ended,
        testbed,
        system,
        dir,
        mounted: None,
    };
    match carry_out(
        &ageing_phases(percent, seed),
        teal_study::phases::SyncMode::C,
        &mut stage,
    ) {
        Err(PhaseError::Interrupted) => Ok(false),
        done => done.context("ageing").map(|()| true),
    }
}
