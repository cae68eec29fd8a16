//! Provides a file system on which phases are carried out, here or in a guest.

use super::PhasesTask;
use crate::testbed::{Testbed, TestbedMount};
use anyhow::{Context, Result};
use rustix::fs::Advice;
use rustix::time::ClockId;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use teal_env::{Clock as _, SystemClock, Timer as _};
use teal_study::matrix::{CacheState, FileSystemKind, FileSystemSetup};
use teal_study::phases::{PhaseEnvironment, PhaseError, PhaseGroup, WorkloadPhase, carry_out};

/// Time between two looks at the kernel's clock, which ticks in milliseconds.
const LOOK: Duration = Duration::from_micros(300);

/// Counts requests and joules of phases.
pub(crate) trait PhaseCounter {
    /// Starts counting.
    fn begin_phase(&mut self, testbed: &Testbed, phase: &WorkloadPhase) -> Result<()>;
    /// Notes that the last operation is done.
    fn end_operations(&mut self, testbed: &Testbed, phase: &WorkloadPhase) -> Result<()>;
    /// Notes that all data is written.
    fn end_drain(
        &mut self,
        testbed: &Testbed,
        phase: &WorkloadPhase,
        operations: u64,
    ) -> Result<()>;
}

/// Says how much of the page cache may be dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CacheScope {
    /// Others use it too: only the pages of the file are dropped.
    Shared,
    /// A guest has it alone: all of it is dropped.
    Own,
}

/// Holds a file system and the counter of its requests.
pub(crate) struct PhaseStage<'a, C> {
    /// Stands before its testbed, so that it is dropped first.
    mounted: Option<TestbedMount>,
    testbed: Testbed,
    system: FileSystemSetup,
    dir: PathBuf,
    machine: CacheScope,
    pub(crate) counter: C,
    ended: &'a AtomicBool,
}

impl<'a, C: PhaseCounter> PhaseStage<'a, C> {
    /// Makes a fresh file system on this testbed.
    pub(crate) fn new(
        of: &PhasesTask,
        testbed: Testbed,
        dir: &Path,
        machine: CacheScope,
        counter: C,
        ended: &'a AtomicBool,
    ) -> Result<Self> {
        let is_ext = matches!(
            of.kind,
            FileSystemKind::Ext2 | FileSystemKind::Ext3 | FileSystemKind::Ext4
        );
        // Files of 8 KiB need this many inodes.
        let mkfs = if is_ext && of.group == PhaseGroup::Fragmented.name() {
            vec!["-i".into(), "8192".into()]
        } else {
            vec![]
        };
        // Everything else is as mkfs and mount do it without options.
        let system = FileSystemSetup {
            name: of.kind.name().to_owned(),
            kind: of.kind,
            mkfs,
            mount: String::new(),
            place: None,
        };
        testbed.make_filesystem(&system)?;
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
    pub(crate) fn carry_out_task(&mut self, of: &PhasesTask) -> Result<()> {
        let phases = super::group_named(&of.group)?.phases_at_scale(of.scale);
        Ok(carry_out(&phases, of.mode, self)?)
    }
}

fn environment_error<T>(done: Result<T>) -> Result<T, PhaseError> {
    done.map_err(|e| PhaseError::Environment(format!("{e:#}")))
}

impl<C: PhaseCounter> PhaseEnvironment for PhaseStage<'_, C> {
    fn mount(&mut self) -> Result<PathBuf, PhaseError> {
        self.mounted = Some(environment_error(self.testbed.mount(
            &self.system,
            &self.dir,
            CacheState::Cold,
        ))?);
        Ok(self.dir.clone())
    }

    fn unmount(&mut self) -> Result<(), PhaseError> {
        if let Some(mounted) = self.mounted.take() {
            environment_error(mounted.finish())?;
        }
        // The drive's cache still holds data that is not on the surface.
        // The sync of the device has the drive flush its cache.
        let path = self.testbed.path();
        let device = OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|device| device.sync_all());
        environment_error(device.with_context(|| path.display().to_string()))
    }

    fn begin_phase(&mut self, phase: &WorkloadPhase) -> Result<(), PhaseError> {
        environment_error(self.counter.begin_phase(&self.testbed, phase))
    }

    fn end_operations(&mut self, phase: &WorkloadPhase) -> Result<(), PhaseError> {
        environment_error(self.counter.end_operations(&self.testbed, phase))
    }

    fn end_drain(&mut self, phase: &WorkloadPhase, operations: u64) -> Result<(), PhaseError> {
        environment_error(self.counter.end_drain(&self.testbed, phase, operations))
    }

    fn drop_cached(&self, file: &File) -> Result<(), PhaseError> {
        // On a shared machine other programs keep what they have cached.
        let done = match self.machine {
            CacheScope::Shared => rustix::fs::fadvise(file, 0, None, Advice::DontNeed)
                .context("dropping what is cached of a file"),
            CacheScope::Own => {
                std::fs::write("/proc/sys/vm/drop_caches", "1").context("dropping the page cache")
            }
        };
        environment_error(done)
    }

    fn next_tick(&self) {
        let coarse = || {
            let now = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
            (now.tv_sec, now.tv_nsec)
        };
        let first = coarse();
        // The coarse clock is the one that dates files.
        while coarse() == first {
            SystemClock.wait_until(SystemClock.monotonic_time() + LOOK);
        }
    }

    fn is_over(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}
