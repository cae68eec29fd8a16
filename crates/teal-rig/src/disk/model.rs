//! Describes a modelled disk, validates the description, and makes the disk.

use super::backing::DiskBacking;
use anyhow::{Context, Result};
use std::path::PathBuf;
use teal_command::profile::load_profile;
use teal_emulator::log::{LogWriter, RecordSink};
use teal_emulator::{EmulatedDisk, EmulationPace, EmulationSetup};
use teal_types::TimeSpan;

/// Says whether the drive has a write cache: with one, it answers writes before they are on the
/// surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteCache {
    /// The drive has a write cache.
    On,
    /// The drive has none.
    Off,
}

/// Describes a modelled disk.
#[derive(Debug)]
pub struct DiskModel {
    /// Name of a shipped profile, or a file.
    pub profile: String,
    /// Size in bytes; at most that of the profile.
    pub size: u64,
    /// Write cache of the drive.
    pub cache: WriteCache,
    /// Seconds without work after which the disk spins down; `None` means never.
    pub spin_down: Option<u64>,
    /// File in which every request is logged.
    pub log: Option<PathBuf>,
    /// File that keeps the bytes; without it they go with the disk.
    pub image: Option<PathBuf>,
}

impl DiskModel {
    /// Returns the validated disk.
    pub(crate) fn build_setup(&self) -> Result<EmulationSetup> {
        let setup = EmulationSetup::new(load_profile(&self.profile)?, self.size)?;
        let setup = if matches!(self.cache, WriteCache::Off) {
            setup.without_cache()
        } else {
            setup
        };
        Ok(setup.with_spin_down(self.spin_down.map(TimeSpan::from_secs)))
    }

    /// Returns that disk, with its bytes and its log.
    pub(crate) fn emulate(
        &self,
        setup: &EmulationSetup,
        name: &str,
        pace: EmulationPace,
    ) -> Result<EmulatedDisk<DiskBacking>> {
        let backing = DiskBacking::open(self.image.as_deref(), name, self.size)?;
        let sink: Box<dyn RecordSink> = match &self.log {
            None => Box::new(()),
            Some(path) => {
                let file = std::fs::OpenOptions::new()
                    .create(true)
                    .write(true)
                    .truncate(true)
                    .open(path);
                let header = EmulatedDisk::<DiskBacking>::log_header(setup, &pace);
                let writer = file.and_then(|file| LogWriter::new(file, &header));
                Box::new(writer.with_context(|| path.display().to_string())?)
            }
        };
        Ok(EmulatedDisk::new(backing, setup, pace, sink)?)
    }
}
