//! A point in civil time with nanoseconds, as files carry it.

use serde::{Deserialize, Serialize};

/// Seconds and nanoseconds since 1970-01-01 UTC; seconds may be negative.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Timestamp {
    /// Whole seconds, rounded down.
    pub secs: i64,
    /// Nanoseconds within the second, below 10^9.
    pub nanos: u32,
}

impl Timestamp {
    /// A point in time; nanoseconds of a second or more are carried over.
    pub const fn new(secs: i64, nanos: u32) -> Self {
        Self {
            secs: secs.saturating_add((nanos / 1_000_000_000) as i64),
            nanos: nanos % 1_000_000_000,
        }
    }

    /// The minute in universal time, for people: `2026-11-22 17:05 UTC`.
    pub fn minute(self) -> String {
        let minutes = self.secs.rem_euclid(86_400) / 60;
        format!(
            "{} {:02}:{:02} UTC",
            self.date(),
            minutes / 60,
            minutes % 60
        )
    }

    /// The day in universal time, for people: `2026-11-22`.
    pub fn date(self) -> String {
        // Days since 0000-03-01 in eras of 400 years; the year begins in March, so that the leap
        // day is its last.
        let days = self.secs.div_euclid(86_400).saturating_add(719_468);
        let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let (month, next) = if month < 10 {
            (month + 3, 0)
        } else {
            (month - 9, 1)
        };
        format!("{:04}-{month:02}-{day:02}", year + era * 400 + next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_are_shown_with_their_day() {
        assert_eq!(
            Timestamp::new(1_700_000_000, 0).minute(),
            "2023-11-14 22:13 UTC"
        );
        assert_eq!(Timestamp::new(-1, 0).minute(), "1969-12-31 23:59 UTC");
    }

    #[test]
    fn days_are_shown_as_the_calendar_has_them() {
        let shown = |secs| Timestamp::new(secs, 0).date();
        // As `date -u -d @N +%F` prints them.
        assert_eq!(shown(0), "1970-01-01");
        assert_eq!(shown(951_782_399), "2000-02-28");
        assert_eq!(shown(951_782_400), "2000-02-29");
        assert_eq!(shown(1_795_348_800), "2026-11-22");
        assert_eq!(shown(-1), "1969-12-31");
        assert!(!shown(i64::MAX).is_empty() && !shown(i64::MIN).is_empty());
    }
}
