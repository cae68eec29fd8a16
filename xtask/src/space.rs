//! `cargo xtask bench space`: what the device writes for what the user writes; runs the example `space` of `teal-posix` in the release
//! profile, which explains its arguments.

use anyhow::{Context as _, Result};

pub(crate) fn run(args: &[&str]) -> Result<bool> {
    let status = crate::cargo()
        .current_dir(crate::root())
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
        .args(args)
        .status()
        .context("cargo run")?;
    Ok(status.success())
}
