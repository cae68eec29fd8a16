//! Runs one cell once: a fresh file system, its files, a cold start, the workload, the drain. The
//! steps are the same on this machine's kernel and in a guest.
//!
//! # Guarantees
//! 1. The workload begins only when the data of its files is written. Unless a warm cache is
//!    wanted, it begins on a mount of its own.
//! 2. Counting begins after that mount and ends in two steps: with the last operation, and when the
//!    file system has been unmounted.

mod figures;
mod on_host;

pub use figures::WorkloadFigures;
pub use on_host::{DeviceFigures, run_here};

use crate::ageing;
use crate::memory_limit::MemoryLimit;
use crate::sources::ScriptSources;
use crate::testbed::{Testbed, TestbedMount};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use teal_env::SystemClock;
use teal_study::matrix::{CacheState, FileSystemSetup};
use teal_study::workload::{
    RunError, RunListener, RunOutcome, WorkloadOptions, execute_plan, plan_script,
};

/// Describes a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CellTask {
    /// File system with its options.
    pub system: FileSystemSetup,
    /// Scheduler of the device.
    pub scheduler: String,
    /// Content of the cache when the workload begins.
    pub cache: CacheState,
    /// Percent of the device's files that ageing leaves; `None` means a fresh file system.
    pub aged: Option<u64>,
    /// Bytes of memory that the run may hold, with that of its threads.
    pub memory: Option<u64>,
    /// Options of the workload, with the directory as it is called where it runs.
    pub options: WorkloadOptions,
    /// Script of the workload.
    pub script: ScriptSources,
}

/// Counts requests and joules of a run. Each method is called once, in this order.
pub(crate) trait CellCounter: Send {
    /// Starts counting.
    fn begin_count(&mut self, testbed: &Testbed) -> Result<()>;
    /// Notes that the last operation has been done.
    fn end_operations(&mut self, testbed: &Testbed) -> Result<()>;
    /// Notes that all data is written.
    fn end_drain(&mut self, testbed: &Testbed) -> Result<()>;
}

/// Acts between the making of the files and the workload.
struct ColdStart<'a, C> {
    task: &'a CellTask,
    testbed: &'a Testbed,
    mounted: Mutex<Option<TestbedMount>>,
    limit: Mutex<Option<MemoryLimit>>,
    counter: Mutex<&'a mut C>,
    ended: &'a AtomicBool,
}

fn lock_ignoring_poison<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere must not hide the result of the run.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<C: CellCounter> ColdStart<'_, C> {
    /// Empties the cache, if that is wanted; from its end on everything is counted.
    fn start_cold(&self) -> Result<()> {
        let task = self.task;
        let mut mounted = lock_ignoring_poison(&self.mounted);
        if task.cache == CacheState::Warm {
            // Making the files must not leave data to be written during the run.
            rustix::fs::sync();
        } else {
            if let Some(mounted) = mounted.take() {
                mounted.finish()?;
            }
            let again = self
                .testbed
                .mount(&task.system, &task.options.dir, task.cache)?;
            *mounted = Some(again);
        }
        // Counting starts last, so that the mount is not in the figures.
        lock_ignoring_poison(&self.counter).begin_count(self.testbed)?;
        // The limit comes after the counter, which may need memory of its own.
        *lock_ignoring_poison(&self.limit) =
            task.memory.map(MemoryLimit::enter_group).transpose()?;
        Ok(())
    }
}

impl<C: CellCounter> RunListener for ColdStart<'_, C> {
    fn files_made(&self) -> Result<(), RunError> {
        self.start_cold()
            .map_err(|e| RunError::Failed(format!("{e:#}")))
    }

    fn print_line(&self, line: &str) {
        log::debug!("{line}");
    }

    fn report_progress(&self, _: &RunOutcome) {}

    fn is_interrupted(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

/// Runs a cell on a device that has all `schedulers`; returns `None` if it was interrupted.
pub(crate) fn run_on_testbed<C: CellCounter>(
    task: &CellTask,
    testbed: &Testbed,
    schedulers: &[String],
    counter: &mut C,
    ended: &AtomicBool,
) -> Result<Option<WorkloadFigures>> {
    let (system, dir) = (&task.system, &task.options.dir);
    // The scheduler is set before mkfs, so that a missing one costs nothing.
    testbed.set_scheduler(&task.scheduler, schedulers)?;
    testbed.make_filesystem(system)?;
    // One seed ages all file systems of a block alike.
    let seed = task.options.seed;
    if !ageing::age_filesystem(task.aged, seed, testbed, system, dir, ended)? {
        return Ok(None);
    }
    let mounted = testbed.mount(system, dir, CacheState::Cold)?;
    // The plan is made anew, because a guest has only the texts.
    let plan = plan_script(&task.script.parse_script()?, task.options.clone())?;
    let start = ColdStart {
        task,
        testbed,
        mounted: Mutex::new(Some(mounted)),
        limit: Mutex::default(),
        counter: Mutex::new(counter),
        ended,
    };
    let outcome = execute_plan(&plan, &SystemClock, &start);
    // The limit was for the workload; the rest is the laboratory's own work.
    drop(lock_ignoring_poison(&start.limit).take());
    let outcome = outcome?.context("the script of this workload runs nothing")?;
    lock_ignoring_poison(&start.counter).end_operations(testbed)?;
    let mounted = lock_ignoring_poison(&start.mounted).take();
    mounted.context("nothing is mounted")?.finish()?;
    // The unmount has written everything: the difference to the count before is the drain.
    lock_ignoring_poison(&start.counter).end_drain(testbed)?;
    // An interrupted run has done too little, so its figures are dropped.
    if start.is_interrupted() {
        return Ok(None);
    }
    Ok(Some(WorkloadFigures::from_outcome(&outcome)))
}

/// Returns the number of processes that wanted to run in the last minute.
pub fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|load| load.parse().ok())
        .unwrap_or(0.0)
}
