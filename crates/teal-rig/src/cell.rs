//! One run of one cell: a fresh file system, its files, a cold start, the workload, the drain. The
//! same on this machine's kernel and in a guest.
//!
//! # Guarantees
//! 1. The workload begins only when nothing of making its files is left to be written, and, unless
//!    a warm cache is wanted, on a mount of its own.
//! 2. What is counted begins after that mount and ends in two steps: with the last operation, and
//!    when the file system has been unmounted.

mod figures;
mod here;

pub use figures::WorkloadFigures;
pub use here::{DeviceFigures, run_here};

use crate::ageing;
use crate::memory_limit::MemoryLimit;
use crate::sources::ScriptSources;
use crate::testbed::{Mounted, Testbed};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use teal_env::SystemClock;
use teal_study::matrix::{Cache, System};
use teal_study::workload::{Listener, Options, Outcome, RunError, execute, plan};

/// What is to be run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CellTask {
    /// The file system and its options.
    pub system: System,
    /// The device's scheduler.
    pub scheduler: String,
    /// What is in memory when the workload begins.
    pub cache: Cache,
    /// Percent of the device's files that ageing leaves; `None`: the file system is fresh.
    pub aged: Option<u64>,
    /// Bytes of memory that the run may hold, what its threads hold included.
    pub memory: Option<u64>,
    /// How the workload runs, with the directory as it is called where it runs.
    pub options: Options,
    /// The workload.
    pub script: ScriptSources,
}

/// What counts requests and joules of a run. Each method is called once, in this order.
pub(crate) trait CellCounter: Send {
    /// Counts from now on.
    fn begin(&mut self, testbed: &Testbed) -> Result<()>;
    /// The last operation has been done.
    fn ran(&mut self, testbed: &Testbed) -> Result<()>;
    /// Nothing is left to be written.
    fn drained(&mut self, testbed: &Testbed) -> Result<()>;
}

/// What happens between making the files and the workload.
struct ColdStart<'a, C> {
    task: &'a CellTask,
    testbed: &'a Testbed,
    mounted: Mutex<Option<Mounted>>,
    limit: Mutex<Option<MemoryLimit>>,
    counter: Mutex<&'a mut C>,
    ended: &'a AtomicBool,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<C: CellCounter> ColdStart<'_, C> {
    /// Leaves nothing in memory, if that is wanted; from the end of this on everything is counted.
    fn begin(&self) -> Result<()> {
        let task = self.task;
        let mut mounted = locked(&self.mounted);
        if task.cache == Cache::Warm {
            // Nothing of making the files is left to be written.
            rustix::fs::sync();
        } else {
            if let Some(mounted) = mounted.take() {
                mounted.end()?;
            }
            let again = self
                .testbed
                .mount(&task.system, &task.options.dir, task.cache)?;
            *mounted = Some(again);
        }
        locked(&self.counter).begin(self.testbed)?;
        *locked(&self.limit) = task.memory.map(MemoryLimit::enter).transpose()?;
        Ok(())
    }
}

impl<C: CellCounter> Listener for ColdStart<'_, C> {
    fn made(&self) -> Result<(), RunError> {
        self.begin().map_err(|e| RunError::Failed(format!("{e:#}")))
    }

    fn say(&self, line: &str) {
        log::debug!("{line}");
    }

    fn progress(&self, _: &Outcome) {}

    fn interrupted(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

/// Runs a cell on a device that has all `schedulers`; returns `None` if that was interrupted.
pub(crate) fn perform<C: CellCounter>(
    task: &CellTask,
    testbed: &Testbed,
    schedulers: &[String],
    counter: &mut C,
    ended: &AtomicBool,
) -> Result<Option<WorkloadFigures>> {
    let (system, dir) = (&task.system, &task.options.dir);
    testbed.schedule(&task.scheduler, schedulers)?;
    testbed.make(system)?;
    let seed = task.options.seed;
    if !ageing::age(task.aged, seed, testbed, system, dir, ended)? {
        return Ok(None);
    }
    let mounted = testbed.mount(system, dir, Cache::Cold)?;
    let plan = plan(&task.script.script()?, task.options.clone())?;
    let start = ColdStart {
        task,
        testbed,
        mounted: Mutex::new(Some(mounted)),
        limit: Mutex::default(),
        counter: Mutex::new(counter),
        ended,
    };
    let outcome = execute(&plan, &SystemClock, &start);
    // The limit was for the workload; what follows is the laboratory's own work.
    drop(locked(&start.limit).take());
    let outcome = outcome?.context("the script of this workload runs nothing")?;
    locked(&start.counter).ran(testbed)?;
    let mounted = locked(&start.mounted).take();
    mounted.context("nothing is mounted")?.end()?;
    locked(&start.counter).drained(testbed)?;
    if start.interrupted() {
        return Ok(None);
    }
    Ok(Some(WorkloadFigures::of(&outcome)))
}

/// Returns how many processes wanted to run in the last minute.
pub fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|load| load.parse().ok())
        .unwrap_or(0.0)
}
