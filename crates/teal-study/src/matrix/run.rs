//! Describes a run of a cell, as one line of JSON.

use serde::{Deserialize, Serialize};

/// Holds the work of the device in a part of a run, and its cost.
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
    /// Returns the sum of both.
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

    /// Returns the work since an earlier look at the same device.
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

/// Names the source of joules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EnergySource {
    /// The model of this profile, from the requests that reached the device.
    Model(String),
    /// A meter of this name measured them.
    Measured(String),
    /// There is no meter, and so no joules.
    None,
}

/// Describes a run, which is one line of JSON in the file of results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellRun {
    /// Version of the form.
    pub version: u32,
    /// Name of the workload.
    pub workload: String,
    /// Name of the file system.
    pub system: String,
    /// Name of the scheduler.
    pub scheduler: String,
    /// Number of the block.
    pub block: u32,
    /// Operations that count.
    pub operations: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Length of the run in seconds, on the clock.
    pub seconds: f64,
    /// Latencies in milliseconds: mean, median, 95 %, 99 %.
    pub latency_ms: [f64; 4],
    /// Seconds after which it was steady; `None` if it was not.
    pub steady_from: Option<usize>,
    /// Operations a second from there on, or of the whole run.
    pub rate: f64,
    /// Source of the joules.
    pub meter: EnergySource,
    /// Work of the device from the first operation to the last.
    pub run: DeviceUse,
    /// Work of the device from then on until nothing was left to be written.
    pub drain: DeviceUse,
    /// Processes that wanted to run beside this, by the load of the minute before it: interference.
    pub load_before: f64,
    /// Seconds from the first operation, and watts, of run and drain. Readings of a meter are
    /// thinned; of a modelled disk they are means of at most 64 parts of its virtual time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub power: Vec<[f64; 2]>,
    /// Kernel of the guest it was in; the clock of a guest does not compare with that of others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<String>,
    /// Reason of its end; older runs did not keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

/// Describes a cell that failed in a block, which is one line of JSON in the file of failures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellFailure {
    /// Names of workload, system and scheduler.
    pub names: [String; 3],
    /// Number of the block.
    pub block: u32,
    /// Reason of the failure.
    pub why: String,
}

impl CellRun {
    /// Version of the form.
    pub const VERSION: u32 = 1;

    /// Returns whether it ended before the number of operations that was asked for. One in a
    /// thousand may be missing, because it was on its way at the end.
    pub fn is_short_of(&self, operations: Option<u64>) -> bool {
        operations
            .is_some_and(|asked| self.operations.saturating_mul(1000) < asked.saturating_mul(999))
    }

    /// Returns a text on a run that did fewer operations than were asked for.
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

    /// Returns the work of the device in run and drain together.
    pub fn total_use(&self) -> DeviceUse {
        self.run.combined_with(&self.drain)
    }

    /// Returns operations for each second that the device worked, run and drain: the rate if
    /// nothing else took time. It does not depend on this machine's processors.
    pub fn rate_of_device(&self) -> Option<f64> {
        let busy = self.total_use().busy;
        (busy > 0.0).then(|| self.operations as f64 / busy)
    }

    /// Returns the operations a second by which cells are told apart: in a modelled disk's own
    /// time, or on the clock for a real device.
    pub fn rate_to_compare(&self) -> Option<f64> {
        match self.meter {
            EnergySource::Model(_) => self.rate_of_device(),
            _ => (self.seconds > 0.0).then(|| self.operations as f64 / self.seconds),
        }
    }

    /// Returns operations for each joule, run and drain.
    pub fn per_joule(&self) -> Option<f64> {
        let joules = self.total_use().joules;
        (joules > 0.0).then(|| self.operations as f64 / joules)
    }

    /// Returns whether the device was hardly needed, so that the figures are those of memory.
    pub fn is_of_memory(&self) -> bool {
        let DeviceUse { read, written, .. } = self.total_use();
        (read + written) * 100 < self.bytes
    }
}
