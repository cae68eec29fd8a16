//! Runs programs: those that make and mount file systems, the program teal, and this one.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use teal_command::program;

/// Runs a program and returns its standard output.
///
/// # Errors
/// Returns an error if it cannot be started, or if it fails; the error holds its standard error.
pub fn run_program(program: &Path, args: &[&str]) -> Result<String> {
    let said = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output();
    let said = said.with_context(|| program.display().to_string())?;
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
