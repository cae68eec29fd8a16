//! `teal lab`: recording, traces, modelled disks.

mod disk;
mod figures;
mod record;
mod trace;

use crate::cli::lab::Lab;
use anyhow::Result;
use std::process::ExitCode;

pub(crate) use disk::Disk;

/// Runs the command.
pub(crate) fn lab(what: Lab) -> Result<ExitCode> {
    match what {
        Lab::Record(args) => record::record(&args),
        Lab::Trace { what } => trace::trace(&what),
        Lab::Disk { what } => disk::disk(what),
    }
}
