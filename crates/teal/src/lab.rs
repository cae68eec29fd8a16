//! `teal lab`: recording, traces, replays, workloads, modelled disks.

mod characterise;
mod compare;
mod disk;
mod figures;
mod generate;
mod guest;
mod held;
mod lines;
mod matrix;
mod phases;
mod profile;
mod record;
mod reenact;
mod replay;
mod run;
mod script;
mod trace;

use crate::cli::lab::Lab;
use anyhow::Result;
use std::process::ExitCode;

pub(crate) use disk::Disk;
pub(crate) use profile::shipped;

/// Runs the command.
pub(crate) fn lab(what: Lab) -> Result<ExitCode> {
    match what {
        Lab::Record(args) => record::record(&args),
        Lab::Trace { what } => trace::trace(&what),
        Lab::Replay(args) => replay::replay(&args),
        Lab::Generate(args) => generate::generate(&args),
        Lab::Reenact { name, json } => reenact::reenact(&name, json),
        Lab::Run(args) => run::run(&args),
        Lab::Matrix(args) => matrix::matrix(&args),
        Lab::Phases(args) => phases::phases(&args),
        Lab::GuestHost => guest::host(),
        Lab::Guest => guest::inside(),
        Lab::Tune(args) => matrix::tune(&args),
        Lab::Compare(args) => compare::compare(&args),
        Lab::Workloads { name } => run::workloads(name.as_deref()),
        Lab::Disk { what } => disk::disk(what),
    }
}
