//! What came of a group of phases on a file system: one line of JSON.

use super::plan::SyncMode;
use serde::{Deserialize, Serialize};

/// What a disk was asked and what it spent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DiskTally {
    /// Time at work, modelled.
    pub elapsed_ns: u64,
    /// Read requests.
    pub reads: u64,
    /// Bytes they moved.
    pub bytes_read: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes they moved.
    pub bytes_written: u64,
    /// Flushes.
    pub flushes: u64,
    /// Seeks.
    pub seeks: u64,
    /// All energy, modelled.
    pub microjoules: u64,
    /// By what it was used for; they sum up to `microjoules`.
    pub uses: Vec<EnergyUsage>,
}

/// One use of energy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnergyUsage {
    /// Which: seek, rotate, read, write, commands, read ahead, or a state.
    pub name: String,
    /// How often.
    pub count: u64,
    /// For how long.
    pub ns: u64,
    /// What it cost.
    pub microjoules: u64,
}

impl DiskTally {
    /// In joules.
    pub fn joules(&self) -> f64 {
        self.microjoules as f64 / 1e6
    }

    /// Returns what one use cost, in joules.
    pub fn joules_of(&self, name: &str) -> f64 {
        self.uses
            .iter()
            .filter(|used| used.name == name)
            .map(|used| used.microjoules as f64 / 1e6)
            .sum()
    }
}

/// A phase that was carried out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseResult {
    /// Which.
    pub phase: String,
    /// Operations: files, or pieces.
    pub operations: u64,
    /// Bytes of the user's.
    pub bytes: u64,
    /// From the first operation until the file system was unmounted: the drain is counted.
    pub tally: DiskTally,
    /// Of that, what came after the last operation, in microjoules.
    pub drain_microjoules: u64,
    /// The least that it would cost, in microjoules.
    pub floor_microjoules: u64,
    /// Whether the user's bytes were written, not read.
    pub writes: bool,
}

impl PhaseResult {
    /// Returns how many times the floor.
    pub fn floor_ratio(&self) -> f64 {
        self.tally.microjoules as f64 / (self.floor_microjoules as f64).max(1.0)
    }
}

/// What came of a group on a file system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseCell {
    /// Of this form.
    pub version: u32,
    /// The file system, as it was asked for.
    pub system: String,
    /// Where it ran: this kernel, or a guest's.
    pub kernel: String,
    /// The group of phases.
    pub group: String,
    /// When what was written had to be on the disk.
    pub mode: SyncMode,
    /// Factor on files and accesses.
    pub scale: f64,
    /// What the disk was modelled by.
    pub profile: String,
    /// Its size in bytes.
    pub size: u64,
    /// The phases that count.
    pub phases: Vec<PhaseResult>,
}

impl PhaseCell {
    /// The version of the form.
    pub const VERSION: u32 = 1;
}
