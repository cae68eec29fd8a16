//! Running programs: those that make and mount file systems, the program teal, and this one.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use teal_command::program;

/// Runs a program and returns what it printed on standard output.
///
/// # Errors
/// It cannot be started, or it fails; then with what it said on standard error.
pub fn run_program(program: &Path, args: &[&str]) -> Result<String> {
    let said = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output();
    let said = said.with_context(|| program.display().to_string())?;
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
/// As [`run`].
pub fn run_self(args: &[&str]) -> Result<String> {
    run_program(&program::current_program()?, args)
}

/// Runs the program teal of this version.
///
/// # Errors
/// There is none of this version, or as [`run`].
pub fn run_teal(args: &[&str]) -> Result<String> {
    run_program(&program::teal_program()?, args)
}

/// Returns where a program of the system is, in `PATH` or where only root has it in `PATH`.
pub fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(more)
        .map(|dir| dir.join(program))
        .find(|path| path.is_file())
}
