//! `teal check` and `teal dump`: looking at a store that is not mounted.

use anyhow::{Result, bail};
use std::path::Path;
use std::process::ExitCode;

/// Verifies a store.
pub(crate) fn check(_: &Path, _: bool) -> Result<ExitCode> {
    bail!("not yet")
}

/// Shows the inside of a store.
pub(crate) fn dump(_: &Path, _: &str) -> Result<ExitCode> {
    bail!("not yet")
}
