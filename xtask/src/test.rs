//! `cargo xtask test`: the one command that runs every test, here and in CI.
//!
//! # Guarantees
//! 1. The last line of its output is `N passed, N failed, N skipped`, over all test programs and
//!    the examples in the docs.
//! 2. It fails if any test failed, if a test program died without saying, or if no test ran.
//! 3. Packages are named before they are installed; those that cannot be installed are named too,
//!    and the run goes on: the tests that need them fail.
//! 4. The run ends: a program that hangs is described, ended and counted as failed, and the rest
//!    goes on (`attempt`, `runner`).
//! 5. Nothing runs a second time: what failed has failed, however it would do if it were asked
//!    again (`verdict`).
//! 6. A program leaves nothing behind; if it does, that is taken away and reported (`leftovers`),
//!    by the next run if this one is killed (`killed`).
//! 7. Two programs run side by side, each with its own directories, processes and mounts; those
//!    that would disturb others run alone (`programs`). With `--long`, each runs alone.
//! 8. Above the skipped and failed tests it prints the time of each program, the longest first
//!    (`times`).
//!
//! Tests find the outside suites in `$TEAL_TOOLS/bin`. A test that cannot run here appends one line
//! with the reason to the file `$TEAL_SKIPS` and returns; it is counted as skipped, not as passed.
//! With `--long` (`$TEAL_LONG` is set), tests that have a long form run it: hours instead of
//! minutes. `$TMPDIR` and `$CARGO_TARGET_TMPDIR` are a program's own directories, which go with it.

mod attempt;
mod bounded;
mod directories;
mod hung;
mod killed;
mod leftovers;
mod libtest;
pub(crate) mod needs;
mod processes;
mod programs;
mod runner;
mod summary;
mod times;
mod verdict;

use crate::workspace;
use anyhow::{Context as _, Result};
use directories::RunDirectories;
use killed::DirectoryClaim;
use programs::TestProgram;
use runner::{ProgramRunner, RunLimits};
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, RwLock};
use std::time::Duration;

/// The number of programs that run side by side in the short form. Most of a program's time passes
/// in waiting for daemons, disks and time-outs; the tests that compute instead only take longer
/// beside another, and must pass on a busy machine anyway.
const LANES: usize = 2;

/// The limits of time in the short form, and in the long one.
const LIMITS: [RunLimits; 2] = [
    RunLimits {
        program: Duration::from_secs(10 * 60),
        total: Duration::from_secs(60 * 60),
        grace: Duration::from_secs(2),
    },
    RunLimits {
        program: Duration::from_secs(12 * 3600),
        total: Duration::from_secs(96 * 3600),
        grace: Duration::from_secs(2),
    },
];

/// Installs what the tests need, builds and runs every test.
#[derive(Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct TestArguments {
    /// Only tests with this in their names
    filter: Option<String>,
    /// Tests that have a long form run it, in release builds and one after the other: hours
    #[arg(long = "long")]
    is_long: bool,
}

impl TestArguments {
    fn profile(&self) -> Option<&'static str> {
        self.is_long.then_some("--release")
    }
}

pub(crate) fn run(plan: &TestArguments) -> Result<bool> {
    let target = workspace::target_directory()?;
    let tools = target.join("tools");
    needs::install_packages()?;
    needs::install_tools(&tools)?;
    needs::mount_fuse_control();
    let mut programs = programs::build_all(plan)?;
    programs.push(TestProgram::doc_examples(plan));

    let rooms = run_directories(&target)?;
    // The claim is taken before anything is made there, so that a run beside this one does not
    // clean it away.
    let claim = DirectoryClaim::claim_dir(&rooms.large)?;
    for dead in claim.clean_dead_runs(&rooms)? {
        println!("left behind by a run that was killed: {dead}");
    }
    let runner = make_runner(plan, &target, &tools, rooms)?;
    let summary = runner.run_all(&programs);
    println!("\n{}", summary.to_report());
    std::io::stdout().flush()?;
    Ok(summary.is_good())
}

/// Returns the places in which programs get their directories.
fn run_directories(target: &Path) -> Result<RunDirectories> {
    // The place is on a disk even where /tmp is memory.
    let open = Some(PathBuf::from("/var/tmp"))
        .filter(|dir| dir.is_dir())
        .unwrap_or_else(std::env::temp_dir);
    let large = target.join("tmp");
    std::fs::create_dir_all(&large).with_context(|| large.display().to_string())?;
    Ok(RunDirectories { open, large })
}

/// Makes the runner, with everything that is the same for all programs.
fn make_runner(
    plan: &TestArguments,
    target: &Path,
    tools: &Path,
    rooms: RunDirectories,
) -> Result<ProgramRunner> {
    let kept = target.join("test-output");
    // The output of the last run is not mixed with this one's.
    let _ = std::fs::remove_dir_all(&kept);
    std::fs::create_dir_all(&kept).with_context(|| kept.display().to_string())?;
    let stop = Arc::new(AtomicBool::new(false));
    // A signal only raises a flag: the runner ends the programs and cleans up after them.
    for signal in [
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGHUP,
    ] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let mut env: Vec<(&'static str, OsString)> = vec![("TEAL_TOOLS", tools.into())];
    let mut args = Vec::new();
    if plan.is_long {
        env.push(("TEAL_LONG", "1".into()));
        args.push("--test-threads=1".to_owned());
    }
    Ok(ProgramRunner {
        limits: LIMITS[usize::from(plan.is_long)],
        start: bounded::time_since_boot(),
        env,
        filter: plan.filter.clone().into_iter().collect(),
        args,
        directories: rooms,
        kept,
        is_shown: true,
        lanes: if plan.is_long { 1 } else { LANES },
        stop,
        running_lock: RwLock::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::parse;

    #[test]
    fn arguments_say_what_runs() {
        assert_eq!(
            parse::<TestArguments>(&[]).unwrap(),
            TestArguments::default()
        );
        let plan = |is_long| TestArguments {
            filter: Some("fsx".to_owned()),
            is_long,
        };
        assert_eq!(parse::<TestArguments>(&["fsx"]).unwrap(), plan(false));
        assert_eq!(
            parse::<TestArguments>(&["--long", "fsx"]).unwrap(),
            plan(true)
        );
        for refused in [&["--short"][..], &["fsx", "pjdfs"]] {
            assert!(parse::<TestArguments>(refused).is_err(), "{refused:?}");
        }
    }
}
