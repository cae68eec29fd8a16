//! What can go wrong when a plan is carried out.

use std::path::Path;

/// Why a run has no figures.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A system call failed.
    #[error("{what}: {why}")]
    Io {
        /// Which, by which flowop, on what.
        what: String,
        /// Why.
        why: std::io::Error,
    },
    /// The filesets would not fit.
    #[error(
        "{at}the filesets need {need} bytes in {files} files and directories, and {dir} has room for {room} bytes and {inodes} of them; nothing was written: say --scale {hint}, or take a larger disk"
    )]
    Space {
        /// Place and name of the largest set, with what follows from that.
        at: String,
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
    /// The threads would hold more memory than there is.
    #[error(
        "the threads hold {need} bytes of memory, and this machine has {has}; nothing was written: lower memsize= or iosize= of thread '{thread}', or its instances="
    )]
    Memory {
        /// Bytes they hold.
        need: u64,
        /// Bytes the machine has.
        has: u64,
        /// The kind of thread that holds most of it.
        thread: String,
    },
    /// A thread ended in a run that only time may end.
    #[error("the run stopped early and has no valid results: {0}")]
    Early(String),
    /// Anything else a flowop ran into.
    #[error("{0}")]
    Failed(String),
}

impl RunError {
    pub(super) fn from_io(what: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        Self::Io {
            what: what.into(),
            why: source.into(),
        }
    }

    pub(super) fn at_path(what: &str, path: &Path, source: impl Into<std::io::Error>) -> Self {
        Self::from_io(format!("{what} {}", path.display()), source)
    }
}
