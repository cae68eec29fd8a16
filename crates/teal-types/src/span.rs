//! Monotonic time in nanoseconds: a point ([`Time`]) and a length ([`Span`]).
//!
//! Integers, so that a simulation gives the same result on every machine. Arithmetic saturates:
//! 2^64 ns are 584 years.

use crate::decimal::write_decimal;
use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub};

/// A length of time, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// Longer than anything that happens.
    pub const MAX: Self = Self(u64::MAX);
    /// Nanoseconds.
    pub const fn nanos(raw: u64) -> Self {
        Self(raw)
    }
    /// Microseconds.
    pub const fn micros(raw: u64) -> Self {
        Self(raw.saturating_mul(1_000))
    }
    /// Milliseconds.
    pub const fn millis(raw: u64) -> Self {
        Self(raw.saturating_mul(1_000_000))
    }
    /// Seconds.
    pub const fn secs(raw: u64) -> Self {
        Self(raw.saturating_mul(1_000_000_000))
    }
    /// Hours.
    pub const fn hours(raw: u64) -> Self {
        Self::secs(raw.saturating_mul(3600))
    }
    /// The nanoseconds.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// This much less, at least nothing.
    #[must_use]
    pub const fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Mul<u64> for Span {
    type Output = Self;
    fn mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

impl std::iter::Sum for Span {
    fn sum<I: Iterator<Item = Self>>(spans: I) -> Self {
        spans.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name, places) = match self.0 {
            0..1_000 => return write!(f, "{} ns", self.0),
            1_000..1_000_000 => (1_000, "us", 1),
            1_000_000..1_000_000_000 => (1_000_000, "ms", 2),
            1_000_000_000..60_000_000_000 => (1_000_000_000, "s", 2),
            60_000_000_000..3_600_000_000_000 => (60_000_000_000, "min", 1),
            _ => (3_600_000_000_000, "h", 2),
        };
        write_decimal(f, self.0.into(), unit, places)?;
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
    /// So long after the start.
    pub const fn after_start(span: Span) -> Self {
        Self(span.0)
    }
    /// Nanoseconds since the start.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// The time that has passed since `earlier`; nothing if that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Span> for Time {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub<Span> for Time {
    type Output = Self;
    /// So much earlier, at the earliest the start.
    fn sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
        assert_eq!(Time::MAX + Span::secs(1), Time::MAX);
        assert_eq!(Time::ZERO - Span::secs(1), Time::ZERO);
        assert_eq!(Time::ZERO.since(Time::MAX), Span::ZERO);
        assert_eq!(Span::millis(8).less(Span::secs(1)), Span::ZERO);
        assert_eq!(Span::micros(8_330).to_string(), "8.33 ms");
        assert_eq!(
            [Span::nanos(7), Span::secs(90), Span::hours(27)].map(|s| s.to_string()),
            ["7 ns", "1.5 min", "27.00 h"]
        );
        assert_eq!(
            (Time::ZERO + Span::millis(3_723_004)).to_string(),
            "1:02:03.004"
        );
    }
}
