//! The environment of `cargo xtask bench portable`: the program that is measured, and a directory.

use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};

pub(super) fn path_text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}

/// The program that is measured, and the directory of the run.
pub(super) struct PortableBench {
    pub(super) program: PathBuf,
    pub(super) dir: PathBuf,
}
