//! `teal lab`: starts the program teal-lab, which need not be installed.

use anyhow::{Context as _, Result, anyhow};
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use teal_command::program;

/// Becomes the program teal-lab with these arguments; returns only where that is not possible.
pub(crate) fn exec_laboratory(args: &[OsString]) -> Result<ExitCode> {
    let lab = program::find_program("teal-lab").context(
        "the laboratory is a program of its own, teal-lab, which is neither beside teal nor in \
         PATH: cargo install --path crates/teal-lab",
    )?;
    // The laboratory prints usage messages with the name under which it was called.
    let failed = Command::new(&lab).arg0("teal lab").args(args).exec();
    Err(anyhow!(failed).context(lab.display().to_string()))
}
