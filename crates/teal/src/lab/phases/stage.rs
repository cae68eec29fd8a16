//! A file system on which phases are carried out, here or in a guest.

use super::super::matrix::ground::{Ground, Mounted};
use super::far::Task;
use anyhow::{Context, Result};
use rustix::fs::Advice;
use rustix::time::ClockId;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use teal_env::{Clock as _, SystemClock, Timer as _};
use teal_study::matrix::{Cache, Kind, System};
use teal_study::phases::{Ground as Phases, Group, Phase, PhaseError, carry_out};

/// Between two looks at the kernel's clock, whose ticks are milliseconds.
const LOOK: Duration = Duration::from_micros(300);

/// Who counts.
pub(super) trait Count {
    /// From here on.
    fn begin(&mut self, ground: &Ground, phase: &Phase) -> Result<()>;
    /// After the last operation.
    fn ran(&mut self, ground: &Ground, phase: &Phase) -> Result<()>;
    /// After all was written.
    fn drained(&mut self, ground: &Ground, phase: &Phase, operations: u64) -> Result<()>;
}

/// Whose page cache it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Machine {
    /// Others', too: only what belongs to the file is dropped.
    Shared,
    /// A guest's own: all of it is dropped.
    Own,
}

/// A file system with who counts.
pub(super) struct Stage<'a, C> {
    /// Before its ground, so that it goes first.
    mounted: Option<Mounted>,
    ground: Ground,
    system: System,
    dir: PathBuf,
    machine: Machine,
    pub(super) count: C,
    ended: &'a AtomicBool,
}

impl<'a, C: Count> Stage<'a, C> {
    /// A fresh file system on this ground.
    pub(super) fn new(
        of: &Task,
        ground: Ground,
        dir: &Path,
        machine: Machine,
        count: C,
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
        ground.make(&system)?;
        Ok(Self {
            ground,
            system,
            dir: dir.to_owned(),
            machine,
            mounted: None,
            count,
            ended,
        })
    }

    /// Carries out a cell's phases.
    pub(super) fn perform(&mut self, of: &Task) -> Result<()> {
        let phases = super::group(&of.group)?.phases(of.scale);
        Ok(carry_out(&phases, of.mode, self)?)
    }
}

fn ground<T>(done: Result<T>) -> Result<T, PhaseError> {
    done.map_err(|e| PhaseError::Ground(format!("{e:#}")))
}

impl<C: Count> Phases for Stage<'_, C> {
    fn mount(&mut self) -> Result<PathBuf, PhaseError> {
        self.mounted = Some(ground(self.ground.mount(
            &self.system,
            &self.dir,
            Cache::Cold,
        ))?);
        Ok(self.dir.clone())
    }

    fn unmount(&mut self) -> Result<(), PhaseError> {
        if let Some(mounted) = self.mounted.take() {
            ground(mounted.end())?;
        }
        // What the drive has in its cache is not on the surface yet.
        let path = self.ground.path();
        let device = OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|device| device.sync_all());
        ground(device.with_context(|| path.display().to_string()))
    }

    fn begin(&mut self, phase: &Phase) -> Result<(), PhaseError> {
        ground(self.count.begin(&self.ground, phase))
    }

    fn ran(&mut self, phase: &Phase) -> Result<(), PhaseError> {
        ground(self.count.ran(&self.ground, phase))
    }

    fn drained(&mut self, phase: &Phase, operations: u64) -> Result<(), PhaseError> {
        ground(self.count.drained(&self.ground, phase, operations))
    }

    fn forget(&self, file: &File) -> Result<(), PhaseError> {
        let done = match self.machine {
            Machine::Shared => rustix::fs::fadvise(file, 0, None, Advice::DontNeed)
                .context("dropping what is cached of a file"),
            Machine::Own => {
                std::fs::write("/proc/sys/vm/drop_caches", "1").context("dropping the page cache")
            }
        };
        ground(done)
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
