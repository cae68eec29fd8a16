//! Break-even: the idle time from which sleeping pays, and the size from which one device is
//! cheaper than another.
//!
//! # Guarantees
//! 1. [`BurstEnergy::energy_for`] is equation 1 of GreenFS (2.5), rounded once.
//! 2. Below the [break-even](RoundTrip::break_even) time, staying costs at most what sleeping
//!    costs; above it, at least.
//! 3. A break-even time is never shorter than the way down and up.

use crate::profile::{BurstEnergy, Profile, StateId};
use teal_types::{Bytes, Energy, Power, TimeSpan};

/// The way from a state into a deeper one and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundTrip {
    /// Power of the state that is left.
    pub awake: Power,
    /// Power of the deeper state.
    pub asleep: Power,
    /// Time of both ways.
    pub time: TimeSpan,
    /// Energy of both ways.
    pub energy: Energy,
}

impl RoundTrip {
    /// Makes the way from `from` to `to` and back, by direct transitions; `None` if a figure is
    /// missing.
    pub fn between_states(profile: &Profile, from: StateId, to: StateId) -> Option<Self> {
        let way = |a, b| {
            profile
                .transitions
                .iter()
                .find(|way| (way.from, way.to) == (a, b))
        };
        let (down, up) = (way(from, to)?, way(to, from)?);
        Some(Self {
            awake: profile.states[from.index()].power,
            asleep: profile.states[to.index()].power,
            time: down.time + up.time,
            energy: down.energy + up.energy,
        })
    }

    /// Returns the idle time from which sleeping pays; `None` if it never does: `T = (E_down + E_up
    /// - P_asleep (t_down + t_up)) / (P_awake - P_asleep)`, and at least both ways.
    pub fn break_even(&self) -> Option<TimeSpan> {
        // A deeper state that draws no less never pays, however long the pause.
        let saved = self.awake.saturating_sub(self.asleep);
        if saved == Power::ZERO {
            return None;
        }
        // The round trip takes the place of resting asleep for its time; only the difference has to
        // be earned.
        let extra = self.energy.saturating_sub(self.asleep * self.time);
        let nanos = (u128::from(extra.get()) * 1_000_000_000).div_ceil(saved.get().into());
        Some(TimeSpan::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).max(self.time))
    }

    /// Returns the energy of an idle time asleep; it is at least both ways long.
    pub fn cost_asleep(&self, idle: TimeSpan) -> Energy {
        self.energy + self.asleep * idle.saturating_sub(self.time)
    }

    /// Returns the energy of an idle time awake.
    pub fn cost_awake(&self, idle: TimeSpan) -> Energy {
        self.awake * idle
    }
}

impl BurstEnergy {
    /// Equation 1 of GreenFS: the energy to get ready and transfer `size`, `U = U_up + P * S / B`.
    pub fn energy_for(&self, size: Bytes) -> Energy {
        // The division is rounded to the nearest microjoule, once.
        let rate = u128::from(self.rate.get());
        let transfer = (u128::from(self.power.get()) * u128::from(size.get()) + rate / 2) / rate;
        self.start + Energy::from_microjoules(u64::try_from(transfer).unwrap_or(u64::MAX))
    }

    /// The size from which `self` needs no more energy than `other`, both from rest; `None` if it
    /// always needs more.
    pub fn cheaper_from(&self, other: &Self) -> Option<Bytes> {
        // Cheaper to start and no steeper: cheaper at every size.
        if self.start <= other.start && self.slope_at_most(other) {
            return Some(Bytes::new(0));
        }
        // Steeper, or dearer to start without being flatter: there is no size from which it pays.
        if self.start <= other.start || !other.slope_above(self) {
            return None;
        }
        // (U - U') / (P'/B' - P/B), cleared of fractions.
        let (mine, its) = (u128::from(self.rate.get()), u128::from(other.rate.get()));
        let steeper = u128::from(other.power.get()) * mine - u128::from(self.power.get()) * its;
        let size = (u128::from(self.start.saturating_sub(other.start).get()) * mine * its)
            .div_ceil(steeper);
        u64::try_from(size).ok().map(Bytes::new)
    }

    fn slope_above(&self, other: &Self) -> bool {
        u128::from(self.power.get()) * u128::from(other.rate.get())
            > u128::from(other.power.get()) * u128::from(self.rate.get())
    }

    fn slope_at_most(&self, other: &Self) -> bool {
        !self.slope_above(other)
    }
}

#[cfg(test)]
mod tests;
