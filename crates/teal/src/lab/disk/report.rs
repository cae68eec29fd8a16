//! What a modelled disk says of itself: JSON in its file `stat`, lines for people.

use crate::say::say;
use crate::status::human;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use teal_emulator::{Account, Power, Series, Snapshot};
use teal_energy::ledger::{Phase, Use};
use teal_energy::power::PowerModel;
use teal_types::{Energy, SECTOR, Span, Time};

/// A disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::lab) struct Report {
    pub(in crate::lab) name: String,
    pub(in crate::lab) pid: i32,
    pub(in crate::lab) device: PathBuf,
    /// The joules are modelled by this profile, not measured.
    pub(in crate::lab) modelled_by: String,
    /// Figures that no source stands behind.
    pub(in crate::lab) assumed: Vec<String>,
    pub(in crate::lab) bytes: u64,
    pub(in crate::lab) write_cache_bytes: u64,
    pub(in crate::lab) real_time: bool,
    pub(in crate::lab) state: String,
    pub(in crate::lab) unwritten_bytes: u64,
    pub(in crate::lab) cycles: u64,
    pub(in crate::lab) log: Option<PathBuf>,
    pub(in crate::lab) log_records: u64,
    pub(in crate::lab) log_error: Option<String>,
    pub(in crate::lab) total: Sums,
    pub(in crate::lab) mark: Option<String>,
    /// All of it, if nobody has set a mark.
    pub(in crate::lab) since_mark: Sums,
}

/// Requests and joules of a time.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(in crate::lab) struct Sums {
    pub(in crate::lab) elapsed_ns: u64,
    pub(in crate::lab) reads: u64,
    pub(in crate::lab) bytes_read: u64,
    pub(in crate::lab) writes: u64,
    pub(in crate::lab) bytes_written: u64,
    pub(in crate::lab) flushes: u64,
    pub(in crate::lab) discards: u64,
    pub(in crate::lab) seeks: u64,
    pub(in crate::lab) wakes: u64,
    pub(in crate::lab) microjoules: u64,
    /// By what it was used for; they sum up to `microjoules`.
    pub(in crate::lab) uses: Vec<Usage>,
    /// Over time, where that is kept: since the mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::lab) power: Option<Bins>,
}

/// Joules by bins of the disk's time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::lab) struct Bins {
    /// How wide a bin is; the last ends with the time that has passed.
    pub(in crate::lab) bin_ns: u64,
    /// They sum up to those of all uses.
    pub(in crate::lab) microjoules: Vec<u64>,
}

/// One use.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::lab) struct Usage {
    pub(in crate::lab) name: String,
    pub(in crate::lab) count: u64,
    pub(in crate::lab) ns: u64,
    pub(in crate::lab) microjoules: u64,
}

impl Sums {
    pub(in crate::lab) fn between(earlier: &Account, later: &Account, model: &PowerModel) -> Self {
        let (requests, uses) = later.since(earlier);
        let seeks = uses
            .iter()
            .find(|(used, ..)| *used == Use::Work(Phase::Seek))
            .map_or(0, |(_, count, ..)| *count);
        let usage = |(used, count, time, energy): (Use, u64, Span, Energy)| Usage {
            name: used.name(|state| model.name(state)),
            count,
            ns: time.get(),
            microjoules: energy.get(),
        };
        let uses: Vec<_> = uses
            .into_iter()
            .filter(|(_, _, time, _)| *time > Span::ZERO)
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

    /// With the same joules over time.
    pub(in crate::lab) fn with_power(mut self, series: &Series) -> Self {
        let bins = series.bins(Energy::microjoules(self.microjoules));
        let microjoules = bins.into_iter().map(Energy::get).collect();
        self.power = Some(Bins {
            bin_ns: series.width().get(),
            microjoules,
        });
        self
    }

    /// Seconds to the middle of each bin, and the mean watts in it.
    pub(in crate::lab) fn watts(&self) -> Vec<[f64; 2]> {
        let Some(Bins {
            bin_ns,
            microjoules,
        }) = &self.power
        else {
            return Vec::new();
        };
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

    pub(in crate::lab) fn show(&self, profile: &str) {
        say!(
            "  requests  {} reads ({}), {} writes ({}), {} flushes, {} discards",
            self.reads,
            human(self.bytes_read),
            self.writes,
            human(self.bytes_written),
            self.flushes,
            self.discards
        );
        say!("  seeks     {}; woken {} times", self.seeks, self.wakes);
        let (energy, time) = (
            Energy::microjoules(self.microjoules),
            Span::nanos(self.elapsed_ns),
        );
        say!("  energy    {energy} in {time}, modelled by {profile}");
        let watts = self.watts();
        if let (Some(Bins { bin_ns, .. }), true) = (&self.power, watts.len() > 1) {
            let (low, high) = watts
                .iter()
                .fold((f64::INFINITY, 0.0_f64), |(low, high), [_, w]| {
                    (low.min(*w), high.max(*w))
                });
            say!(
                "  power     {low:.3} to {high:.3} W, means of {}",
                Span::nanos(*bin_ns)
            );
        }
        for used in &self.uses {
            let (energy, time) = (
                Energy::microjoules(used.microjoules).to_string(),
                Span::nanos(used.ns).to_string(),
            );
            say!(
                "    {:<18} {:>8} x {time:>11} {energy:>12}",
                used.name,
                used.count
            );
        }
    }
}

impl Report {
    /// Fills in what changes.
    pub(in crate::lab) fn fill(&mut self, now: &Snapshot, model: &PowerModel) {
        self.state = match now.power {
            Power::Ready => "ready",
            Power::Asleep => "asleep",
        }
        .to_owned();
        self.unwritten_bytes = now.unwritten;
        self.cycles = now.cycles;
        self.log_records = now.records;
        self.log_error.clone_from(&now.log_error);
        self.total = Sums::between(&Account::default(), &now.account, model);
        self.mark = now
            .mark
            .as_ref()
            .map(|(label, _): &(String, Time)| label.clone());
        self.since_mark = Sums::between(&now.at_mark, &now.account, model).with_power(&now.series);
    }

    /// Asks the disk that is mounted there.
    pub(in crate::lab) fn read(dir: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(dir.join("stat")).with_context(|| dir.display().to_string())?;
        serde_json::from_str(&text).context("the disk's answer cannot be understood")
    }

    /// One line.
    pub(in crate::lab) fn line(&self) -> String {
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
            human(self.bytes),
            self.state
        )
    }

    /// For people.
    pub(in crate::lab) fn show(&self) {
        say!("{}", self.line());
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
        self.since_mark.show(&self.modelled_by);
    }
}
