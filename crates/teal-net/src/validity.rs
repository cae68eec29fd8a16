//! From when to when a client's certificate holds, and what a server makes of that at a time.
//!
//! # Guarantees
//! 1. A certificate is renewed from two thirds of its life on, and up to [`GRACE`] after its end,
//!    by the holder of its key.
//! 2. A certificate from the future is good: the authority itself signed it, so it is the server's
//!    clock that went back.

use std::time::Duration;
use teal_types::Timestamp;

const DAY: u64 = 86_400;
/// The time for which a client's certificate holds: 90 days.
pub const LIFETIME: Duration = Duration::from_secs(90 * DAY);
/// For how long after its end a certificate can still be renewed: 90 days.
pub const GRACE: Duration = Duration::from_secs(90 * DAY);
/// No clock shows more seconds than this: the year 9892, which every form of date can hold.
const LAST_SECOND: u64 = 250_000_000_000;

/// The two dates of a certificate, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CertificateValidity {
    /// The first second.
    pub(crate) issued: u64,
    /// The last second.
    pub(crate) expires: u64,
}

/// The uses for which a certificate is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CertificateAge {
    /// Everything.
    Good,
    /// Everything, and it is time to renew it.
    Due,
    /// Nothing but being renewed.
    Expired,
    /// Nothing.
    Gone,
}

/// Returns whole seconds since 1970, within the range that certificates can say.
pub(crate) fn whole_seconds(time: Timestamp) -> u64 {
    u64::try_from(time.secs).unwrap_or(0).min(LAST_SECOND)
}

impl CertificateValidity {
    /// Returns the validity of a certificate made at `now`.
    pub(crate) fn starting_at(now: u64) -> Self {
        Self {
            issued: now,
            expires: now.saturating_add(LIFETIME.as_secs()),
        }
    }

    /// Returns what the certificate is good for when the clock shows `now`.
    pub(crate) fn age_at(self, now: u64) -> CertificateAge {
        // Two thirds of the life: with the rest, a machine that is rarely on still finds a day to
        // renew.
        let due = self
            .issued
            .saturating_add(self.expires.saturating_sub(self.issued) / 3 * 2);
        match now {
            _ if now < due => CertificateAge::Good,
            _ if now <= self.expires => CertificateAge::Due,
            _ if now <= self.expires.saturating_add(GRACE.as_secs()) => CertificateAge::Expired,
            _ => CertificateAge::Gone,
        }
    }
}

/// Returns `now` as a day, for people: `2026-11-22`.
pub(crate) fn date_text(now: u64) -> String {
    Timestamp::new(i64::try_from(now).unwrap_or(i64::MAX), 0).format_date()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_renewed_from_two_thirds_on_and_in_grace() {
        let made = 1_700_000_000;
        let validity = CertificateValidity::starting_at(made);
        let at = |day: u64| validity.age_at(made + day * DAY);
        assert_eq!(
            [at(0), at(59), at(60), at(90)],
            [
                CertificateAge::Good,
                CertificateAge::Good,
                CertificateAge::Due,
                CertificateAge::Due
            ]
        );
        assert_eq!(
            [at(91), at(180), at(181)],
            [
                CertificateAge::Expired,
                CertificateAge::Expired,
                CertificateAge::Gone
            ]
        );
    }

    #[test]
    fn a_clock_that_went_back_makes_no_certificate_bad() {
        assert_eq!(
            CertificateValidity::starting_at(1_700_000_000).age_at(0),
            CertificateAge::Good
        );
    }

    #[test]
    fn any_clock_can_be_written_into_a_certificate() {
        assert_eq!(whole_seconds(Timestamp::new(-1, 0)), 0);
        assert_eq!(
            date_text(whole_seconds(Timestamp::new(i64::MAX, 0)) + LIFETIME.as_secs()),
            "9892-06-06"
        );
        assert_eq!(
            CertificateValidity::starting_at(u64::MAX).age_at(u64::MAX),
            CertificateAge::Due
        );
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (secs, day) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_700_000_000, "2023-11-14"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(date_text(secs), day);
        }
    }
}
