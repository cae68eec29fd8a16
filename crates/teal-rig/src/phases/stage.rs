//! A file system on which phases are carried out, here or in a guest.

use super::PhasesTask;
use crate::testbed::{Mounted, Testbed};
use anyhow::{Context, Result};
use rustix::fs::Advice;
use rustix::time::ClockId;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use teal_env::{Clock as _, SystemClock, Timer as _};
use teal_study::matrix::{Cache, Kind, System};
use teal_study::phases::{Group, Phase, PhaseEnvironment, PhaseError, carry_out};

/// Between two looks at the kernel's clock, whose ticks are milliseconds.
const LOOK: Duration = Duration::from_micros(300);

/// What counts requests and joules of phases.
pub(crate) trait PhaseCounter {
    /// From here on.
    fn begin(&mut self, testbed: &Testbed, phase: &Phase) -> Result<()>;
    /// After the last operation.
    fn ran(&mut self, testbed: &Testbed, phase: &Phase) -> Result<()>;
    /// After all was written.
    fn drained(&mut self, testbed: &Testbed, phase: &Phase, operations: u64) -> Result<()>;
}

/// Whose page cache it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Machine {
    /// Others', too: only what belongs to the file is dropped.
    Shared,
    /// A guest's own: all of it is dropped.
    Own,
}

/// A file system with what counts its requests.
pub(crate) struct PhaseStage<'a, C> {
    /// Stands before its testbed, so that it is dropped first.
    mounted: Option<Mounted>,
    testbed: Testbed,
    system: System,
    dir: PathBuf,
    machine: Machine,
    pub(crate) counter: C,
    ended: &'a AtomicBool,
}

impl<'a, C: PhaseCounter> PhaseStage<'a, C> {
    /// A fresh file system on this testbed.
    pub(crate) fn new(
        of: &PhasesTask,
        testbed: Testbed,
        dir: &Path,
        machine: Machine,
        counter: C,
        ended: &'a AtomicBool,
    ) -> Result<Self> {
        let is_ext = matches!(of.kind, Kind::Ext2 | Kind::Ext3 | Kind::Ext4);
        // Enough inodes for files of 8 KiB.
        let mkfs = if is_ext && of.group == Group::Fragmented.name() {
            vec!["-i".into(), "8192".into()]
        } else {
            vec![]
        };
        let system = System {
            name: of.kind.name().to_owned(),
            kind: of.kind,
            mkfs,
            mount: String::new(),
            place: None,
        };
        testbed.make(&system)?;
        Ok(Self {
            testbed,
            system,
            dir: dir.to_owned(),
            machine,
            mounted: None,
            counter,
            ended,
        })
    }

    /// Carries out a cell's phases.
    pub(crate) fn perform(&mut self, of: &PhasesTask) -> Result<()> {
        let phases = super::group(&of.group)?.phases(of.scale);
        Ok(carry_out(&phases, of.mode, self)?)
    }
}

fn told<T>(done: Result<T>) -> Result<T, PhaseError> {
    done.map_err(|e| PhaseError::Environment(format!("{e:#}")))
}

impl<C: PhaseCounter> PhaseEnvironment for PhaseStage<'_, C> {
    fn mount(&mut self) -> Result<PathBuf, PhaseError> {
        self.mounted = Some(told(self.testbed.mount(
            &self.system,
            &self.dir,
            Cache::Cold,
        ))?);
        Ok(self.dir.clone())
    }

    fn unmount(&mut self) -> Result<(), PhaseError> {
        if let Some(mounted) = self.mounted.take() {
            told(mounted.end())?;
        }
        // What the drive has in its cache is not on the surface yet.
        let path = self.testbed.path();
        let device = OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|device| device.sync_all());
        told(device.with_context(|| path.display().to_string()))
    }

    fn begin(&mut self, phase: &Phase) -> Result<(), PhaseError> {
        told(self.counter.begin(&self.testbed, phase))
    }

    fn ran(&mut self, phase: &Phase) -> Result<(), PhaseError> {
        told(self.counter.ran(&self.testbed, phase))
    }

    fn drained(&mut self, phase: &Phase, operations: u64) -> Result<(), PhaseError> {
        told(self.counter.drained(&self.testbed, phase, operations))
    }

    fn forget(&self, file: &File) -> Result<(), PhaseError> {
        let done = match self.machine {
            Machine::Shared => rustix::fs::fadvise(file, 0, None, Advice::DontNeed)
                .context("dropping what is cached of a file"),
            Machine::Own => {
                std::fs::write("/proc/sys/vm/drop_caches", "1").context("dropping the page cache")
            }
        };
        told(done)
    }

    fn next_tick(&self) {
        let coarse = || {
            let now = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
            (now.tv_sec, now.tv_nsec)
        };
        let first = coarse();
        while coarse() == first {
            SystemClock.wait_until(SystemClock.monotonic() + LOOK);
        }
    }

    fn is_over(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}
