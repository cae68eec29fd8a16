//! Describes the results of a group of phases on a file system, as one line of JSON.

use super::plan::SyncMode;
use serde::{Deserialize, Serialize};

/// Holds the requests of a disk and their cost.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DiskTally {
    /// Time at work, modelled.
    pub elapsed_ns: u64,
    /// Read requests.
    pub reads: u64,
    /// Bytes that they moved.
    pub bytes_read: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes that they moved.
    pub bytes_written: u64,
    /// Flushes.
    pub flushes: u64,
    /// Seeks.
    pub seeks: u64,
    /// All energy, modelled.
    pub microjoules: u64,
    /// Energy by its use; the parts sum up to `microjoules`.
    pub uses: Vec<EnergyUsage>,
}

/// One use of energy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnergyUsage {
    /// Name of the use: seek, rotate, read, write, commands, read ahead, or a state.
    pub name: String,
    /// Number of times.
    pub count: u64,
    /// Time that it took.
    pub ns: u64,
    /// Energy that it cost.
    pub microjoules: u64,
}

impl DiskTally {
    /// Returns the energy in joules.
    pub fn joules(&self) -> f64 {
        self.microjoules as f64 / 1e6
    }

    /// Returns the joules of one use.
    pub fn joules_of(&self, name: &str) -> f64 {
        self.uses
            .iter()
            .filter(|used| used.name == name)
            .map(|used| used.microjoules as f64 / 1e6)
            .sum()
    }
}

/// Holds the result of a phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseResult {
    /// Name of the phase.
    pub phase: String,
    /// Number of operations: files, or pieces.
    pub operations: u64,
    /// Bytes of the user.
    pub bytes: u64,
    /// Cost from the first operation until the file system was unmounted: the drain is counted.
    pub tally: DiskTally,
    /// Energy after the last operation, in microjoules; it is part of the tally.
    pub drain_microjoules: u64,
    /// Least energy that it would cost, in microjoules.
    pub floor_microjoules: u64,
    /// Is true when the user's bytes were written, not read.
    pub writes: bool,
}

impl PhaseResult {
    /// Returns the energy as a multiple of the floor.
    pub fn floor_ratio(&self) -> f64 {
        self.tally.microjoules as f64 / (self.floor_microjoules as f64).max(1.0)
    }
}

/// Holds the results of a group on a file system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseCell {
    /// Version of the form.
    pub version: u32,
    /// File system, as it was asked for.
    pub system: String,
    /// Kernel on which it ran: this machine's, or a guest's.
    pub kernel: String,
    /// Name of the group of phases.
    pub group: String,
    /// Says when written data has to be on the disk.
    pub mode: SyncMode,
    /// Factor on files and accesses.
    pub scale: f64,
    /// Profile of the modelled disk.
    pub profile: String,
    /// Size of the disk in bytes.
    pub size: u64,
    /// Results of the phases that count.
    pub phases: Vec<PhaseResult>,
}

impl PhaseCell {
    /// Version of the form.
    pub const VERSION: u32 = 1;
}
