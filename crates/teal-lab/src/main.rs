//! `teal-lab`: the laboratory's command line. It records, replays, measures and compares; `teal
//! lab` starts it.

mod characterise;
mod cli;
mod compare;
mod disk;
mod figures;
mod generate;
mod lines;
mod matrix;
mod phases;
mod record;
mod reenact;
mod replay;
mod run;
mod trace;

use anyhow::Result;
use clap::Parser;
use cli::{Cli, Lab};
use std::process::ExitCode;
use teal_command::say;
use teal_rig::guest;

fn main() -> ExitCode {
    teal_command::logging::begin();
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => say::complain(&error),
    }
}

fn run(what: Lab) -> Result<ExitCode> {
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
        Lab::Disk { what } => disk::run(what),
    }
}
