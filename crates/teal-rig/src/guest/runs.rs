//! Runs tasks in guests: sends them in, does them there, and takes their results out. The steps are
//! those of `cell` and `phases`; the host of the guest counts.

use super::host_line::HostLine;
use super::job::{GuestJob, GuestTask, MOUNT_DIR};
use super::launch;
use crate::cell::{self, CellCounter, CellTask, DeviceFigures, WorkloadFigures};
use crate::phases::{self, CacheScope, PhaseCounter, PhaseStage, PhasesTask, phase_result};
use crate::testbed::Testbed;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use teal_study::matrix::{DeviceUse, EnergySource};
use teal_study::phases::{PhaseResult, WorkloadPhase};

impl CellCounter for HostLine {
    fn begin_count(&mut self, _: &Testbed) -> Result<()> {
        self.tell_begin()
    }
    fn end_operations(&mut self, _: &Testbed) -> Result<()> {
        self.tell_ran()
    }
    fn end_drain(&mut self, _: &Testbed) -> Result<()> {
        self.tell_drained()
    }
}

/// Runs a cell in the guest, and returns the figures of its workload. A guest is ended from
/// outside, never by itself.
pub(super) fn cell_inside(
    task: &CellTask,
    testbed: &Testbed,
    line: &mut HostLine,
) -> Result<WorkloadFigures> {
    let figures = cell::run_on_testbed(task, testbed, &[], line, &AtomicBool::new(false))?;
    figures.context("interrupted")
}

/// Has a guest run a cell; returns its kernel and the figures, or `None` if it was interrupted.
///
/// # Errors
/// Returns an error if there can be no guest here, or the cell cannot be run in it.
pub fn run_cell(
    job: &GuestJob,
    ended: &AtomicBool,
) -> Result<Option<(String, WorkloadFigures, DeviceFigures)>> {
    let Some(outcome) = launch::run_guest(job, ended)? else {
        return Ok(None);
    };
    let [counted] = &outcome.counted[..] else {
        bail!("the guest counted {} runs", outcome.counted.len())
    };
    let figures = serde_json::from_value(outcome.answer).context("the guest's answer")?;
    // The host counted up to the last operation, and then up to the unmount: the drain is the
    // difference.
    let run = DeviceUse::from(&counted.ran);
    let device = DeviceFigures {
        meter: EnergySource::Model(job.profile.clone()),
        drain: DeviceUse::from(&counted.all).since(&run),
        run,
        power: counted.all.watts_over_time(),
    };
    Ok(Some((outcome.kernel, figures, device)))
}

/// Tells the host of each part, and keeps the number of operations of each phase that counts.
struct GuestPhaseCounter<'a> {
    line: &'a mut HostLine,
    operations: Vec<u64>,
}

impl PhaseCounter for GuestPhaseCounter<'_> {
    fn begin_phase(&mut self, _: &Testbed, _: &WorkloadPhase) -> Result<()> {
        self.line.tell_begin()
    }
    fn end_operations(&mut self, _: &Testbed, _: &WorkloadPhase) -> Result<()> {
        self.line.tell_ran()
    }
    fn end_drain(&mut self, _: &Testbed, _: &WorkloadPhase, operations: u64) -> Result<()> {
        self.operations.push(operations);
        self.line.tell_drained()
    }
}

/// Carries the phases out in the guest, and returns the number of operations of each that counts.
pub(super) fn phases_inside(
    task: &PhasesTask,
    testbed: Testbed,
    line: &mut HostLine,
) -> Result<Vec<u64>> {
    let ended = AtomicBool::new(false);
    let counter = GuestPhaseCounter {
        line,
        operations: Vec::new(),
    };
    let dir = Path::new(MOUNT_DIR);
    let mut stage = PhaseStage::new(task, testbed, dir, CacheScope::Own, counter, &ended)?;
    stage.carry_out_task(task)?;
    Ok(std::mem::take(&mut stage.counter.operations))
}

/// Has a guest measure phases, on a modelled disk of this profile and size; returns its kernel, and
/// the results of the phases.
///
/// # Errors
/// Returns an error if there can be no guest here, the phases cannot be carried out, or they were
/// interrupted.
pub fn run_phases(
    (profile, size): (&str, u64),
    task: &PhasesTask,
    ended: &AtomicBool,
) -> Result<(String, Vec<PhaseResult>)> {
    let job = GuestJob {
        profile: profile.to_owned(),
        size,
        memory: 0,
        busy: 0,
        task: GuestTask::Phases(task.clone()),
    };
    let Some(outcome) = launch::run_guest(&job, ended)? else {
        bail!("interrupted")
    };
    let operations: Vec<u64> =
        serde_json::from_value(outcome.answer).context("the guest's answer")?;
    // The host knows the requests, the guest the operations: both lists are in the order of the
    // plan.
    let phases = phases::group_named(&task.group)?.phases_at_scale(task.scale);
    let phases: Vec<&WorkloadPhase> = phases.iter().filter(|phase| phase.counts).collect();
    if phases.len() != operations.len() || phases.len() != outcome.counted.len() {
        bail!(
            "the guest carried out {} phases of {}",
            outcome.counted.len(),
            phases.len()
        );
    }
    let parts = phases.into_iter().zip(operations).zip(outcome.counted);
    let measured = parts
        .map(|((phase, many), of)| phase_result(phase, many, &of.ran, of.all))
        .collect();
    Ok((outcome.kernel, measured))
}
