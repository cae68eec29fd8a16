//! Defines the tasks and answers of a guest, and the constants that its processes share.

use crate::cell::CellTask;
use crate::command;
use crate::disk::RequestSums;
use crate::phases::PhasesTask;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use teal_study::matrix::FileSystemSetup;

/// Directory of the modules of Debian's user-mode Linux.
pub(super) const MODULES: &str = "/usr/lib/uml/modules";
/// Addresses of the host and of its guest.
pub(super) const ADDRESSES: [&str; 2] = ["10.78.0.1", "10.78.0.2"];
/// Ports of the host for the disk and for the guest's words.
pub(super) const PORTS: [u16; 2] = [10809, 10810];
/// Memory of a guest, beside that of its task.
pub(super) const MEMORY: u64 = 512 << 20;

/// Mount point of file systems in a guest.
pub const MOUNT_DIR: &str = "/run/mount";

/// Names the task of a guest.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestTask {
    /// Measure a cell of `teal lab phases`.
    Phases(PhasesTask),
    /// Run a matrix's cell.
    Run(Box<CellTask>),
    /// Make this file system and mount it once.
    Try(FileSystemSetup),
    /// Tell its features.
    Look,
}

/// Describes a job: a task with its needs.
#[derive(Debug, Serialize, Deserialize)]
pub struct GuestJob {
    /// Modelled disk: a shipped profile's name, or a file.
    pub profile: String,
    /// Size of the disk in bytes.
    pub size: u64,
    /// Bytes of memory beside those of every guest.
    pub memory: u64,
    /// Seconds that the guest may be busy without its disk.
    pub busy: u64,
    /// Task of the guest.
    pub task: GuestTask,
}

/// Holds the disk's sums in a part of a task: until its last operation, and until nothing was left
/// to be written.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CountedPart {
    pub(crate) ran: RequestSums,
    pub(crate) all: RequestSums,
}

/// Holds the outcome of a guest.
#[derive(Debug, Serialize, Deserialize)]
pub struct GuestOutcome {
    /// Kernel of the guest.
    pub kernel: String,
    /// Sums of each part, in their order.
    pub(crate) counted: Vec<CountedPart>,
    /// Answer of the task itself.
    pub answer: serde_json::Value,
}

/// Describes the features of every guest.
#[derive(Debug, Serialize, Deserialize)]
pub struct GuestFeatures {
    /// Schedulers of its disk.
    pub schedulers: Vec<String>,
}

/// Returns the path of the program, or an error that names the Debian package of it.
pub(super) fn require_program(name: &str, package: &str) -> Result<PathBuf> {
    let path = command::find_program(name);
    path.with_context(|| format!("{name} is not installed; on Debian: apt-get install {package}"))
}
