//! The file of a matrix: TOML, checked before anything is done.
//!
//! # Form
//! ```toml
//! version = 1
//! [device]                       # profile and size, or path
//! profile = "desktop-7200rpm-composed"  # a modelled disk (`teal lab disk`); path = "/dev/sdX" is a real one
//! size = "4G"
//! [runs]
//! least = 2                      # blocks at least, and at most
//! most = 6
//! within = 0.05                  # enough when each cell's 95 % interval is within this part of its mean
//! seed = 1
//! scale = 0.02                   # of the workloads' file sets
//! seconds = 20
//! cache = "cold"                 # or "warm", or "sync": mounted so that every write waits for the device
//! memory = "64M"                 # for the kernel's caches, beside what the workload's threads hold; without it, all there is
//! aged = 60                      # percent: each file system is filled first, and so many of those files stay; without it, it is fresh
//! [[workload]]
//! name = "web"
//! script = "web"                 # a shipped workload or a path beside this file
//! set = ["files=400"]
//! operations = 20000             # a run ends after so many, or after its seconds
//! [[system]]
//! name = "ext4 noatime"
//! kind = "ext4"
//! mkfs = ["-b", "4096"]
//! mount = "noatime"
//! where = "guest"                # in a user-mode Linux guest; "host": on this machine's kernel. Left out: here if its kernel has it
//! [schedulers]
//! names = ["none", "mq-deadline", "bfq"]
//! [meter]                        # of a real device
//! kind = "rapl"                  # or "hwmon" with path, or "command" with command = ["program", "that prints watts"]
//! every_ms = 100
//! idle_seconds = 0               # so long before each run nothing is done; the mean watts of that are taken off
//! ```

use super::system::{FileSystemSetup, KernelPlace};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeSet;

/// The version of the form.
const VERSION: u32 = 1;
/// Memory below which a run would be one of the kernel looking for memory, or be killed for the
/// want of it.
const MEMORY_LEAST: u64 = 24 << 20;
/// How full a file system is aged to at most, in percent: the workload's files need the rest.
const AGED_MAX: u64 = 80;
/// Blocks of one matrix at most.
const BLOCKS_MAX: u32 = 1000;

/// What is wrong with a matrix.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MatrixError {
    /// No TOML, or not of this form; with line and column.
    #[error("{0}")]
    Form(String),
    /// A value that makes no sense; the first word is where.
    #[error("{at}: {why}")]
    Value {
        /// Table and key.
        at: String,
        /// What is wrong, and what would do.
        why: String,
    },
}

/// A matrix.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Matrix {
    version: u32,
    /// Where everything is run.
    pub device: MatrixDevice,
    /// How often, how long, from what state.
    pub runs: RunRules,
    /// The workloads.
    #[serde(rename = "workload")]
    pub workloads: Vec<MatrixWorkload>,
    /// The file systems with their options.
    #[serde(rename = "system")]
    pub systems: Vec<FileSystemSetup>,
    /// The schedulers of the device.
    pub schedulers: SchedulerList,
    /// What measures joules. A modelled disk has its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meter: Option<MeterSettings>,
}

/// What measures joules.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MeterSettings {
    /// Of which kind.
    pub kind: MeterKind,
    /// Its file, or directory.
    pub path: Option<String>,
    /// A program with its arguments.
    #[serde(default)]
    pub command: Vec<String>,
    /// Milliseconds from one reading to the next.
    #[serde(default = "tenth")]
    pub every_ms: u64,
    /// Seconds before each run in which nothing is done; the mean watts of that time are taken off.
    /// 0: none are.
    #[serde(default)]
    pub idle_seconds: u64,
}

/// Kinds of meters.
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
    /// Its name in reports.
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

/// Schedulers by the kernel's names.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulerList {
    /// The names.
    pub names: Vec<String>,
}

/// What the file systems are made on; exactly one of `profile` and `path`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MatrixDevice {
    /// A modelled disk of this profile.
    pub profile: Option<String>,
    /// A block device. What is on it is lost.
    pub path: Option<String>,
    /// Of a modelled disk: its size in bytes.
    #[serde(
        default,
        deserialize_with = "size",
        serialize_with = "bytes",
        skip_serializing_if = "Option::is_none"
    )]
    pub size: Option<u64>,
}

/// How often, how long, from what state.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RunRules {
    /// Blocks at least.
    #[serde(default = "two")]
    pub least: u32,
    /// Blocks at most.
    #[serde(default = "ten")]
    pub most: u32,
    /// Enough when the 95 % interval of every cell is within this part of its mean.
    #[serde(default = "five_percent")]
    pub within: f64,
    /// What is drawn: order and workloads.
    #[serde(default = "one")]
    pub seed: u64,
    /// Factor on the workloads' file sets.
    #[serde(default = "whole")]
    pub scale: f64,
    /// A run's length.
    #[serde(default = "minute")]
    pub seconds: u64,
    /// What the kernel remembers when a run begins.
    #[serde(default)]
    pub cache: CacheState,
    /// Bytes of memory that a run has beside what its threads hold for themselves: for the kernel's
    /// caches, above all. `None`: whatever is there.
    #[serde(
        default,
        deserialize_with = "size",
        serialize_with = "bytes",
        skip_serializing_if = "Option::is_none"
    )]
    pub memory: Option<u64>,
    /// Before a run's files are made, its file system is filled
    /// ([`ageing`](crate::phases::ageing)), and so many percent of the files stay. `None`: it is
    /// fresh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aged: Option<u64>,
}

/// What the kernel remembers when a run begins, and afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheState {
    /// Nothing: the file system is mounted anew.
    #[default]
    Cold,
    /// What making the files left.
    Warm,
    /// Nothing, and the file system is mounted with `sync`: every write waits for the device.
    Sync,
}

/// A workload.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MatrixWorkload {
    /// How it is called in tables.
    pub name: String,
    /// A shipped workload, or a path beside the matrix.
    pub script: String,
    /// Variables, as `name=value`.
    #[serde(default)]
    pub set: Vec<String>,
    /// A run ends after so many operations, or when its seconds are over.
    pub operations: Option<u64>,
}

impl MatrixWorkload {
    /// Checks whether every setting sets something, and none what another sets.
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

fn tenth() -> u64 {
    100
}
fn one() -> u64 {
    1
}
fn two() -> u32 {
    2
}
fn ten() -> u32 {
    10
}
fn five_percent() -> f64 {
    0.05
}
fn whole() -> f64 {
    1.0
}
fn minute() -> u64 {
    60
}

/// Bytes with an optional K, M, G or T.
fn size<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(from)?;
    let (digits, shift) = match text.trim_end_matches(char::is_alphabetic) {
        digits if digits.len() == text.len() => (digits, 0),
        digits => match &text[digits.len()..] {
            "K" => (digits, 10),
            "M" => (digits, 20),
            "G" => (digits, 30),
            "T" => (digits, 40),
            _ => {
                return Err(serde::de::Error::custom(format!(
                    "'{text}' is no size; say \"4G\""
                )));
            }
        },
    };
    let bytes = digits
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(1 << shift));
    bytes
        .map(Some)
        .ok_or_else(|| serde::de::Error::custom(format!("'{text}' is no size; say \"4G\"")))
}

/// As [`size`] reads them.
fn bytes<S: Serializer>(of: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
    of.map(|bytes| bytes.to_string()).serialize(to)
}

impl Matrix {
    /// A matrix of these parts.
    ///
    /// # Errors
    /// What makes no sense in them, and where.
    pub fn new(
        device: MatrixDevice,
        runs: RunRules,
        workloads: Vec<MatrixWorkload>,
        systems: Vec<FileSystemSetup>,
        schedulers: SchedulerList,
    ) -> Result<Self, MatrixError> {
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

    /// The matrix as a file.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every part of a matrix has a form in TOML")
    }

    /// Reads a matrix.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn parse(text: &str) -> Result<Self, MatrixError> {
        let matrix: Self = toml::from_str(text)
            .map_err(|e| MatrixError::Form(e.to_string().trim_end().to_owned()))?;
        matrix.check_settings()?;
        Ok(matrix)
    }

    /// Checks whether a system can be where it is said to be, and its options name no device.
    fn check_system(&self, system: &FileSystemSetup) -> Result<(), MatrixError> {
        let FileSystemSetup {
            name, kind, place, ..
        } = system;
        if let Err(why) = system.check_options() {
            return Err(MatrixError::Value {
                at: "system".into(),
                why: format!("{name}: {why}"),
            });
        }
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
        if let Some(meter) = &self.meter {
            let why = match meter.kind {
                _ if self.device.profile.is_some() => {
                    "a modelled disk has joules of its own, and a meter would tell those of this machine; leave [meter] out"
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
            if !why.is_empty() {
                return wrong("meter", why.into());
            }
        }
        let RunRules {
            least,
            most,
            within,
            scale,
            seconds,
            ..
        } = self.runs;
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
        if let Some(memory) = self.runs.memory.filter(|memory| *memory < MEMORY_LEAST) {
            let why = format!(
                "{memory} bytes do not hold a file system's own tables and the pages that are on their way; say \"24M\" or more"
            );
            return wrong("runs.memory", why);
        }
        if let Some(aged) = self.runs.aged.filter(|aged| !(1..=AGED_MAX).contains(aged)) {
            let why = format!(
                "{aged} percent are none that a file system is aged to; say 1 to {AGED_MAX}, or leave it out"
            );
            return wrong("runs.aged", why);
        }
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

/// There is at least one, and no two have the same name.
fn check_names<'a>(at: &str, names: impl Iterator<Item = &'a String>) -> Result<(), MatrixError> {
    let wrong = |why: String| Err(MatrixError::Value { at: at.into(), why });
    let mut known = BTreeSet::new();
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
