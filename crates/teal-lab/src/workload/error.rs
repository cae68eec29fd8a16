//! What can go wrong when a plan is carried out.

use std::path::Path;

/// Why a run has no figures.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// Which, by which flowop, on what.
        what: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The filesets would not fit.
    #[error(
        "the filesets need {need} bytes in {files} files, and {dir} has room for {room} bytes and {inodes} files; nothing was written: say --scale {hint}, or take a larger disk"
    )]
    Space {
        /// Bytes of all files, in whole blocks.
        need: u64,
        /// Files and directories.
        files: u64,
        /// Bytes that are free, or will be.
        room: u64,
        /// Files that can still be made.
        inodes: u64,
        /// Where.
        dir: String,
        /// A scale that would fit.
        hint: String,
    },
    /// A thread ended in a run that only time may end.
    #[error("the run stopped early and has no valid results: {0}")]
    Early(String),
    /// Anything else a flowop ran into.
    #[error("{0}")]
    Failed(String),
}

impl RunError {
    pub(super) fn io(what: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        Self::Io { what: what.into(), source: source.into() }
    }

    pub(super) fn at(what: &str, path: &Path, source: impl Into<std::io::Error>) -> Self {
        Self::io(format!("{what} {}", path.display()), source)
    }
}
