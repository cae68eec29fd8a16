//! A cell of `teal lab phases`: a group of phases of scherlfs on a fresh file system. The same on
//! this machine's kernel and in a guest.

mod stage;
mod tally;

pub(crate) use stage::{Machine, PhaseCounter, PhaseStage};
pub(crate) use tally::measured;

use crate::disk::RequestSums;
use crate::testbed::Testbed;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use teal_study::matrix::Kind;
use teal_study::phases::{Group, Measured, Mode, Phase};

/// A group of phases on a file system.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PhasesTask {
    /// The file system.
    pub kind: Kind,
    /// The name of the group.
    pub group: String,
    /// When what was written has to be on the disk.
    pub mode: Mode,
    /// Factor on the number of files and accesses.
    pub scale: f64,
}

/// Returns the group of phases of that name.
///
/// # Errors
/// There is none; the error names those that there are.
pub fn group(name: &str) -> Result<Group> {
    let names = || {
        Group::ALL
            .iter()
            .map(|group| group.name())
            .collect::<Vec<_>>()
            .join(", ")
    };
    Group::named(name)
        .with_context(|| format!("there is no group of phases {name}; there are {}", names()))
}

/// Counts by asking the process of the modelled disk.
#[derive(Default)]
struct DiskCounter {
    ran: RequestSums,
    done: Vec<Measured>,
}

fn sums(testbed: &Testbed) -> Result<RequestSums> {
    serde_json::from_value(testbed.since_mark()?).context("the disk's answer cannot be understood")
}

impl PhaseCounter for DiskCounter {
    fn begin(&mut self, testbed: &Testbed, _: &Phase) -> Result<()> {
        testbed.mark().map(drop)
    }
    fn ran(&mut self, testbed: &Testbed, _: &Phase) -> Result<()> {
        self.ran = sums(testbed)?;
        Ok(())
    }
    fn drained(&mut self, testbed: &Testbed, phase: &Phase, operations: u64) -> Result<()> {
        self.done
            .push(measured(phase, operations, &self.ran, sums(testbed)?));
        Ok(())
    }
}

/// Measures a cell on this machine's kernel, on a modelled disk of this profile and size.
///
/// # Errors
/// It cannot be measured, or was interrupted.
pub fn run_here(
    (profile, size): (&str, u64),
    dir: &Path,
    task: &PhasesTask,
    ended: &AtomicBool,
) -> Result<Vec<Measured>> {
    let testbed = Testbed::modelled(profile, size)?;
    let counter = DiskCounter::default();
    let mut stage = PhaseStage::new(task, testbed, dir, Machine::Shared, counter, ended)?;
    stage.perform(task)?;
    let _ = std::fs::remove_dir(dir);
    Ok(std::mem::take(&mut stage.counter.done))
}
