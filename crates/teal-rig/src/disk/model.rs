//! What is modelled: what one can ask of a modelled disk, and the disk that is asked for.

use super::backing::Backing;
use anyhow::{Context, Result};
use std::path::PathBuf;
use teal_command::profile::profile;
use teal_emulator::log::{LogWriter, Sink};
use teal_emulator::{EmulatedDisk, Pace, Setup};
use teal_types::Span;

/// Whether the drive has a write cache: with it, writes are answered before they are on the
/// surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteCache {
    /// It has.
    On,
    /// It has none.
    Off,
}

/// What is modelled.
#[derive(Debug)]
pub struct DiskModel {
    /// A shipped profile's name, or a file.
    pub profile: String,
    /// Bytes; at most what the profile holds.
    pub size: u64,
    /// The drive's write cache.
    pub cache: WriteCache,
    /// Seconds without work after which the disk spins down; `None`: never.
    pub spin_down: Option<u64>,
    /// Where every request is logged.
    pub log: Option<PathBuf>,
    /// Where the bytes are kept; otherwise they go with the disk.
    pub image: Option<PathBuf>,
}

impl DiskModel {
    /// Returns the disk that is asked for, validated.
    pub(crate) fn setup(&self) -> Result<Setup> {
        let setup = Setup::new(profile(&self.profile)?, self.size)?;
        let setup = if matches!(self.cache, WriteCache::Off) {
            setup.without_cache()
        } else {
            setup
        };
        Ok(setup.with_spin_down(self.spin_down.map(Span::secs)))
    }

    /// Returns that disk, with its bytes and its log.
    pub(crate) fn emulate(
        &self,
        setup: &Setup,
        name: &str,
        pace: Pace,
    ) -> Result<EmulatedDisk<Backing>> {
        let backing = Backing::open(self.image.as_deref(), name, self.size)?;
        let sink: Box<dyn Sink> = match &self.log {
            None => Box::new(()),
            Some(path) => {
                let file = std::fs::OpenOptions::new()
                    .create(true)
                    .write(true)
                    .truncate(true)
                    .open(path);
                let header = EmulatedDisk::<Backing>::header(setup, &pace);
                let writer = file.and_then(|file| LogWriter::new(file, &header));
                Box::new(writer.with_context(|| path.display().to_string())?)
            }
        };
        Ok(EmulatedDisk::new(backing, setup, pace, sink)?)
    }
}
