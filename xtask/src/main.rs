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

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Chores of the workspace.
#[derive(Debug, Parser)]
#[command(name = "xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    Tidy(tidy::Plan),
    Test(test::Plan),
    Crash(crash::Plan),
    Sim(sim::Plan),
    Fuzz(fuzz::Plan),
    Days(days::Plan),
    Score(score::Plan),
    #[command(subcommand)]
    Bench(Bench),
}

/// Measures, and prints a table.
#[derive(Debug, Subcommand)]
enum Bench {
    Mount(bench::Plan),
    Space(space::Plan),
    Recovery(recovery::Plan),
    Andrew(bench::andrew::Plan),
    Portable(bench::portable::Plan),
    Attach(bench::attach::Plan),
    Clients(clients::Plan),
    Emulator(bench::emulator::Plan),
    Phases(bench::phases::Plan),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().chore {
        Chore::Tidy(plan) => tidy::run(&plan),
        Chore::Test(plan) => test::run(&plan),
        Chore::Crash(plan) => crash::run(&plan),
        Chore::Sim(plan) => sim::run(&plan),
        Chore::Fuzz(plan) => fuzz::run(&plan),
        Chore::Days(plan) => days::record(&plan),
        Chore::Score(plan) => score::run(&plan),
        Chore::Bench(Bench::Mount(plan)) => bench::run(&plan),
        Chore::Bench(Bench::Space(plan)) => space::run(&plan),
        Chore::Bench(Bench::Recovery(plan)) => recovery::run(&plan),
        Chore::Bench(Bench::Andrew(plan)) => bench::andrew::bench(&plan),
        Chore::Bench(Bench::Portable(plan)) => bench::portable::bench(&plan),
        Chore::Bench(Bench::Attach(plan)) => bench::attach::bench(&plan),
        Chore::Bench(Bench::Clients(plan)) => clients::run(&plan),
        Chore::Bench(Bench::Emulator(plan)) => bench::emulator::bench(&plan),
        Chore::Bench(Bench::Phases(plan)) => bench::phases::bench(&plan),
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

/// The `cargo` that runs us.
fn cargo() -> std::process::Command {
    std::process::Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
}

/// The root of the workspace.
fn root() -> &'static std::path::Path {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the workspace")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_of_all_arguments_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn benches_of_other_programs_are_given_their_arguments_unread() {
        for bench in ["space", "recovery", "phases"] {
            let words = ["xtask", "bench", bench, "--rows", "hot/cold"];
            assert!(Arguments::try_parse_from(words).is_ok(), "{bench}");
        }
        let help = Arguments::try_parse_from(["xtask", "bench", "space", "--help"]);
        assert!(help.is_ok(), "the example explains its arguments");
    }
}
