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
    /// Makes a point in time; nanoseconds of a second or more are carried over.
    pub const fn new(secs: i64, nanos: u32) -> Self {
        Self {
            // The nanoseconds may come from a disk or the network.
            secs: secs.saturating_add((nanos / 1_000_000_000) as i64),
            nanos: nanos % 1_000_000_000,
        }
    }

    /// Returns the minute in universal time, for people: `2026-11-22 17:05 UTC`.
    pub fn format_minute(self) -> String {
        // The rest of the day, also before 1970.
        let minutes = self.secs.rem_euclid(86_400) / 60;
        format!(
            "{} {:02}:{:02} UTC",
            self.format_date(),
            minutes / 60,
            minutes % 60
        )
    }

    /// Returns the day in universal time, for people: `2026-11-22`.
    pub fn format_date(self) -> String {
        // Days since 0000-03-01 in eras of 400 years; the year begins in March, so that the leap
        // day is its last.
        let days = self.secs.div_euclid(86_400).saturating_add(719_468);
        let era = days.div_euclid(146_097);
        let day_of_era = days.rem_euclid(146_097);
        // Leap days are taken out before the division: one in 4 years, none in 100, one in 400.
        let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
        let year = (day_of_era - leap_days) / 365;
        let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
        // Months from March on have 31 and 30 days by turns, five of them 153 together.
        let month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month + 2) / 5 + 1;
        debug_assert!((0..12).contains(&month) && (1..=31).contains(&day));
        // January and February belong to the next civil year.
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
            Timestamp::new(1_700_000_000, 0).format_minute(),
            "2023-11-14 22:13 UTC"
        );
        assert_eq!(
            Timestamp::new(-1, 0).format_minute(),
            "1969-12-31 23:59 UTC"
        );
    }

    #[test]
    fn days_are_shown_as_the_calendar_has_them() {
        let shown = |secs| Timestamp::new(secs, 0).format_date();
        // As `date -u -d @N +%F` prints them.
        assert_eq!(shown(0), "1970-01-01");
        assert_eq!(shown(951_782_399), "2000-02-28");
        assert_eq!(shown(951_782_400), "2000-02-29");
        assert_eq!(shown(1_795_348_800), "2026-11-22");
        assert_eq!(shown(-1), "1969-12-31");
        assert!(!shown(i64::MAX).is_empty() && !shown(i64::MIN).is_empty());
    }
}
