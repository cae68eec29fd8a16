//! `cargo xtask bench recovery`: how long opening takes after a crash; runs the example `recovery`
//! of `teal-log` in the release profile, which explains its arguments.

use anyhow::{Context as _, Result};
use std::ffi::OsString;

/// Times opening after a crash, by the size of the store and the number of files.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct RecoveryArguments {
    /// Passed on to the example; --help explains them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

pub(crate) fn run(plan: &RecoveryArguments) -> Result<bool> {
    let place = crate::workspace::target_directory()?.join("bench");
    let status = crate::workspace::cargo_command()
        .current_dir(crate::workspace::workspace_root())
        .args([
            "run",
            "--quiet",
            "--release",
            "-p",
            "teal-log",
            "--example",
            "recovery",
            "--",
            "--dir",
        ])
        .arg(place)
        .args(&plan.arguments)
        .status()
        .context("cargo run")?;
    Ok(status.success())
}
