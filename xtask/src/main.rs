//! Chores of the workspace: `cargo xtask tidy | test | crash | sim | fuzz | bench`.

mod arguments;
mod bench;
mod clients;
mod crash;
mod days;
mod fuzz;
mod recovery;
mod score;
mod sim;
mod space;
mod test;
mod tidy;
mod workspace;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Chores of the workspace.
#[derive(Debug, Parser)]
#[command(name = "xtask", bin_name = "cargo xtask")]
struct CommandLine {
    #[command(subcommand)]
    chore: ChoreCommand,
}

#[derive(Debug, Subcommand)]
enum ChoreCommand {
    Tidy(tidy::TidyArguments),
    Test(test::TestArguments),
    Crash(crash::CrashArguments),
    Sim(sim::SimArguments),
    Fuzz(fuzz::FuzzArguments),
    Days(days::DaysArguments),
    Score(score::ScoreArguments),
    #[command(subcommand)]
    Bench(BenchCommand),
}

/// Measures, and prints a table.
#[derive(Debug, Subcommand)]
enum BenchCommand {
    Mount(bench::MountArguments),
    Space(space::SpaceArguments),
    Recovery(recovery::RecoveryArguments),
    Andrew(bench::andrew::AndrewArguments),
    Portable(bench::portable::PortableArguments),
    Attach(bench::attach::AttachArguments),
    Clients(clients::ClientsArguments),
    Emulator(bench::emulator::EmulatorArguments),
    Phases(bench::phases::PhasesArguments),
}

fn main() -> ExitCode {
    let done = match CommandLine::parse().chore {
        ChoreCommand::Tidy(plan) => tidy::run(&plan),
        ChoreCommand::Test(plan) => test::run(&plan),
        ChoreCommand::Crash(plan) => crash::run(&plan),
        ChoreCommand::Sim(plan) => sim::run(&plan),
        ChoreCommand::Fuzz(plan) => fuzz::run(&plan),
        ChoreCommand::Days(plan) => days::record_days(&plan),
        ChoreCommand::Score(plan) => score::run(&plan),
        ChoreCommand::Bench(BenchCommand::Mount(plan)) => bench::run(&plan),
        ChoreCommand::Bench(BenchCommand::Space(plan)) => space::run(&plan),
        ChoreCommand::Bench(BenchCommand::Recovery(plan)) => recovery::run(&plan),
        ChoreCommand::Bench(BenchCommand::Andrew(plan)) => bench::andrew::run_bench(&plan),
        ChoreCommand::Bench(BenchCommand::Portable(plan)) => bench::portable::run_bench(&plan),
        ChoreCommand::Bench(BenchCommand::Attach(plan)) => bench::attach::run_bench(&plan),
        ChoreCommand::Bench(BenchCommand::Clients(plan)) => clients::run(&plan),
        ChoreCommand::Bench(BenchCommand::Emulator(plan)) => bench::emulator::run_bench(&plan),
        ChoreCommand::Bench(BenchCommand::Phases(plan)) => bench::phases::run_bench(&plan),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("xtask: {e:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_of_all_arguments_is_sound() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn benches_of_other_programs_are_given_their_arguments_unread() {
        for bench in ["space", "recovery", "phases"] {
            let words = ["xtask", "bench", bench, "--rows", "hot/cold"];
            assert!(CommandLine::try_parse_from(words).is_ok(), "{bench}");
        }
        let help = CommandLine::try_parse_from(["xtask", "bench", "space", "--help"]);
        assert!(help.is_ok(), "the example explains its arguments");
    }
}
