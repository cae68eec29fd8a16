//! Runs programs: those that make and mount file systems, the program teal, and this one.
//!
//! # Guarantees
//! 1. A program that runs for this one is in a process group of its own. Ctrl-C at a terminal is
//!    for this program alone, which ends what it has begun.

use crate::path_context::PathContext as _;
use anyhow::{Result, bail};
use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use teal_command::program;

/// Runs a program to its end, in a process group of its own, and returns what it has printed.
///
/// # Errors
/// Returns an error if it cannot be started.
pub fn program_output<S: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    args: &[S],
) -> std::io::Result<Output> {
    Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .process_group(0)
        .output()
}

/// Runs a program and returns its standard output.
///
/// # Errors
/// Returns an error if it cannot be started, or if it fails; the error holds its standard error.
pub fn run_program(program: &Path, args: &[&str]) -> Result<String> {
    let said = program_output(program, args).at_path(program)?;
    // Programs tell their reason on standard error, often over several lines.
    if !said.status.success() {
        let words = String::from_utf8_lossy(&said.stderr);
        let lines: Vec<&str> = words
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect();
        bail!(
            "{} {}: {}",
            program.display(),
            args.join(" "),
            lines.join("; ")
        );
    }
    Ok(String::from_utf8_lossy(&said.stdout).trim().to_owned())
}

/// Runs this program again, in a process of its own.
///
/// # Errors
/// Fails as [`run_program`] does.
pub fn run_self(args: &[&str]) -> Result<String> {
    run_program(&program::current_program()?, args)
}

/// Runs the program teal of this version.
///
/// # Errors
/// Returns an error if there is none of this version, or as [`run_program`].
pub fn run_teal(args: &[&str]) -> Result<String> {
    run_program(&program::teal_program()?, args)
}

/// Returns the path of a system program, in `PATH` or in the directories that only root has there.
pub fn find_program(program: &str) -> Option<PathBuf> {
    // mkfs programs often lie in a directory that only root has in `PATH`.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(more)
        .map(|dir| dir.join(program))
        .find(|path| path.is_file())
}
