//! Measures a cell of `teal lab phases`: a group of phases of scherlfs on a fresh file system. The
//! steps are the same on this machine's kernel and in a guest.

mod stage;
mod tally;

pub(crate) use stage::{CacheScope, PhaseCounter, PhaseStage};
pub(crate) use tally::phase_result;

use crate::disk::RequestSums;
use crate::testbed::Testbed;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use teal_study::matrix::FileSystemKind;
use teal_study::phases::{PhaseGroup, PhaseResult, SyncMode, WorkloadPhase};

/// Describes a group of phases on a file system.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PhasesTask {
    /// Kind of the file system.
    pub kind: FileSystemKind,
    /// Name of the group.
    pub group: String,
    /// Says when written data has to be on the disk.
    pub mode: SyncMode,
    /// Factor on the number of files and accesses.
    pub scale: f64,
}

/// Returns the group of phases of that name.
///
/// # Errors
/// Returns an error if there is none; the error names those that exist.
pub fn group_named(name: &str) -> Result<PhaseGroup> {
    let names = || {
        PhaseGroup::ALL
            .iter()
            .map(|group| group.name())
            .collect::<Vec<_>>()
            .join(", ")
    };
    PhaseGroup::by_name(name)
        .with_context(|| format!("there is no group of phases {name}; there are {}", names()))
}

/// Counts by asking the process of the modelled disk.
#[derive(Default)]
struct DiskCounter {
    ran: RequestSums,
    done: Vec<PhaseResult>,
}

fn sums_since_mark(testbed: &Testbed) -> Result<RequestSums> {
    serde_json::from_value(testbed.since_mark()?).context("the disk's answer cannot be understood")
}

impl PhaseCounter for DiskCounter {
    fn begin_phase(&mut self, testbed: &Testbed, _: &WorkloadPhase) -> Result<()> {
        testbed.set_mark().map(drop)
    }
    fn end_operations(&mut self, testbed: &Testbed, _: &WorkloadPhase) -> Result<()> {
        self.ran = sums_since_mark(testbed)?;
        Ok(())
    }
    fn end_drain(
        &mut self,
        testbed: &Testbed,
        phase: &WorkloadPhase,
        operations: u64,
    ) -> Result<()> {
        self.done.push(phase_result(
            phase,
            operations,
            &self.ran,
            sums_since_mark(testbed)?,
        ));
        Ok(())
    }
}

/// Measures a cell on this machine's kernel, on a modelled disk of this profile and size.
///
/// # Errors
/// Returns an error if the cell cannot be measured, or was interrupted.
pub fn run_here(
    (profile, size): (&str, u64),
    dir: &Path,
    task: &PhasesTask,
    ended: &AtomicBool,
) -> Result<Vec<PhaseResult>> {
    let testbed = Testbed::start_modelled(profile, size)?;
    let counter = DiskCounter::default();
    let mut stage = PhaseStage::new(task, testbed, dir, CacheScope::Shared, counter, ended)?;
    stage.carry_out_task(task)?;
    let _ = std::fs::remove_dir(dir);
    Ok(std::mem::take(&mut stage.counter.done))
}
