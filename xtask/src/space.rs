//! `cargo xtask bench space`: what the device writes for what the user writes; runs the example
//! `space` of `teal-posix` in the release profile, which explains its arguments.

use anyhow::{Context as _, Result};
use std::ffi::OsString;

/// Counts what the device writes for what the user writes, by fill and load.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct SpaceArguments {
    /// Passed on to the example; --help explains them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

pub(crate) fn run(plan: &SpaceArguments) -> Result<bool> {
    let status = crate::workspace::cargo_command()
        .current_dir(crate::workspace::workspace_root())
        .args([
            "run",
            "--quiet",
            "--release",
            "-p",
            "teal-posix",
            "--example",
            "space",
            "--",
        ])
        .args(&plan.arguments)
        .status()
        .context("cargo run")?;
    Ok(status.success())
}
