//! Reports the state of a modelled disk: JSON in its file `stat`, lines for people.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use teal_command::say::say;
use teal_command::size::human_size;
use teal_emulator::{DiskSnapshot, DriveAccount, EnergySeries, RestState};
use teal_energy::ledger::{EnergyUse, WorkPhase};
use teal_energy::power::PowerModel;
use teal_types::{Energy, SECTOR, Time, TimeSpan};

/// Holds the report of a disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DiskReport {
    pub(crate) name: String,
    pub(crate) pid: i32,
    pub(crate) device: PathBuf,
    /// Profile that models the joules; they are not measured.
    pub(crate) modelled_by: String,
    /// Figures that no source supports.
    pub(crate) assumed: Vec<String>,
    pub(crate) bytes: u64,
    pub(crate) write_cache_bytes: u64,
    pub(crate) real_time: bool,
    pub(crate) state: String,
    pub(crate) unwritten_bytes: u64,
    pub(crate) cycles: u64,
    pub(crate) log: Option<PathBuf>,
    pub(crate) log_records: u64,
    pub(crate) log_error: Option<String>,
    pub(crate) total: RequestSums,
    pub(crate) mark: Option<String>,
    /// Sums since the mark, or since the start if no mark has been set.
    pub(crate) since_mark: RequestSums,
}

/// Sums up requests and joules of a time.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RequestSums {
    pub(crate) elapsed_ns: u64,
    pub(crate) reads: u64,
    pub(crate) bytes_read: u64,
    pub(crate) writes: u64,
    pub(crate) bytes_written: u64,
    pub(crate) flushes: u64,
    pub(crate) discards: u64,
    pub(crate) seeks: u64,
    pub(crate) wakes: u64,
    pub(crate) microjoules: u64,
    /// Energy by its use; the parts sum up to `microjoules`.
    pub(crate) uses: Vec<TimeUse>,
    /// Energy over time since the mark, where that is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) power: Option<PowerBins>,
}

/// Holds joules by bins of the disk's time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PowerBins {
    /// Width of a bin; the last bin ends with the time that has passed.
    pub(crate) bin_ns: u64,
    /// Joules of each bin; they sum up to those of all uses.
    pub(crate) microjoules: Vec<u64>,
}

/// Holds the cost of one use.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TimeUse {
    pub(crate) name: String,
    pub(crate) count: u64,
    pub(crate) ns: u64,
    pub(crate) microjoules: u64,
}

impl RequestSums {
    pub(crate) fn between_accounts(
        earlier: &DriveAccount,
        later: &DriveAccount,
        model: &PowerModel,
    ) -> Self {
        let (requests, uses) = later.since(earlier);
        // A seek is work of the arm, so it is counted among the uses of energy.
        let seeks = uses
            .iter()
            .find(|(used, ..)| *used == EnergyUse::Work(WorkPhase::Seek))
            .map_or(0, |(_, count, ..)| *count);
        let usage = |(used, count, time, energy): (EnergyUse, u64, TimeSpan, Energy)| TimeUse {
            name: used.describe_use(|state| model.state_name(state)),
            count,
            ns: time.get(),
            microjoules: energy.get(),
        };
        // Uses without time are of states that the disk was never in.
        let uses: Vec<_> = uses
            .into_iter()
            .filter(|(_, _, time, _)| *time > TimeSpan::ZERO)
            .map(usage)
            .collect();
        Self {
            elapsed_ns: uses.iter().map(|u| u.ns).sum(),
            reads: requests.reads,
            bytes_read: requests.sectors_read * SECTOR,
            writes: requests.writes,
            bytes_written: requests.sectors_written * SECTOR,
            flushes: requests.flushes,
            discards: requests.discards,
            seeks,
            wakes: requests.wakes,
            microjoules: uses.iter().map(|u| u.microjoules).sum(),
            uses,
            power: None,
        }
    }

    /// Adds the same joules over time.
    pub(crate) fn with_power(mut self, series: &EnergySeries) -> Self {
        // The bins are scaled so that they sum up to the same joules.
        let bins = series.bins(Energy::from_microjoules(self.microjoules));
        let microjoules = bins.into_iter().map(Energy::get).collect();
        self.power = Some(PowerBins {
            bin_ns: series.width().get(),
            microjoules,
        });
        self
    }

    /// Returns seconds to the middle of each bin, and the mean watts in it.
    pub(crate) fn watts_over_time(&self) -> Vec<[f64; 2]> {
        let Some(PowerBins {
            bin_ns,
            microjoules,
        }) = &self.power
        else {
            return Vec::new();
        };
        // The last bin ends with the elapsed time, not with its width.
        let edge = |bin: usize| (bin as u64 * bin_ns).min(self.elapsed_ns) as f64 / 1e9;
        let bins = microjoules
            .iter()
            .enumerate()
            .map(|(at, joules)| (edge(at), edge(at + 1), *joules as f64 / 1e6));
        let of_time = bins.filter(|(from, until, _)| until > from);
        of_time
            .map(|(from, until, joules)| [f64::midpoint(from, until), joules / (until - from)])
            .collect()
    }

    pub(crate) fn print_sums(&self, profile: &str) {
        say!(
            "  requests  {} reads ({}), {} writes ({}), {} flushes, {} discards",
            self.reads,
            human_size(self.bytes_read),
            self.writes,
            human_size(self.bytes_written),
            self.flushes,
            self.discards
        );
        say!("  seeks     {}; woken {} times", self.seeks, self.wakes);
        let (energy, time) = (
            Energy::from_microjoules(self.microjoules),
            TimeSpan::from_nanos(self.elapsed_ns),
        );
        say!("  energy    {energy} in {time}, modelled by {profile}");
        // A single bin says no more than the mean.
        let watts = self.watts_over_time();
        if let (Some(PowerBins { bin_ns, .. }), true) = (&self.power, watts.len() > 1) {
            let (low, high) = watts
                .iter()
                .fold((f64::INFINITY, 0.0_f64), |(low, high), [_, w]| {
                    (low.min(*w), high.max(*w))
                });
            say!(
                "  power     {low:.3} to {high:.3} W, means of {}",
                TimeSpan::from_nanos(*bin_ns)
            );
        }
        for used in &self.uses {
            let (energy, time) = (
                Energy::from_microjoules(used.microjoules).to_string(),
                TimeSpan::from_nanos(used.ns).to_string(),
            );
            say!(
                "    {:<18} {:>8} x {time:>11} {energy:>12}",
                used.name,
                used.count
            );
        }
    }
}

impl DiskReport {
    /// Fills in the part that changes.
    pub(crate) fn fill_in(&mut self, now: &DiskSnapshot, model: &PowerModel) {
        self.state = match now.power {
            RestState::Ready => "ready",
            RestState::Asleep => "asleep",
        }
        .to_owned();
        self.unwritten_bytes = now.unwritten;
        self.cycles = now.cycles;
        self.log_records = now.records;
        self.log_error.clone_from(&now.log_error);
        self.total = RequestSums::between_accounts(&DriveAccount::default(), &now.account, model);
        self.mark = now
            .mark
            .as_ref()
            .map(|(label, _): &(String, Time)| label.clone());
        self.since_mark = RequestSums::between_accounts(&now.at_mark, &now.account, model)
            .with_power(&now.series);
    }

    /// Reads the report of the disk that is mounted there.
    ///
    /// # Errors
    /// Returns an error if its process is gone, or there never was one.
    pub fn read(dir: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(dir.join("stat")).with_context(|| dir.display().to_string())?;
        serde_json::from_str(&text).context("the disk's answer cannot be understood")
    }

    /// Returns its name, profile, device and state as one line.
    pub fn summary_line(&self) -> String {
        let cache = if self.write_cache_bytes > 0 {
            "on"
        } else {
            "off"
        };
        let time = if self.real_time { "real" } else { "virtual" };
        format!(
            "{}: {} on {}, {}, cache {cache}, {time} time, {}",
            self.name,
            self.modelled_by,
            self.device.display(),
            human_size(self.bytes),
            self.state
        )
    }

    /// Prints all of it for people.
    pub fn print_report(&self) {
        say!("{}", self.summary_line());
        if !self.assumed.is_empty() {
            say!("  assumed   {}", self.assumed.join(", "));
        }
        if let Some(error) = &self.log_error {
            say!("  LOG       incomplete: {error}");
        }
        match &self.mark {
            Some(mark) => say!("since the mark \"{mark}\":"),
            None => say!("since the start:"),
        }
        self.since_mark.print_sums(&self.modelled_by);
    }
}
