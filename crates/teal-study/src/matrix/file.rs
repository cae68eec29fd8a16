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

mod fields;

use super::system::{FileSystemSetup, KernelPlace};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Version of the form.
const VERSION: u32 = 1;
/// Least memory of a run: with less, it would measure the kernel's search for memory, or be killed
/// for the want of it.
const MEMORY_LEAST: u64 = 24 << 20;
/// Limits how full a file system is aged, in percent: the workload's files need the rest.
const AGED_MAX: u64 = 80;
/// Limits the blocks of one matrix.
const BLOCKS_MAX: u32 = 1000;

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

impl RunRules {
    /// Checks that each figure is in the range in which it makes sense.
    fn check_ranges(&self) -> Result<(), MatrixError> {
        let wrong = |at: &str, why: String| Err(MatrixError::Value { at: at.into(), why });
        let RunRules {
            least,
            most,
            within,
            scale,
            seconds,
            ..
        } = *self;
        // Each figure has a range in which it makes sense; the message names it.
        if least < 1 || most < least || most > BLOCKS_MAX {
            return wrong(
                "runs",
                format!("at least {least} and at most {most} blocks; 1 to {BLOCKS_MAX} make sense"),
            );
        }
        if !(within > 0.0 && within < 1.0) {
            return wrong(
                "runs.within",
                format!("{within} is no part of a mean; say 0.05"),
            );
        }
        if !(scale > 0.0 && scale <= 1000.0) {
            return wrong("runs.scale", format!("{scale} is no factor; say 0.02"));
        }
        if !(1..=86_400).contains(&seconds) {
            return wrong(
                "runs.seconds",
                format!("{seconds} is no length of a run; 1 to 86400 are"),
            );
        }
        if let Some(memory) = self.memory.filter(|memory| *memory < MEMORY_LEAST) {
            let why = format!(
                "{memory} bytes do not hold a file system's own tables and the pages that are on \
                 their way; say \"24M\" or more"
            );
            return wrong("runs.memory", why);
        }
        if let Some(aged) = self.aged.filter(|aged| !(1..=AGED_MAX).contains(aged)) {
            let why = format!(
                "{aged} percent are none that a file system is aged to; say 1 to {AGED_MAX}, or \
                 leave it out"
            );
            return wrong("runs.aged", why);
        }
        Ok(())
    }
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

impl MatrixWorkload {
    /// Checks that every setting sets a variable, and none twice.
    fn check_set(&self) -> Result<(), MatrixError> {
        let wrong = |why: String| {
            Err(MatrixError::Value {
                at: "workload.set".into(),
                why,
            })
        };
        let mut known = BTreeSet::new();
        for set in &self.set {
            let Some((name, _)) = set.split_once('=') else {
                return wrong(format!("'{set}' sets nothing; say \"files=1000\""));
            };
            if !known.insert(name.trim_start_matches('$')) {
                return wrong(format!("{} is set twice in {}", name, self.name));
            }
        }
        Ok(())
    }
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

    /// Checks that a system can run in its place, and that its options name no device.
    fn check_system(&self, system: &FileSystemSetup) -> Result<(), MatrixError> {
        let FileSystemSetup {
            name, kind, place, ..
        } = system;
        // An option may name a device, which would be written to.
        if let Err(why) = system.check_options() {
            return Err(MatrixError::Value {
                at: "system".into(),
                why: format!("{name}: {why}"),
            });
        }
        // Guests have no real devices, and our program needs this machine's kernel.
        let why = match place {
            Some(KernelPlace::Guest) if self.device.path.is_some() => {
                "a guest has modelled disks only; say device.profile and size, or leave it out"
            }
            Some(KernelPlace::Guest) if kind.is_ours() => {
                "teal runs on this machine's kernel; leave it out"
            }
            _ => return Ok(()),
        };
        Err(MatrixError::Value {
            at: "system.where".into(),
            why: format!("{name}: {why}"),
        })
    }

    /// Checks that there is exactly one device, with all that its kind needs.
    fn check_device(&self) -> Result<(), MatrixError> {
        let wrong = |at: &str, why: String| Err(MatrixError::Value { at: at.into(), why });
        // Exactly one of a modelled disk, which has a size, and a real device, which has its own.
        match (&self.device.profile, &self.device.path, self.device.size) {
            (_, Some(path), _) if path.is_empty() => {
                return wrong(
                    "device.path",
                    "it is empty; say a block device, such as \"/dev/sdX\"".into(),
                );
            }
            (Some(_), None, Some(_)) | (None, Some(_), None) => {}
            (Some(_), None, None) => {
                return wrong(
                    "device",
                    "a modelled disk needs a size, such as \"4G\"".into(),
                );
            }
            _ => return wrong("device", "say either profile and size, or path".into()),
        }
        Ok(())
    }

    /// Checks that the meter can be one of this device.
    fn check_meter(&self) -> Result<(), MatrixError> {
        let wrong = |at: &str, why: String| Err(MatrixError::Value { at: at.into(), why });
        let Some(meter) = &self.meter else {
            return Ok(());
        };
        // The order of the arms matters: the first reason that applies is the one to tell.
        let why = match meter.kind {
            _ if self.device.profile.is_some() => {
                "a modelled disk has joules of its own, and a meter would tell those of this \
                 machine; leave [meter] out"
            }
            MeterKind::Hwmon if meter.path.is_none() => {
                "hwmon needs path, such as /sys/class/hwmon/hwmon0/power1_input"
            }
            MeterKind::Command if meter.command.is_empty() => {
                "say the program that prints watts: command = [\"watts\"]"
            }
            _ if !(10..=10_000).contains(&meter.every_ms) => "every_ms is 10 to 10000",
            _ if meter.idle_seconds > 3600 => "idle_seconds is an hour at most",
            _ => "",
        };
        if why.is_empty() {
            Ok(())
        } else {
            wrong("meter", why.into())
        }
    }

    fn check_settings(&self) -> Result<(), MatrixError> {
        let wrong = |at: &str, why: String| Err(MatrixError::Value { at: at.into(), why });
        if self.version != VERSION {
            return wrong(
                "version",
                format!(
                    "{} is not known here; this program knows {VERSION}",
                    self.version
                ),
            );
        }
        self.check_device()?;
        self.check_meter()?;
        self.runs.check_ranges()?;
        // Workloads are checked one by one, so that the message can name the first wrong one.
        for workload in &self.workloads {
            workload.check_set()?;
            if workload.operations == Some(0) {
                return wrong(
                    "workload.operations",
                    "0 is no length of a run; leave it out to run for runs.seconds".into(),
                );
            }
        }
        self.systems
            .iter()
            .try_for_each(|system| self.check_system(system))?;
        check_names("workload", self.workloads.iter().map(|w| &w.name))?;
        check_names("system", self.systems.iter().map(|s| &s.name))?;
        check_names("schedulers", self.schedulers.names.iter())
    }
}

/// Checks that there is a name at least, and that no two are the same.
fn check_names<'a>(at: &str, names: impl Iterator<Item = &'a String>) -> Result<(), MatrixError> {
    let wrong = |why: String| Err(MatrixError::Value { at: at.into(), why });
    let mut known = BTreeSet::new();
    // Names stand in tables and in file names, so some characters are refused.
    for name in names {
        if name.is_empty()
            || name.len() > 60
            || name.contains(['|', '/'])
            || name.contains(char::is_control)
        {
            return wrong(format!(
                "{name:?} is no name: 1 to 60 bytes without '|', '/' and line breaks"
            ));
        }
        if !known.insert(name) {
            return wrong(format!("two are called '{name}'"));
        }
    }
    if known.is_empty() {
        wrong("there is none".into())
    } else {
        Ok(())
    }
}
