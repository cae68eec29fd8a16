//! Monotonic time in nanoseconds: a point ([`Time`]) and a length ([`Span`]).
//!
//! Integers, so that a simulation gives the same result on every machine. Arithmetic saturates:
//! 2^64 ns are 584 years.

use crate::decimal::decimal;
use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub};

/// A length of time, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TimeSpan(u64);

impl TimeSpan {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// Longer than anything that happens.
    pub const MAX: Self = Self(u64::MAX);
    /// Makes a length of so many nanoseconds.
    pub const fn from_nanos(raw: u64) -> Self {
        Self(raw)
    }
    /// Makes a length of so many microseconds.
    pub const fn from_micros(raw: u64) -> Self {
        Self(raw.saturating_mul(1_000))
    }
    /// Makes a length of so many milliseconds.
    pub const fn from_millis(raw: u64) -> Self {
        Self(raw.saturating_mul(1_000_000))
    }
    /// Makes a length of so many seconds.
    pub const fn from_secs(raw: u64) -> Self {
        Self(raw.saturating_mul(1_000_000_000))
    }
    /// Makes a length of so many hours.
    pub const fn from_hours(raw: u64) -> Self {
        Self::from_secs(raw.saturating_mul(3600))
    }
    /// Returns the nanoseconds.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// Returns this much less, at least nothing.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for TimeSpan {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for TimeSpan {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Mul<u64> for TimeSpan {
    type Output = Self;
    fn mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

impl std::iter::Sum for TimeSpan {
    fn sum<I: Iterator<Item = Self>>(spans: I) -> Self {
        spans.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Each unit begins where it has a digit before the point.
        let (unit, name, places) = match self.0 {
            0..1_000 => return write!(f, "{} ns", self.0),
            1_000..1_000_000 => (1_000, "us", 1),
            1_000_000..1_000_000_000 => (1_000_000, "ms", 2),
            1_000_000_000..60_000_000_000 => (1_000_000_000, "s", 2),
            60_000_000_000..3_600_000_000_000 => (60_000_000_000, "min", 1),
            _ => (3_600_000_000_000, "h", 2),
        };
        decimal(f, self.0.into(), unit, places)?;
        write!(f, " {name}")
    }
}

/// A point in monotonic time: nanoseconds since some fixed start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The start.
    pub const ZERO: Self = Self(0);
    /// Later than anything that happens.
    pub const MAX: Self = Self(u64::MAX);
    /// Returns the point so long after the start.
    pub const fn after_start(span: TimeSpan) -> Self {
        Self(span.0)
    }
    /// Returns the nanoseconds since the start.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// Returns the time that has passed since `earlier`; nothing if that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> TimeSpan {
        TimeSpan(self.0.saturating_sub(earlier.0))
    }
}

impl Add<TimeSpan> for Time {
    type Output = Self;
    fn add(self, span: TimeSpan) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub<TimeSpan> for Time {
    type Output = Self;
    /// Goes so much back, at most to the start.
    fn sub(self, span: TimeSpan) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Hours are not cut at a day: simulations run for weeks.
        let millis = self.0 / 1_000_000;
        let (hours, minutes) = (millis / 3_600_000, millis / 60_000 % 60);
        write!(
            f,
            "{hours}:{minutes:02}:{:02}.{:03}",
            millis / 1000 % 60,
            millis % 1000
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_wraps_and_prints_for_people() {
        assert_eq!(Time::MAX + TimeSpan::from_secs(1), Time::MAX);
        assert_eq!(Time::ZERO - TimeSpan::from_secs(1), Time::ZERO);
        assert_eq!(Time::ZERO.since(Time::MAX), TimeSpan::ZERO);
        assert_eq!(
            TimeSpan::from_millis(8).saturating_sub(TimeSpan::from_secs(1)),
            TimeSpan::ZERO
        );
        assert_eq!(TimeSpan::from_micros(8_330).to_string(), "8.33 ms");
        assert_eq!(
            [
                TimeSpan::from_nanos(7),
                TimeSpan::from_secs(90),
                TimeSpan::from_hours(27)
            ]
            .map(|s| s.to_string()),
            ["7 ns", "1.5 min", "27.00 h"]
        );
        assert_eq!(
            (Time::ZERO + TimeSpan::from_millis(3_723_004)).to_string(),
            "1:02:03.004"
        );
    }
}
