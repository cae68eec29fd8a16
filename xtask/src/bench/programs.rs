//! Programs of benches: building them, and running them to their end.

use anyhow::{Context as _, Result, ensure};
use std::process::{Command, Stdio};

/// Builds programs in the release profile.
pub(super) fn build_release(what: &[&[&str]]) -> Result<()> {
    for what in what {
        let status = crate::workspace::cargo_command()
            .current_dir(crate::workspace::workspace_root())
            .args(["build", "--release", "--quiet"])
            .args(*what)
            .status()?;
        ensure!(status.success(), "the release build failed");
    }
    Ok(())
}

/// Runs a program to its end, and returns its output.
pub(super) fn run_program(command: &mut Command) -> Result<String> {
    let out = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{:?}", command.get_program()))?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(
        out.status.success(),
        "{:?}: {}: {}",
        command,
        out.status,
        said.trim()
    );
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
