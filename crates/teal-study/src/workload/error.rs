//! Names the errors of running a plan.

use std::path::Path;

/// Says why a run has no figures.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A system call failed.
    #[error("{what}: {why}")]
    Io {
        /// System call, flowop and object.
        what: String,
        /// Error of the system call.
        why: std::io::Error,
    },
    /// The filesets would not fit.
    #[error(
        "{at}the filesets need {need} bytes in {files} files and directories, and {dir} has room \
         for {room} bytes and {inodes} of them; nothing was written: say --scale {hint}, or take \
         a larger disk"
    )]
    Space {
        /// Position and name of the largest set, with its consequences.
        at: String,
        /// Bytes of all files, in whole blocks.
        need: u64,
        /// Number of files and directories.
        files: u64,
        /// Bytes that are free, or will be.
        room: u64,
        /// Number of files that can still be made.
        inodes: u64,
        /// Directory of the run.
        dir: String,
        /// Scale that would fit.
        hint: String,
    },
    /// The threads would hold more memory than there is.
    #[error(
        "the threads hold {need} bytes of memory, and this machine has {has}; nothing was \
         written: lower memsize= or iosize= of thread '{thread}', or its instances="
    )]
    Memory {
        /// Bytes that they hold.
        need: u64,
        /// Bytes of the machine.
        has: u64,
        /// Kind of thread that holds most of it.
        thread: String,
    },
    /// The threads would hold more files open than this process may.
    #[error(
        "the threads hold {need} files open at once, and this process may hold {has}; nothing was \
         written: raise the limit (ulimit -n), or lower the instances= of thread '{thread}'"
    )]
    Descriptors {
        /// Descriptors that they hold.
        need: u64,
        /// Descriptors that this process may have.
        has: u64,
        /// Kind of thread that holds most of them.
        thread: String,
    },
    /// A thread ended in a run that only time may end.
    #[error("the run stopped early and has no valid results: {0}")]
    Early(String),
    /// A flowop failed for another reason.
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
