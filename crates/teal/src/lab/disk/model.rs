//! What is modelled: the options that every modelled disk has, and the disk they ask for.

use super::backing::Backing;
use crate::cli::parse_size;
use crate::lab::profile::profile;
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use teal_emulator::log::{LogWriter, Sink};
use teal_emulator::{EmulatedDisk, Pace, Setup};
use teal_types::Span;

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

#[derive(Debug, Args)]
pub(crate) struct Model {
    /// What is modelled: a shipped profile's name, or a file
    #[arg(long)]
    pub(in crate::lab) profile: String,
    /// Its size, such as 500M; at most what the profile holds
    #[arg(long, value_parser = parse_size)]
    pub(in crate::lab) size: u64,
    /// The drive's write cache: with it, writes are answered before they are on the surface
    #[arg(long, value_enum, default_value = "on")]
    pub(in crate::lab) cache: Switch,
    /// Spin down after so many seconds without work [default: never]
    #[arg(long, value_name = "SECONDS")]
    pub(in crate::lab) spin_down: Option<u64>,
    /// Log every request to this file
    #[arg(long)]
    pub(in crate::lab) log: Option<PathBuf>,
    /// Keep the bytes in this file; otherwise they go with the disk
    #[arg(long)]
    pub(in crate::lab) image: Option<PathBuf>,
}

impl Model {
    /// The disk that is asked for, validated.
    pub(in crate::lab) fn setup(&self) -> Result<Setup> {
        let setup = Setup::new(profile(&self.profile)?, self.size)?;
        let setup = if matches!(self.cache, Switch::Off) {
            setup.without_cache()
        } else {
            setup
        };
        Ok(setup.with_spin_down(self.spin_down.map(Span::secs)))
    }

    /// That disk, with its bytes and its log.
    pub(in crate::lab) fn emulate(
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
