//! `teal-lab` is the laboratory's command line. It records, replays, measures and compares; `teal
//! lab` starts it.

mod characterise;
mod cli;
mod compare;
mod disk;
mod figures;
mod generate;
mod json_lines;
mod matrix;
mod phases;
mod record;
mod reenact;
mod replay;
mod run;
mod trace;

use anyhow::Result;
use clap::Parser;
use cli::{LabCommand, LabCommandLine};
use std::process::ExitCode;
use teal_command::say;
use teal_rig::guest;

fn main() -> ExitCode {
    teal_command::logging::init_logging();
    match run_command(LabCommandLine::parse().command) {
        Ok(code) => code,
        Err(error) => say::print_error(&error),
    }
}

fn run_command(what: LabCommand) -> Result<ExitCode> {
    match what {
        LabCommand::Record(args) => record::run_record(&args),
        LabCommand::Trace { what } => trace::run_trace(&what),
        LabCommand::Replay(args) => replay::run_replay(&args),
        LabCommand::Generate(args) => generate::run_generate(&args),
        LabCommand::Reenact { name, json } => reenact::run_reenact(&name, json),
        LabCommand::Run(args) => run::run_workload(&args),
        LabCommand::Matrix(args) => matrix::run_matrix(&args),
        LabCommand::Phases(args) => phases::run_phases(&args),
        LabCommand::GuestHost => guest::run_host(),
        LabCommand::Guest => guest::run_inside(),
        LabCommand::Tune(args) => matrix::run_tune(&args),
        LabCommand::Compare(args) => compare::run_compare(&args),
        LabCommand::Workloads { name } => run::list_workloads(name.as_deref()),
        LabCommand::Disk { what } => disk::run_disk(what),
    }
}
