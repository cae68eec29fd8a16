//! `cargo xtask bench recovery`: how long opening takes after a crash; runs the example `recovery` of `teal-log` in the release profile,
//! which explains its arguments.

use anyhow::{Context as _, Result};

pub(crate) fn run(args: &[&str]) -> Result<bool> {
    let place = crate::test::target_directory()?.join("bench");
    let status = crate::cargo()
        .current_dir(crate::root())
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
        .args(args)
        .status()
        .context("cargo run")?;
    Ok(status.success())
}
