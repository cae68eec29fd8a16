//! Runs a matrix's cells: on this machine's kernel or in a guest, as their file system asks.

use super::bench::MatrixBench;
use anyhow::{Context, Result, bail};
use std::path::Path;
use teal_rig::cell::{self, CellTask};
use teal_rig::guest::{self, GuestFeatures, GuestJob, GuestTask};
use teal_rig::testbed;
use teal_study::matrix::{CellRun, FileSystemSetup, KernelPlace, MatrixCell};
use teal_study::workload::plan_script;

impl MatrixBench {
    /// Runs a cell; returns `None` if it was interrupted.
    pub(super) fn measure_cell(&self, cell: MatrixCell, block: u32) -> Result<Option<CellRun>> {
        // Read before the run adds its own load.
        let load_before = cell::load_average();
        // The kernel is named only for guests: runs on this machine share its one.
        let (kernel, figures, device) = if self.in_guest(cell.system) {
            let job = self.guest_job(cell, block)?;
            let Some((kernel, figures, device)) = guest::run_cell(&job, &self.ended)? else {
                return Ok(None);
            };
            (Some(kernel), figures, device)
        } else {
            let testbed = self.open_testbed()?;
            let task = self.cell_task(cell, block, &self.results.join("mount"))?;
            let schedulers = &self.matrix.schedulers.names;
            let metering = self.matrix.meter.as_ref();
            let Some((figures, device)) =
                cell::run_here(&task, &testbed, schedulers, metering, &self.ended)?
            else {
                return Ok(None);
            };
            (None, figures, device)
        };
        let names = self.matrix.cell_names(cell).map(str::to_owned);
        Ok(Some(CellRun {
            meter: device.meter,
            run: device.run,
            drain: device.drain,
            power: device.power,
            guest: kernel,
            ..figures.into_run(names, block, load_before)
        }))
    }

    /// Returns the task of a cell in a block, with the directory as it is called where it runs.
    fn cell_task(&self, cell: MatrixCell, block: u32, dir: &Path) -> Result<CellTask> {
        let runs = &self.matrix.runs;
        let options = self.run_options(cell.workload, block, dir)?;
        // The limit is for the caches: the threads' own memory comes on top.
        let held_by_threads =
            plan_script(&self.scripts[cell.workload], options.clone())?.memory_bytes();
        let [_, _, scheduler] = self.matrix.cell_names(cell);
        Ok(CellTask {
            system: self.matrix.systems[cell.system].clone(),
            scheduler: scheduler.to_owned(),
            cache: runs.cache,
            aged: runs.aged,
            memory: runs
                .memory
                .map(|memory| memory.saturating_add(held_by_threads)),
            options,
            script: self.sources[cell.workload].clone(),
        })
    }

    /// Returns the job of a guest that runs a cell.
    fn guest_job(&self, cell: MatrixCell, block: u32) -> Result<GuestJob> {
        let task = self.cell_task(cell, block, Path::new(guest::MOUNT_DIR))?;
        let held_by_threads =
            plan_script(&self.scripts[cell.workload], task.options.clone())?.memory_bytes();
        // The guest's memory bounds its caches, as a limit does here.
        let memory = held_by_threads.saturating_add(self.matrix.runs.memory.unwrap_or(0));
        let task = GuestTask::Run(Box::new(task));
        Ok(self.new_guest_job(self.matrix.runs.seconds, memory, task))
    }

    /// Returns whether a file system runs in a guest.
    pub(super) fn in_guest(&self, system: usize) -> bool {
        guest::kernel_place(&self.matrix.systems[system]) == KernelPlace::Guest
    }

    /// Checks that a file system can be made where it runs.
    pub(super) fn check_system(&self, system: usize) -> Result<()> {
        let of = &self.matrix.systems[system];
        let kind = of.kind;
        // The place comes from the setup, or from what this kernel has.
        let lacks = || format!("this kernel has no {}: it needs a guest", kind.name());
        match (of.place, self.in_guest(system)) {
            (Some(_), true) => guest::check_guest(kind),
            // A guest has modelled disks only, so a real device needs this kernel.
            (None, true) if self.matrix.device.path.is_some() => {
                bail!(
                    "{}, and a guest has modelled disks only; say device.profile and size",
                    lacks()
                )
            }
            (None, true) => guest::check_guest(kind).with_context(lacks),
            (Some(_), false) if !kind.is_ours() && !testbed::kernel_has(kind) => {
                bail!(
                    "this kernel has no {}; leave `where` out, and it runs in a guest",
                    kind.name()
                )
            }
            (_, false) => testbed::check_kind(kind),
        }
    }

    fn new_guest_job(&self, busy: u64, memory: u64, task: GuestTask) -> GuestJob {
        let device = &self.matrix.device;
        let profile = device.profile.clone().unwrap_or_default();
        GuestJob {
            profile,
            size: device.size.unwrap_or(0),
            memory,
            busy,
            task,
        }
    }

    /// Returns the kernel of guests, if a file system runs in one, and refuses schedulers that it
    /// lacks. Returns `None` after an interruption too.
    pub(super) fn guest_kernel(&self) -> Result<Option<String>> {
        let Some(first) = (0..self.matrix.systems.len()).find(|system| self.in_guest(*system))
        else {
            return Ok(None);
        };
        let Some(outcome) =
            guest::run_guest(&self.new_guest_job(0, 0, GuestTask::Look), &self.ended)?
        else {
            return Ok(None);
        };
        // Schedulers are those of the guest's kernel, not of this one.
        let GuestFeatures { schedulers } =
            serde_json::from_value(outcome.answer).context("the guest's answer")?;
        let wanted = &self.matrix.schedulers.names;
        if let Some(missing) = wanted.iter().find(|name| !schedulers.contains(name)) {
            bail!(
                "system {} runs in a guest, and that has no scheduler {missing}; it has {}",
                self.matrix.systems[first].name,
                schedulers.join(", ")
            );
        }
        Ok(Some(outcome.kernel))
    }

    /// Makes a file system in a guest and mounts it.
    pub(super) fn try_in_guest(&self, system: &FileSystemSetup) -> Result<()> {
        guest::run_guest(
            &self.new_guest_job(0, 0, GuestTask::Try(system.clone())),
            &self.ended,
        )
        .map(drop)
    }
}
