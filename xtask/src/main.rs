//! Chores of the workspace: `cargo xtask tidy | test | crash | sim | fuzz | bench`.

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

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask tidy [--figures [--write]]                check what the compiler cannot: layers, sizes, names, words; print figures, record better ones
cargo xtask test [--long] [FILTER]                    install what the tests need, build, run every test; --long takes hours
cargo xtask crash [--long] [--seed N] [--images N]    explore crash images of the log store
cargo xtask sim [--seed N] [--seeds N]                whole clients and a server in one process, under seeds
cargo xtask fuzz [TARGET [FILE]] [--minutes N] [--keep]  fuzz decoders and images, all targets by default; repeat one input
cargo xtask bench mount [--help]                      time a mount beside ext4, a bare mirror and juicefs (root)
cargo xtask bench space [--help]                      what the device writes for what the user writes, by fill and load
cargo xtask bench recovery [--help]                   time opening after a crash, by the size of the store and the number of files
cargo xtask days [--only KIND]                        record the working days' sessions anew, at a real mount (root)
cargo xtask score [--short] [--tuning] [MACHINE…]     what policies spend on working days, beside the bound
cargo xtask bench andrew [--help]                     build OpenSSH on ext4 and on a replica whose server is near and far (root)
cargo xtask bench portable [--help]                   recorded activity with and without a drive, over slow lines (root)
cargo xtask bench attach [--help]                     what attaching a drive costs by its objects and by the commits it has missed (root)
cargo xtask bench clients [--help]                    a thousand clients on one server, and how much it commits
cargo xtask bench emulator [--help]                   time a modelled disk beside a plain loop device (root)
cargo xtask bench phases [--help]                     joules of file systems, here and in a guest, by the phases of scherlfs (root)";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["tidy", rest @ ..] => tidy::run(rest),
        ["test", rest @ ..] if let Some(plan) = test::Plan::of(rest) => test::run(&plan),
        ["crash", rest @ ..] => crash::run(rest),
        ["sim", rest @ ..] => sim::run(rest),
        ["fuzz", rest @ ..] => fuzz::run(rest),
        ["bench", "mount", rest @ ..] => bench::run(rest),
        ["bench", "space", rest @ ..] => space::run(rest),
        ["bench", "recovery", rest @ ..] => recovery::run(rest),
        ["score", rest @ ..] => score::run(rest),
        ["days", rest @ ..] => days::record(rest),
        ["bench", "andrew", rest @ ..] => bench::andrew::bench(rest),
        ["bench", "portable", rest @ ..] => bench::portable::bench(rest),
        ["bench", "attach", rest @ ..] => bench::attach::bench(rest),
        ["bench", "clients", rest @ ..] => clients::run(rest),
        ["bench", "emulator", rest @ ..] => bench::emulator::bench(rest),
        ["bench", "phases", rest @ ..] => bench::phases::bench(rest),
        ["--help" | "-h" | "help"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
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
