//! A run of a cell: what was seen, as one line of JSON.

use serde::{Deserialize, Serialize};

/// What the device was asked and what that took, in a part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct DeviceUse {
    /// Joules.
    pub joules: f64,
    /// Time the device was at work, in seconds: modelled where the device is.
    pub busy: f64,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Flushes.
    pub flushes: u64,
    /// Seeks.
    pub seeks: u64,
}

impl DeviceUse {
    /// Both together.
    pub fn combined_with(&self, more: &Self) -> Self {
        Self {
            joules: self.joules + more.joules,
            busy: self.busy + more.busy,
            read: self.read + more.read,
            written: self.written + more.written,
            flushes: self.flushes + more.flushes,
            seeks: self.seeks + more.seeks,
        }
    }

    /// Returns what came since an earlier look at the same device.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            joules: self.joules - earlier.joules,
            busy: self.busy - earlier.busy,
            read: self.read.saturating_sub(earlier.read),
            written: self.written.saturating_sub(earlier.written),
            flushes: self.flushes.saturating_sub(earlier.flushes),
            seeks: self.seeks.saturating_sub(earlier.seeks),
        }
    }
}

/// Where joules come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EnergySource {
    /// The model of this profile, from the requests that reached the device.
    Model(String),
    /// A meter of this name.
    Measured(String),
    /// None: there are no joules.
    None,
}

/// A run. One line of JSON in the file of results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellRun {
    /// Of this form.
    pub version: u32,
    /// Names of the parts.
    pub workload: String,
    /// See `workload`.
    pub system: String,
    /// See `workload`.
    pub scheduler: String,
    /// In which block.
    pub block: u32,
    /// Operations that counted.
    pub operations: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// The run's length in seconds, on the clock.
    pub seconds: f64,
    /// Latencies in milliseconds: mean, median, 95 %, 99 %.
    pub latency_ms: [f64; 4],
    /// After how many seconds it was steady; `None`: it was not.
    pub steady_from: Option<usize>,
    /// Operations a second from there on, or of all of it.
    pub rate: f64,
    /// Who says the joules.
    pub meter: EnergySource,
    /// Of the device from the first operation to the last.
    pub run: DeviceUse,
    /// Of the device from then on until nothing was left to be written.
    pub drain: DeviceUse,
    /// Processes that wanted to run beside this, by the load of the last minute before it:
    /// interference.
    pub load_before: f64,
    /// Seconds from the first operation, and watts: of a meter, thinned; of a modelled disk the
    /// means of at most 64 parts of its virtual time. Run and drain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub power: Vec<[f64; 2]>,
    /// The kernel of the guest it was in; then its clock does not compare with that of others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<String>,
    /// Why it ended; not known of runs of a time when that was not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

/// A cell that came to nothing in a block. One line of JSON in the file of failures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellFailure {
    /// Workload, system, scheduler.
    pub names: [String; 3],
    /// In which block.
    pub block: u32,
    /// Why.
    pub why: String,
}

impl CellRun {
    /// The version of the form.
    pub const VERSION: u32 = 1;

    /// Returns whether it ended before as many operations as were asked for. One in a thousand may
    /// be missing: those that were on their way.
    pub fn is_short_of(&self, operations: Option<u64>) -> bool {
        operations
            .is_some_and(|asked| self.operations.saturating_mul(1000) < asked.saturating_mul(999))
    }

    /// Returns what to say of a run that was short of what was asked for.
    pub fn describe_shortfall(&self, operations: Option<u64>) -> Option<String> {
        let asked = operations.filter(|_| self.is_short_of(operations))?;
        let why = self
            .ended
            .as_ref()
            .map_or(String::new(), |why| format!(": {why}"));
        Some(format!(
            "ended after {} of {asked} operations{why}",
            self.operations
        ))
    }

    /// Returns what it took in all.
    pub fn total_use(&self) -> DeviceUse {
        self.run.combined_with(&self.drain)
    }

    /// Operations for each second that the device worked, run and drain: what it would do if
    /// nothing else took time. It does not depend on this machine's processors.
    pub fn rate_of_device(&self) -> Option<f64> {
        let busy = self.total_use().busy;
        (busy > 0.0).then(|| self.operations as f64 / busy)
    }

    /// Operations a second by which cells are told apart: those of a modelled disk's own time,
    /// those of the clock on a real device.
    pub fn rate_to_compare(&self) -> Option<f64> {
        match self.meter {
            EnergySource::Model(_) => self.rate_of_device(),
            _ => (self.seconds > 0.0).then(|| self.operations as f64 / self.seconds),
        }
    }

    /// Operations for each joule, run and drain.
    pub fn per_joule(&self) -> Option<f64> {
        let joules = self.total_use().joules;
        (joules > 0.0).then(|| self.operations as f64 / joules)
    }

    /// Returns whether the device was hardly needed: the figures are of memory.
    pub fn is_of_memory(&self) -> bool {
        let DeviceUse { read, written, .. } = self.total_use();
        (read + written) * 100 < self.bytes
    }
}
