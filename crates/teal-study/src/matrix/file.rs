//! Reads the file of a matrix: TOML, checked before anything is done.
//!
//! # Form
//! ```toml
//! version = 1
//! # Profile and size of a modelled disk (`teal lab disk`), or path = "/dev/sdX" of a real one.
//! [device]
//! profile = "desktop-7200rpm-composed"
//! size = "4G"
//! [runs]
//! # Blocks at least, and at most.
//! least = 2
//! most = 6
//! # Enough blocks are run when each cell's 95 % interval is within this part of its mean.
//! within = 0.05
//! seed = 1
//! # Factor on the workloads' file sets.
//! scale = 0.02
//! seconds = 20
//! # Or "warm", or "sync": mounted so that every write waits for the device.
//! cache = "cold"
//! # For the kernel's caches, beside the memory of the workload's threads; left out: all there is.
//! memory = "64M"
//! # Percent of the files that stay after each file system is filled first; left out: it is fresh.
//! aged = 60
//! [[workload]]
//! name = "web"
//! # A shipped workload, or a path beside this file.
//! script = "web"
//! set = ["files=400"]
//! # A run ends after these operations, or after its seconds.
//! operations = 20000
//! [[system]]
//! name = "ext4 noatime"
//! kind = "ext4"
//! mkfs = ["-b", "4096"]
//! mount = "noatime"
//! # In a user-mode Linux guest, or on the "host"; left out: on the host if its kernel has it.
//! where = "guest"
//! [schedulers]
//! names = ["none", "mq-deadline", "bfq"]
//! # The meter of a real device.
//! [meter]
//! # Or "hwmon" with path, or "command" with command = ["program", "that prints watts"].
//! kind = "rapl"
//! every_ms = 100
//! # Seconds before each run in which nothing is done; their mean watts are taken off.
//! idle_seconds = 0
//! ```

mod check;
mod fields;

use super::system::FileSystemSetup;
use serde::{Deserialize, Serialize};

/// Version of the form.
const VERSION: u32 = 1;
/// Says why a matrix is refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MatrixError {
    /// The text is no TOML, or not of this form; the message has line and column.
    #[error("{0}")]
    Form(String),
    /// A value makes no sense; the first word names its place.
    #[error("{at}: {why}")]
    Value {
        /// Table and key.
        at: String,
        /// Reason, and a value that would do.
        why: String,
    },
}

/// Describes a matrix of measurements.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Matrix {
    version: u32,
    /// Device on which everything is run.
    pub device: MatrixDevice,
    /// Number, length and initial state of runs.
    pub runs: RunRules,
    /// The workloads.
    #[serde(rename = "workload")]
    pub workloads: Vec<MatrixWorkload>,
    /// The file systems with their options.
    #[serde(rename = "system")]
    pub systems: Vec<FileSystemSetup>,
    /// The schedulers of the device.
    pub schedulers: SchedulerList,
    /// Meter of joules. A modelled disk has its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meter: Option<MeterSettings>,
}

/// Describes a meter of joules.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MeterSettings {
    /// Kind of the meter.
    pub kind: MeterKind,
    /// File or directory of the meter.
    pub path: Option<String>,
    /// Program that prints watts, with its arguments.
    #[serde(default)]
    pub command: Vec<String>,
    /// Milliseconds from one reading to the next.
    #[serde(default = "fields::default_every_ms")]
    pub every_ms: u64,
    /// Seconds before each run in which nothing is done. The mean watts of that time are taken off;
    /// 0 means that none are.
    #[serde(default)]
    pub idle_seconds: u64,
}

/// Names the kinds of meters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MeterKind {
    /// The counters of the processors' packages and their memory, or the one zone at `path`.
    Rapl,
    /// A file of the kernel that tells microwatts or counts microjoules.
    Hwmon,
    /// A program that prints watts.
    Command,
}

impl MeterSettings {
    /// Returns the meter's name in reports.
    pub fn name(&self) -> String {
        let name = match self.kind {
            MeterKind::Rapl => "rapl".to_owned(),
            MeterKind::Hwmon => format!("hwmon {}", self.path.as_deref().unwrap_or_default()),
            MeterKind::Command => self.command.join(" "),
        };
        if self.idle_seconds == 0 {
            name
        } else {
            name + ", idle watts taken off"
        }
    }
}

/// Lists schedulers by the kernel's names.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulerList {
    /// The names.
    pub names: Vec<String>,
}

/// Describes the device of the file systems; exactly one of `profile` and `path`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MatrixDevice {
    /// Profile of a modelled disk.
    pub profile: Option<String>,
    /// Path of a block device. Everything on it is lost.
    pub path: Option<String>,
    /// Size of a modelled disk in bytes.
    #[serde(
        default,
        deserialize_with = "fields::parse_size",
        serialize_with = "fields::write_size",
        skip_serializing_if = "Option::is_none"
    )]
    pub size: Option<u64>,
}

/// Sets the number, length and initial state of runs.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RunRules {
    /// Least number of blocks.
    #[serde(default = "fields::default_least")]
    pub least: u32,
    /// Largest number of blocks.
    #[serde(default = "fields::default_most")]
    pub most: u32,
    /// Enough blocks are run when the 95 % interval of every cell is within this part of its mean.
    #[serde(default = "fields::default_within")]
    pub within: f64,
    /// Seed of the order and of the workloads.
    #[serde(default = "fields::default_seed")]
    pub seed: u64,
    /// Factor on the workloads' file sets.
    #[serde(default = "fields::default_scale")]
    pub scale: f64,
    /// Length of a run in seconds.
    #[serde(default = "fields::default_seconds")]
    pub seconds: u64,
    /// Content of the kernel's caches when a run begins.
    #[serde(default)]
    pub cache: CacheState,
    /// Bytes of memory that a run has beside the memory of its threads: above all for the kernel's
    /// caches. `None` means all there is.
    #[serde(
        default,
        deserialize_with = "fields::parse_size",
        serialize_with = "fields::write_size",
        skip_serializing_if = "Option::is_none"
    )]
    pub memory: Option<u64>,
    /// Percent of the files that ageing leaves. Before a run's files are made, its file system is
    /// filled and thinned out ([`ageing`](crate::phases::ageing_phases)). `None` means a fresh file
    /// system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aged: Option<u64>,
}

/// Sets the content of the kernel's caches when a run begins, and whether writes wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheState {
    /// Nothing is cached: the file system is mounted anew.
    #[default]
    Cold,
    /// Everything is cached that making the files left in memory.
    Warm,
    /// Nothing is cached, and the file system is mounted with `sync`: every write waits for the
    /// device.
    Sync,
}

/// Describes a workload of a matrix.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MatrixWorkload {
    /// Name in tables.
    pub name: String,
    /// Name of a shipped workload, or a path beside the matrix.
    pub script: String,
    /// Variables, as `name=value`.
    #[serde(default)]
    pub set: Vec<String>,
    /// A run ends after this number of operations, or when its seconds are over.
    pub operations: Option<u64>,
}

impl Matrix {
    /// Makes a matrix of these parts.
    ///
    /// # Errors
    /// Returns the part that makes no sense, and its place.
    pub fn new(
        device: MatrixDevice,
        runs: RunRules,
        workloads: Vec<MatrixWorkload>,
        systems: Vec<FileSystemSetup>,
        schedulers: SchedulerList,
    ) -> Result<Self, MatrixError> {
        // The parts are checked together, as when they are read from a file.
        let matrix = Self {
            version: VERSION,
            device,
            runs,
            workloads,
            systems,
            schedulers,
            meter: None,
        };
        matrix.check_settings()?;
        Ok(matrix)
    }

    /// Returns the matrix as a file.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every part of a matrix has a form in TOML")
    }

    /// Reads a matrix.
    ///
    /// # Errors
    /// Returns the fault and its place.
    pub fn parse(text: &str) -> Result<Self, MatrixError> {
        let matrix: Self = toml::from_str(text)
            .map_err(|e| MatrixError::Form(e.to_string().trim_end().to_owned()))?;
        matrix.check_settings()?;
        Ok(matrix)
    }
}
