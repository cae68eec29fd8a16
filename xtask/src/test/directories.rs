//! The places in which runs get directories of their own, and the names of these.

use std::path::PathBuf;

/// The beginning of the names of run directories in the open place; the number of the program comes
/// next.
pub(super) const PREFIX: &str = "teal-";

/// The places in which each run gets directories of its own. All mounts and files in them belong to
/// the run.
#[derive(Debug, Clone)]
pub(super) struct RunDirectories {
    /// The place for `$TMPDIR`: any user that a test becomes has access.
    pub(super) open: PathBuf,
    /// The place for `$CARGO_TARGET_TMPDIR`, with room for whole stores.
    pub(super) large: PathBuf,
}
