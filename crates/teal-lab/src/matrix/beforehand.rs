//! Looks, before the first run, for everything that would make a matrix fail in the middle.
//!
//! A dry run checks all that can be told without making a file system: the disk's size, and its
//! schedulers (of a modelled disk that is started for it). Before the first run each file system is
//! made and mounted once. All that fail are named together.

use super::bench::MatrixBench;
use anyhow::{Result, bail};
use teal_command::profile::shipped_profile;
use teal_emulator::EmulationSetup;
use teal_rig::guest;
use teal_rig::testbed::Testbed;
use teal_study::matrix::{CellRun, FileSystemSetup, KernelPlace};

impl MatrixBench {
    /// Checks that the disk exists, and has the wanted schedulers.
    pub(super) fn check_disk(&self) -> Result<()> {
        let device = &self.matrix.device;
        // A wrong size shows here, before a disk is started.
        if let Some(profile) = &device.profile {
            EmulationSetup::new(shipped_profile(profile)?, device.size.unwrap_or(0))?;
        }
        // Guests have schedulers of their own.
        if (0..self.matrix.systems.len()).all(|system| self.in_guest(system)) {
            return Ok(());
        }
        self.open_testbed()?
            .check_schedulers(&self.matrix.schedulers.names)
    }

    /// Opens the device for a run.
    pub(super) fn open_testbed(&self) -> Result<Testbed> {
        let device = &self.matrix.device;
        match (&device.profile, &device.path) {
            (Some(profile), _) => Testbed::start_modelled(profile, device.size.unwrap_or(0)),
            (None, path) => {
                Testbed::open_real(std::path::Path::new(path.as_deref().unwrap_or_default()))
            }
        }
    }

    /// Makes and mounts a file system, to see whether it works.
    pub(super) fn try_out(&self, system: &FileSystemSetup) -> Result<()> {
        if guest::kernel_place(system) == KernelPlace::Guest {
            return self.try_in_guest(system);
        }
        let testbed = self.open_testbed()?;
        testbed.make_filesystem(system)?;
        testbed
            .mount(system, &self.results.join("mount"), self.matrix.runs.cache)?
            .finish()
    }

    /// Tries all file systems that have no run yet.
    pub(super) fn try_all(&self, runs: &[CellRun]) -> Result<()> {
        // All failures are collected, so that the user can mend them together.
        let mut wrong = Vec::new();
        for system in &self.matrix.systems {
            if runs.iter().any(|run| run.system == system.name) {
                continue;
            }
            if self.is_interrupted() {
                return Ok(());
            }
            if let Err(error) = self.try_out(system) {
                wrong.push(format!("{}: {error:#}", system.name));
            }
        }
        // What failed may have failed of the interruption.
        if self.is_interrupted() {
            return Ok(());
        }
        match wrong.len() {
            0 => Ok(()),
            some => bail!(
                "{some} of {} systems cannot be had, nothing was run: {}",
                self.matrix.systems.len(),
                wrong.join("; ")
            ),
        }
    }
}
