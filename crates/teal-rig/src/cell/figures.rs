//! Holds the figures of a workload, wherever it ran: the part of a [`CellRun`] that does not come
//! from the device.

use serde::{Deserialize, Serialize};
use teal_study::matrix::{CellRun, DeviceUse, EnergySource};
use teal_study::statistics::steady_from;
use teal_study::workload::RunOutcome;

/// Holds the figures of the workload, in the form of [`CellRun`].
#[derive(Debug, Serialize, Deserialize)]
pub struct WorkloadFigures {
    operations: u64,
    bytes: u64,
    seconds: f64,
    latency_ms: [f64; 4],
    steady_from: Option<usize>,
    rate: f64,
    ended: String,
}

impl WorkloadFigures {
    pub(crate) fn from_outcome(outcome: &RunOutcome) -> Self {
        let all = outcome.summary().all;
        let rates: Vec<f64> = outcome
            .seconds
            .iter()
            .map(|second| second.operations as f64)
            .collect();
        let steady = steady_from(&rates);
        // The warm-up is not counted; a run that never became steady has only its mean rate.
        debug_assert!(
            steady.is_none_or(|from| from < rates.len()),
            "the warm-up ends within the run"
        );
        let counted = &rates[steady.unwrap_or(0)..];
        let rate = match steady {
            Some(_) => counted.iter().sum::<f64>() / (counted.len() as f64).max(1.0),
            None => all.count as f64 * 1e9 / (outcome.nanos as f64).max(1.0),
        };
        let latencies = [
            all.mean(),
            all.percentile(0.5) as f64,
            all.percentile(0.95) as f64,
            all.percentile(0.99) as f64,
        ];
        Self {
            operations: all.count,
            bytes: all.bytes,
            seconds: outcome.nanos as f64 / 1e9,
            latency_ms: latencies.map(|nanos| nanos / 1e6),
            steady_from: steady,
            rate,
            ended: outcome.ended.clone(),
        }
    }

    /// Returns it as a run without the device's part.
    pub fn into_run(
        self,
        [workload, system, scheduler]: [String; 3],
        block: u32,
        load_before: f64,
    ) -> CellRun {
        let Self {
            operations,
            bytes,
            seconds,
            latency_ms,
            steady_from,
            rate,
            ended,
        } = self;
        CellRun {
            version: CellRun::VERSION,
            workload,
            system,
            scheduler,
            block,
            operations,
            bytes,
            seconds,
            latency_ms,
            steady_from,
            rate,
            meter: EnergySource::None,
            run: DeviceUse::default(),
            drain: DeviceUse::default(),
            load_before,
            power: Vec::new(),
            guest: None,
            ended: Some(ended),
        }
    }
}
