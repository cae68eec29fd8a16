//! The account of a device's time and energy, by what they were used for.
//!
//! # Guarantees
//! 1. *Additive*: the total is the sum of the entries, to the microjoule; time too.
//! 2. *Exact*: each entry is kept in femtojoules (microwatts times nanoseconds) and rounded once,
//!    when it is read, so that a million short uses cost what one long one costs.

use crate::profile::StateId;
use std::collections::BTreeMap;
use teal_types::{Energy, Power, TimeSpan};

/// Microwatts times nanoseconds: 10^-15 J.
pub(crate) type Femtojoules = u128;
const PER_MICROJOULE: u128 = 1_000_000_000;

/// A phase of a device's work while it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkPhase {
    /// Takes in a command, or waits for an answer.
    Latency,
    /// Moves the arm.
    Seek,
    /// Waits for a sector to come round.
    Rotate,
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Reads on into the track buffer without a request.
    ReadAhead,
}

/// The use that energy is booked under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EnergyUse {
    /// Resting in a state.
    Rest(StateId),
    /// Going from one state to another.
    Move(StateId, StateId),
    /// Serving.
    Work(WorkPhase),
}

impl EnergyUse {
    /// Returns the use in words; `state` returns the name of a state.
    pub fn describe_use<'s>(self, state: impl Fn(StateId) -> &'s str) -> String {
        let phase = match self {
            Self::Rest(at) => return state(at).to_owned(),
            Self::Move(from, to) => return format!("{} to {}", state(from), state(to)),
            Self::Work(phase) => phase,
        };
        match phase {
            WorkPhase::Latency => "commands",
            WorkPhase::Seek => "seek",
            WorkPhase::Rotate => "rotate",
            WorkPhase::Read => "read",
            WorkPhase::Write => "write",
            WorkPhase::ReadAhead => "read ahead",
        }
        .to_owned()
    }
}

/// One entry: how much of a device's time and energy one use took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LedgerEntry {
    /// The number of visits, transitions or pieces of work.
    pub count: u64,
    /// The time of all of them together.
    pub time: TimeSpan,
    femtojoules: Femtojoules,
}

impl LedgerEntry {
    /// Returns what it cost, rounded to the nearest microjoule.
    pub fn energy(&self) -> Energy {
        // Half a microjoule is added first, so that the division rounds to the nearest.
        let microjoules = (self.femtojoules + PER_MICROJOULE / 2) / PER_MICROJOULE;
        Energy::from_microjoules(u64::try_from(microjoules).unwrap_or(u64::MAX))
    }
}

/// The account of one device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EnergyLedger {
    entries: BTreeMap<EnergyUse, LedgerEntry>,
}

pub(crate) fn power_over_time(power: Power, time: TimeSpan) -> Femtojoules {
    u128::from(power.get()) * u128::from(time.get())
}

pub(crate) fn exact_energy(energy: Energy) -> Femtojoules {
    u128::from(energy.get()) * PER_MICROJOULE
}

impl EnergyLedger {
    /// Books `time` at `power`.
    pub fn book_power(&mut self, used: EnergyUse, power: Power, time: TimeSpan) {
        self.book(used, 1, time, power_over_time(power, time));
    }

    /// Books energy that is known as a whole, such as that of a transition.
    pub fn book_energy(&mut self, used: EnergyUse, time: TimeSpan, energy: Energy) {
        self.book(used, 1, time, exact_energy(energy));
    }

    /// Books more time of a visit that is booked already, without counting another one.
    pub fn extend_power(&mut self, used: EnergyUse, power: Power, time: TimeSpan) {
        self.book(used, 0, time, power_over_time(power, time));
    }

    pub(crate) fn book(
        &mut self,
        used: EnergyUse,
        count: u64,
        time: TimeSpan,
        femtojoules: Femtojoules,
    ) {
        debug_assert!(
            count > 0 || self.entries.contains_key(&used),
            "more of a use follows the first of it"
        );
        let entry = self.entries.entry(used).or_default();
        entry.count += count;
        entry.time += time;
        entry.femtojoules += femtojoules;
    }

    /// Returns the entries in a fixed order.
    pub fn entries(&self) -> impl Iterator<Item = (EnergyUse, LedgerEntry)> {
        self.entries.iter().map(|(used, entry)| (*used, *entry))
    }

    /// Returns one entry; an empty one if nothing was booked.
    pub fn entry(&self, used: EnergyUse) -> LedgerEntry {
        self.entries.get(&used).copied().unwrap_or_default()
    }

    /// Returns the energy of all entries.
    pub fn total_energy(&self) -> Energy {
        self.entries.values().map(LedgerEntry::energy).sum()
    }

    /// Returns the time of all entries.
    pub fn total_time(&self) -> TimeSpan {
        self.entries.values().map(|entry| entry.time).sum()
    }

    /// Adds another account, entry by entry.
    pub fn add(&mut self, other: &Self) {
        // Femtojoules are added, not rounded microjoules: the sum stays exact.
        for (used, entry) in other.entries() {
            self.book(used, entry.count, entry.time, entry.femtojoules);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_short_uses_cost_what_one_long_one_costs() {
        let (mut short, mut long) = (EnergyLedger::default(), EnergyLedger::default());
        let used = EnergyUse::Work(WorkPhase::Read);
        (0..1_000_000).for_each(|_| {
            short.book_power(used, Power::from_milliwatts(627), TimeSpan::from_nanos(7))
        });
        long.book_power(used, Power::from_milliwatts(627), TimeSpan::from_millis(7));
        assert_eq!(
            (short.total_energy(), short.total_time()),
            (long.total_energy(), long.total_time())
        );
        assert_eq!(long.total_energy(), Energy::from_microjoules(4389));
        assert_eq!(
            (short.entry(used).count, long.entry(used).count),
            (1_000_000, 1)
        );
        short.add(&long);
        assert_eq!(short.total_energy(), Energy::from_microjoules(2 * 4389));
    }
}
