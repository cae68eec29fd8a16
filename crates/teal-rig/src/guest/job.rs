//! What a guest is asked to do and answers, and what its processes agree on.

use crate::cell::CellTask;
use crate::command;
use crate::disk::RequestSums;
use crate::phases::PhasesTask;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use teal_study::matrix::FileSystemSetup;

/// Where Debian has the modules of its user-mode Linux.
pub(super) const MODULES: &str = "/usr/lib/uml/modules";
/// The host's address and its guest's.
pub(super) const ADDRESSES: [&str; 2] = ["10.78.0.1", "10.78.0.2"];
/// Where the host serves the disk, and where it is told of what happens.
pub(super) const PORTS: [u16; 2] = [10809, 10810];
/// Memory of a guest, beside what a task wants for itself.
pub(super) const MEMORY: u64 = 512 << 20;

/// Where file systems are mounted in a guest.
pub const MOUNT_DIR: &str = "/run/mount";

/// What a guest does.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestTask {
    /// A cell of `teal lab phases`.
    Phases(PhasesTask),
    /// A run of a matrix's cell.
    Run(Box<CellTask>),
    /// Make this file system and mount it once.
    Try(FileSystemSetup),
    /// Nothing but to tell what it has.
    Look,
}

/// A task with what it needs.
#[derive(Debug, Serialize, Deserialize)]
pub struct GuestJob {
    /// The modelled disk: a shipped profile's name, or a file.
    pub profile: String,
    /// Its bytes.
    pub size: u64,
    /// Bytes of memory beside what every guest has.
    pub memory: u64,
    /// Seconds that it may be busy without its disk.
    pub busy: u64,
    /// What is done.
    pub task: GuestTask,
}

/// What the disk was asked in a part of a task: until its last operation, and until nothing was
/// left to be written.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CountedPart {
    pub(crate) ran: RequestSums,
    pub(crate) all: RequestSums,
}

/// What a guest came to.
#[derive(Debug, Serialize, Deserialize)]
pub struct GuestOutcome {
    /// The guest's kernel.
    pub kernel: String,
    /// By part, in their order.
    pub(crate) counted: Vec<CountedPart>,
    /// What the task itself says.
    pub answer: serde_json::Value,
}

/// What every guest can tell of itself.
#[derive(Debug, Serialize, Deserialize)]
pub struct GuestFeatures {
    /// Schedulers of its disk.
    pub schedulers: Vec<String>,
}

/// The program, where it is, or the Debian package that has it.
pub(super) fn require_program(name: &str, package: &str) -> Result<PathBuf> {
    let path = command::find_program(name);
    path.with_context(|| format!("{name} is not installed; on Debian: apt-get install {package}"))
}
