//! Where a device's energy went: time and energy by what it was used for.
//!
//! # Guarantees
//! 1. *Additive*: the total is the sum of the entries, to the microjoule; time too.
//! 2. *Exact*: each entry is kept in femtojoules (microwatts times nanoseconds) and rounded once,
//!    when it is read, so that a million short uses cost what one long one costs.

use crate::profile::StateId;
use std::collections::BTreeMap;
use teal_types::{Energy, Power, Span};

/// Microwatts times nanoseconds: 10^-15 J.
pub(crate) type Femtojoules = u128;
const PER_MICROJOULE: u128 = 1_000_000_000;

/// What a device does while it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
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
    /// Reads on into the track buffer, unasked.
    ReadAhead,
}

/// What energy is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Use {
    /// Resting in a state.
    Rest(StateId),
    /// Going from one state to another.
    Move(StateId, StateId),
    /// Serving.
    Work(Phase),
}

impl Use {
    /// In words; `state` names a state.
    pub fn name<'s>(self, state: impl Fn(StateId) -> &'s str) -> String {
        let phase = match self {
            Self::Rest(at) => return state(at).to_owned(),
            Self::Move(from, to) => return format!("{} to {}", state(from), state(to)),
            Self::Work(phase) => phase,
        };
        match phase {
            Phase::Latency => "commands",
            Phase::Seek => "seek",
            Phase::Rotate => "rotate",
            Phase::Read => "read",
            Phase::Write => "write",
            Phase::ReadAhead => "read ahead",
        }
        .to_owned()
    }
}

/// One entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Entry {
    /// How often: visits, transitions, pieces of work.
    pub count: u64,
    /// For how long in all.
    pub time: Span,
    femtojoules: Femtojoules,
}

impl Entry {
    /// Returns what it cost, rounded to the nearest microjoule.
    pub fn energy(&self) -> Energy {
        let microjoules = (self.femtojoules + PER_MICROJOULE / 2) / PER_MICROJOULE;
        Energy::microjoules(u64::try_from(microjoules).unwrap_or(u64::MAX))
    }
}

/// The account of one device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ledger {
    entries: BTreeMap<Use, Entry>,
}

pub(crate) fn femtojoules(power: Power, time: Span) -> Femtojoules {
    u128::from(power.get()) * u128::from(time.get())
}

pub(crate) fn of_energy(energy: Energy) -> Femtojoules {
    u128::from(energy.get()) * PER_MICROJOULE
}

impl Ledger {
    /// Books `time` at `power`.
    pub fn draw(&mut self, used: Use, power: Power, time: Span) {
        self.book(used, 1, time, femtojoules(power, time));
    }

    /// Books energy that is known as a whole, such as that of a transition.
    pub fn pay(&mut self, used: Use, time: Span, energy: Energy) {
        self.book(used, 1, time, of_energy(energy));
    }

    /// More of what was booked last: no new visit.
    pub fn draw_on(&mut self, used: Use, power: Power, time: Span) {
        self.book(used, 0, time, femtojoules(power, time));
    }

    pub(crate) fn book(&mut self, used: Use, count: u64, time: Span, femtojoules: Femtojoules) {
        let entry = self.entries.entry(used).or_default();
        entry.count += count;
        entry.time += time;
        entry.femtojoules += femtojoules;
    }

    /// The entries, in a fixed order.
    pub fn entries(&self) -> impl Iterator<Item = (Use, Entry)> {
        self.entries.iter().map(|(used, entry)| (*used, *entry))
    }

    /// One entry; empty if nothing was booked.
    pub fn entry(&self, used: Use) -> Entry {
        self.entries.get(&used).copied().unwrap_or_default()
    }

    /// All energy: the sum of the entries.
    pub fn total(&self) -> Energy {
        self.entries.values().map(Entry::energy).sum()
    }

    /// All time: the sum of the entries.
    pub fn time(&self) -> Span {
        self.entries.values().map(|entry| entry.time).sum()
    }

    /// Adds another account, entry by entry.
    pub fn add(&mut self, other: &Self) {
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
        let (mut short, mut long) = (Ledger::default(), Ledger::default());
        let used = Use::Work(Phase::Read);
        (0..1_000_000).for_each(|_| short.draw(used, Power::milliwatts(627), Span::nanos(7)));
        long.draw(used, Power::milliwatts(627), Span::millis(7));
        assert_eq!((short.total(), short.time()), (long.total(), long.time()));
        assert_eq!(long.total(), Energy::microjoules(4389));
        assert_eq!(
            (short.entry(used).count, long.entry(used).count),
            (1_000_000, 1)
        );
        short.add(&long);
        assert_eq!(short.total(), Energy::microjoules(2 * 4389));
    }
}
