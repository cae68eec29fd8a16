//! Power in microwatts and energy in microjoules.
//!
//! Integers, so that a simulation gives the same result on every machine. Arithmetic saturates:
//! 2^64 uJ are what a gigawatt gives in five hours.

use crate::TimeSpan;
use crate::decimal::decimal;
use std::fmt;
use std::ops::{Add, AddAssign, Mul};

/// Power, in microwatts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Power(u64);

impl Power {
    /// No power.
    pub const ZERO: Self = Self(0);
    /// Makes a power of so many microwatts.
    pub const fn from_microwatts(raw: u64) -> Self {
        Self(raw)
    }
    /// Makes a power of so many milliwatts.
    pub const fn from_milliwatts(raw: u64) -> Self {
        Self(raw.saturating_mul(1_000))
    }
    /// Returns the microwatts.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// Returns this much less, at least nothing.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Power {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl std::iter::Sum for Power {
    fn sum<I: Iterator<Item = Self>>(powers: I) -> Self {
        powers.fold(Self::ZERO, Add::add)
    }
}

/// Rounded to the nearest microjoule, halves up.
impl Mul<TimeSpan> for Power {
    type Output = Energy;
    fn mul(self, span: TimeSpan) -> Energy {
        // Microwatts times nanoseconds are femtojoules, and 10^9 of them a microjoule.
        let femtojoules = u128::from(self.0) * u128::from(span.get());
        // Half a microjoule more, so that the division rounds to the nearest.
        Energy(u64::try_from((femtojoules + 500_000_000) / 1_000_000_000).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Power {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name, places) = match self.0 {
            0..1_000 => return write!(f, "{} uW", self.0),
            1_000..1_000_000 => (1_000, "mW", 0),
            _ => (1_000_000, "W", 2),
        };
        decimal(f, self.0.into(), unit, places)?;
        write!(f, " {name}")
    }
}

/// Energy, in microjoules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Energy(u64);

impl Energy {
    /// No energy.
    pub const ZERO: Self = Self(0);
    /// Makes an energy of so many microjoules.
    pub const fn from_microjoules(raw: u64) -> Self {
        Self(raw)
    }
    /// Makes an energy of so many millijoules.
    pub const fn from_millijoules(raw: u64) -> Self {
        Self(raw.saturating_mul(1_000))
    }
    /// Makes an energy of so many joules.
    pub const fn from_joules(raw: u64) -> Self {
        Self(raw.saturating_mul(1_000_000))
    }
    /// Returns the microjoules.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// Returns this much less, at least nothing.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Energy {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Energy {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Mul<u64> for Energy {
    type Output = Self;
    fn mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

impl std::iter::Sum for Energy {
    fn sum<I: Iterator<Item = Self>>(energies: I) -> Self {
        energies.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Energy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name, places) = match self.0 {
            0..1_000 => return write!(f, "{} uJ", self.0),
            1_000..1_000_000 => (1_000, "mJ", 2),
            1_000_000..1_000_000_000 => (1_000_000, "J", 2),
            _ => (1_000_000_000, "kJ", 2),
        };
        decimal(f, self.0.into(), unit, places)?;
        write!(f, " {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_over_time_is_energy() {
        assert_eq!(
            Power::from_milliwatts(637) * TimeSpan::from_millis(12),
            Energy::from_microjoules(7_644)
        );
        assert_eq!(
            Power::from_microwatts(1) * TimeSpan::from_nanos(499_999_999),
            Energy::ZERO
        );
        assert_eq!(
            Power::from_microwatts(1) * TimeSpan::from_nanos(500_000_000),
            Energy::from_microjoules(1)
        );
        assert_eq!(
            Power::from_microwatts(u64::MAX) * TimeSpan::MAX,
            Energy::from_microjoules(u64::MAX)
        );
    }

    #[test]
    fn energy_prints_for_people() {
        let printed = [7, 7_644, 41_000_000, 5_240_125_000]
            .map(|raw| Energy::from_microjoules(raw).to_string());
        assert_eq!(printed, ["7 uJ", "7.64 mJ", "41.00 J", "5.24 kJ"]);
        assert_eq!(
            [Power::from_milliwatts(61), Power::from_milliwatts(1_190)].map(|p| p.to_string()),
            ["61 mW", "1.19 W"]
        );
    }
}
