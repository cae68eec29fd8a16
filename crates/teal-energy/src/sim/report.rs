//! What a simulation found.
//!
//! # Guarantees
//! 1. [`Report::total`] is the sum of the devices' ledgers and of [`Report::waited`].

use crate::ledger::Ledger;
use crate::policy::Trigger;
use std::collections::BTreeMap;
use teal_types::{Energy, Span};

/// One device's part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceReport {
    /// Name of its profile, which its joules are modelled by.
    pub name: String,
    /// Its energy, by use.
    pub ledger: Ledger,
    /// Names of its states, by their numbers.
    pub states: Vec<String>,
    /// Reads it served.
    pub reads: u64,
    /// How often it was taken from a state that does not serve to one that does.
    pub starts: u64,
    /// Rated cycles used up.
    pub cycles: u64,
    /// Stops that the budget refused.
    pub refused: u64,
    /// Bursts, by their reason.
    pub flushes: BTreeMap<Trigger, u64>,
    /// The longest by which a burst began after the age of its oldest change: the device was asleep or busy.
    pub late: Span,
}

/// What a simulation found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The policy's name.
    pub policy: &'static str,
    /// From the beginning to the end of all work.
    pub elapsed: Span,
    /// In which somebody waited, for each device.
    pub waiting: Span,
    /// What the machine drew meanwhile.
    pub waited: Energy,
    /// Everything in its lowest state all the time.
    pub floor: Energy,
    /// Each read, from asking to answer, in the order of the answers.
    pub delays: Vec<Span>,
    /// Of these, reads of data that only one device held.
    pub sole: Span,
    /// The devices.
    pub devices: Vec<DeviceReport>,
}

impl Report {
    /// All energy.
    pub fn total(&self) -> Energy {
        self.devices.iter().map(|device| device.ledger.total()).sum::<Energy>() + self.waited
    }

    /// All reads together.
    pub fn delay(&self) -> Span {
        self.delays.iter().copied().sum()
    }

    /// The delay that so many reads of a thousand do not exceed.
    pub fn delay_at(&self, thousandths: usize) -> Span {
        let mut sorted = self.delays.clone();
        sorted.sort_unstable();
        let at = (sorted.len() * thousandths).div_ceil(1000).saturating_sub(1);
        sorted.get(at).copied().unwrap_or(Span::ZERO)
    }

    /// Starts of all devices.
    pub fn starts(&self) -> u64 {
        self.devices.iter().map(|device| device.starts).sum()
    }
}
