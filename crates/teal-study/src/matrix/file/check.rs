//! Checks that a matrix makes sense before anything is done; a message names the place of the first
//! fault, and a value that would do.

use super::{Matrix, MatrixError, MatrixWorkload, MeterKind, RunRules, VERSION};
use crate::matrix::system::{FileSystemSetup, KernelPlace};
use std::collections::BTreeSet;

/// Least memory of a run: with less, it would measure the kernel's search for memory, or be killed
/// for the want of it.
const MEMORY_LEAST: u64 = 24 << 20;
/// Limits how full a file system is aged, in percent: the workload's files need the rest.
const AGED_MAX: u64 = 80;
/// Limits the blocks of one matrix.
const BLOCKS_MAX: u32 = 1000;

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
    /// Checks everything, and returns the first part that makes no sense.
    pub(super) fn check_settings(&self) -> Result<(), MatrixError> {
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
