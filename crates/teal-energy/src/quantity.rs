//! Figures with units, as people write them in profiles: `"7.64 mJ"`, `"3600 rpm"`, `"44 MB/s"`.
//!
//! # Guarantees
//! 1. A figure is taken exactly: decimal digits become an integer of the smallest unit, and a
//!    figure finer than that unit is refused.
//! 2. Negative figures, unknown units and figures that do not fit are refused, with what would be
//!    accepted.

use serde::de::{Deserialize, Deserializer, Error as _};
use teal_types::{Bytes, Energy, Power, TimeSpan};

/// Bytes per second, never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// Makes a rate; `None` for zero.
    pub const fn per_second(bytes: u64) -> Option<Self> {
        if bytes == 0 { None } else { Some(Self(bytes)) }
    }
    /// Returns the bytes per second.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// Returns the time that `bytes` take, rounded up.
    pub fn transfer_time(self, bytes: u64) -> TimeSpan {
        let nanos = (u128::from(bytes) * 1_000_000_000).div_ceil(self.0.into());
        TimeSpan::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
    /// Returns the number of bytes that pass in `span`, rounded down.
    pub fn bytes_within(self, span: TimeSpan) -> u64 {
        let bytes = u128::from(self.0) * u128::from(span.get()) / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// Turns of a spindle per minute, never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RotationSpeed(u64);

impl RotationSpeed {
    /// Makes a speed; `None` for zero.
    pub const fn per_minute(turns: u64) -> Option<Self> {
        if turns == 0 { None } else { Some(Self(turns)) }
    }
    /// Returns the time of one turn, rounded to the nearest nanosecond.
    pub const fn turn_time(self) -> TimeSpan {
        debug_assert!(self.0 > 0, "a spindle that does not turn has no speed");
        TimeSpan::from_nanos((60_000_000_000 + self.0 / 2) / self.0)
    }
}

/// A kind of figure: its name, and its units in terms of the smallest.
trait Figure: Sized {
    const WHAT: &'static str;
    const UNITS: &'static [(&'static str, u128)];
    fn of(raw: u64) -> Option<Self>;
}

macro_rules! figure {
    ($type:ty, $what:literal, $of:expr, [$($unit:literal = $factor:expr),+]) => {
        impl Figure for $type {
            const WHAT: &'static str = $what;
            const UNITS: &'static [(&'static str, u128)] = &[$(($unit, $factor)),+];
            fn of(raw: u64) -> Option<Self> { $of(raw) }
        }
    };
}

const DAY: u128 = 86_400_000_000_000;
figure!(
    Power,
    "a power",
    |raw| Some(Power::from_microwatts(raw)),
    ["uW" = 1, "mW" = 1_000, "W" = 1_000_000]
);
figure!(
    Energy,
    "an energy",
    |raw| Some(Energy::from_microjoules(raw)),
    ["uJ" = 1, "mJ" = 1_000, "J" = 1_000_000]
);
figure!(
    TimeSpan,
    "a time",
    |raw| Some(TimeSpan::from_nanos(raw)),
    [
        "ns" = 1,
        "us" = 1_000,
        "ms" = 1_000_000,
        "s" = 1_000_000_000,
        "min" = 60_000_000_000,
        "h" = DAY / 24,
        "d" = DAY,
        "years" = DAY * 365
    ]
);
figure!(
    Bytes,
    "a size",
    |raw| Some(Bytes::new(raw)),
    [
        "B" = 1,
        "KB" = 1_000,
        "KiB" = 1 << 10,
        "MB" = 1_000_000,
        "MiB" = 1 << 20,
        "GB" = 1_000_000_000,
        "GiB" = 1 << 30,
        "TB" = 1_000_000_000_000
    ]
);
figure!(
    Rate,
    "a rate above zero",
    Rate::per_second,
    [
        "B/s" = 1,
        "KB/s" = 1_000,
        "KiB/s" = 1 << 10,
        "MB/s" = 1_000_000,
        "MiB/s" = 1 << 20,
        "GB/s" = 1_000_000_000
    ]
);
figure!(
    RotationSpeed,
    "a speed above zero",
    RotationSpeed::per_minute,
    ["rpm" = 1]
);

/// A figure in a settings file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SettingsFigure<T>(pub(crate) T);

impl<'de, T: Figure> Deserialize<'de> for SettingsFigure<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        parse_figure(&text)
            .map(SettingsFigure)
            .map_err(D::Error::custom)
    }
}

fn parse_figure<T: Figure>(text: &str) -> Result<T, String> {
    let units = || {
        T::UNITS
            .iter()
            .map(|(unit, _)| *unit)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let refused = |why: &str| format!("`{text}` is not {}: {why}", T::WHAT);
    // The unit begins at the first character that is no part of a number; blanks before it do not
    // count.
    let at = text
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-')
        .unwrap_or(text.len());
    let (number, unit) = (&text[..at], text[at..].trim());
    if number.starts_with('-') {
        return Err(refused("it must not be negative"));
    }
    let Some(&(_, factor)) = T::UNITS.iter().find(|(known, _)| *known == unit) else {
        return Err(refused(&format!("write a number and one of {}", units())));
    };
    // Whole and fractional digits are scaled apart, in integers, so that no figure is rounded.
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    // Eighteen digits fit into 64 bits with room for the sign that the parser looks for.
    let digits = |text: &str| text.parse::<u64>().ok().filter(|_| text.len() <= 18);
    let (Some(whole), Some(value)) = (digits(whole), digits(part)) else {
        return Err(refused("the number cannot be read"));
    };
    let scale = 10_u128.pow(u32::try_from(part.len()).unwrap_or(0));
    // The fraction has to come out even in the smallest unit: what would be rounded is refused.
    let fine = u128::from(value) * factor;
    if fine % scale != 0 {
        return Err(refused(&format!("it is finer than 1 {}", T::UNITS[0].0)));
    }
    u64::try_from(u128::from(whole) * factor + fine / scale)
        .ok()
        .and_then(T::of)
        .ok_or_else(|| refused("out of range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_exact() {
        assert_eq!(
            parse_figure::<Power>("637 mW"),
            Ok(Power::from_milliwatts(637))
        );
        assert_eq!(
            parse_figure::<Power>("1.19 W"),
            Ok(Power::from_milliwatts(1190))
        );
        assert_eq!(
            parse_figure::<Energy>("7.64mJ"),
            Ok(Energy::from_microjoules(7640))
        );
        assert_eq!(
            parse_figure::<TimeSpan>("5 years"),
            Ok(TimeSpan::from_hours(5 * 365 * 24))
        );
        assert_eq!(
            parse_figure::<Rate>("3300 KiB/s").map(Rate::get),
            Ok(3_379_200)
        );
        assert_eq!(
            parse_figure::<RotationSpeed>("3600 rpm").map(RotationSpeed::turn_time),
            Ok(TimeSpan::from_nanos(16_666_667))
        );
    }

    #[test]
    fn bad_figures_are_refused_with_what_is_accepted() {
        let said = |text: &str| parse_figure::<Power>(text).expect_err("accepted");
        assert!(said("-3 W").contains("negative"), "{}", said("-3 W"));
        assert!(said("3 J").contains("uW, mW, W"), "{}", said("3 J"));
        assert!(said("0.0000001 W").contains("finer than 1 uW"));
        assert!(said("99999999999999999 W").contains("out of range"));
        assert!(said("1.2.3 W").contains("cannot be read"));
        assert!(said("1. W").contains("cannot be read"));
        assert!(said("").contains("write a number"));
        assert!(
            parse_figure::<Rate>("0 MB/s")
                .expect_err("accepted")
                .contains("above zero")
        );
        assert!(parse_figure::<RotationSpeed>("0 rpm").is_err());
    }

    #[test]
    fn transfers_round_against_us() {
        let rate = Rate::per_second(3).expect("not zero");
        assert_eq!(rate.transfer_time(1), TimeSpan::from_nanos(333_333_334));
        assert_eq!(rate.bytes_within(TimeSpan::from_nanos(333_333_333)), 0);
        assert_eq!(rate.bytes_within(rate.transfer_time(100)), 100);
    }
}
