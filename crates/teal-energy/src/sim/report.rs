//! The result of a simulation.
//!
//! # Guarantees
//! 1. [`SimulationReport::total_energy`] is the sum of the devices' ledgers and of
//!    [`SimulationReport::waited`].

use crate::ledger::{EnergyLedger, LedgerEntry};
use crate::policy::FlushTrigger;
use crate::profile::StateId;
use std::collections::BTreeMap;
use teal_types::{Energy, Time, TimeSpan};

/// One device's part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceReport {
    /// Name of its profile, which its joules are modelled by.
    pub name: String,
    /// Its energy, by use.
    pub ledger: EnergyLedger,
    /// Names of its states, by their numbers.
    pub states: Vec<String>,
    /// Reads it served.
    pub reads: u64,
    /// The number of times it was taken from a state that does not serve to one that does.
    pub starts: u64,
    /// When each of them began.
    pub started: Vec<Time>,
    /// Rated cycles used up.
    pub cycles: u64,
    /// Stops that the budget refused.
    pub refused: u64,
    /// Bursts, by their reason.
    pub flushes: BTreeMap<FlushTrigger, u64>,
    /// The longest time by which a burst began after the age of its oldest change, because the
    /// device was asleep or busy.
    pub late: TimeSpan,
}

/// The result of a simulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimulationReport {
    /// The policy's name.
    pub policy: &'static str,
    /// The time from the beginning to the end of all work.
    pub elapsed: TimeSpan,
    /// The time in which a program waited, summed over the devices.
    pub waiting: TimeSpan,
    /// The energy that the machine drew meanwhile.
    pub waited: Energy,
    /// The energy of all devices, had they been in their lowest states all the time.
    pub floor: Energy,
    /// The delay of each read, from request to answer, in the order of the answers.
    pub delays: Vec<TimeSpan>,
    /// The delay of reads of data that only one device held.
    pub sole: TimeSpan,
    /// The time that reads took longer than with every device awake and free, without the cold
    /// ones.
    pub added: TimeSpan,
    /// The delays of cold reads: only one device held the data, and it did not serve when it was
    /// asked.
    pub cold: Vec<TimeSpan>,
    /// The devices.
    pub devices: Vec<DeviceReport>,
}

impl DeviceReport {
    /// Returns its account, with the uses in words.
    pub fn named_uses(&self) -> impl Iterator<Item = (String, LedgerEntry)> {
        let name = |state: StateId| self.states.get(state.index()).map_or("?", String::as_str);
        self.ledger
            .entries()
            .map(move |(used, entry)| (used.describe_use(name), entry))
    }
}

impl SimulationReport {
    /// Returns the energy of all devices and of the machine.
    pub fn total_energy(&self) -> Energy {
        self.devices
            .iter()
            .map(|device| device.ledger.total_energy())
            .sum::<Energy>()
            + self.waited
    }

    /// Returns the delay of all reads together.
    pub fn total_delay(&self) -> TimeSpan {
        self.delays.iter().copied().sum()
    }

    /// Returns the delay that so many reads of a thousand do not exceed.
    pub fn delay_at(&self, thousandths: usize) -> TimeSpan {
        let mut sorted = self.delays.clone();
        sorted.sort_unstable();
        let at = (sorted.len() * thousandths)
            .div_ceil(1000)
            .saturating_sub(1);
        sorted.get(at).copied().unwrap_or(TimeSpan::ZERO)
    }

    /// Returns the number of starts of all devices.
    pub fn total_starts(&self) -> u64 {
        self.devices.iter().map(|device| device.starts).sum()
    }
}
