//! `teal lab`: measuring and modelling.

mod disk;

use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// Disks that are modelled: block devices on which every file system runs, with a log and joules
    Disk {
        #[command(subcommand)]
        what: disk::Disk,
    },
}

/// Runs the command.
pub(crate) fn lab(what: Lab) -> Result<ExitCode> {
    match what {
        Lab::Disk { what } => disk::disk(what),
    }
}
