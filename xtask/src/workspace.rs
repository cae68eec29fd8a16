//! The workspace as all chores see it: its root, its target directory, and cargo.

use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns a command for the `cargo` that runs this program.
pub(crate) fn cargo_command() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
}

/// Returns the root of the workspace.
pub(crate) fn workspace_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the workspace")
}

/// Returns the directory of everything that cargo builds.
pub(crate) fn target_directory() -> Result<PathBuf> {
    let out = cargo_command()
        .current_dir(workspace_root())
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .stderr(Stdio::inherit())
        .output()
        .context("cargo metadata")?;
    let metadata: serde_json::Value =
        serde_json::from_slice(&out.stdout).context("cargo metadata")?;
    Ok(metadata["target_directory"]
        .as_str()
        .context("metadata without target_directory")?
        .into())
}
