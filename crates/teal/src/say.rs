//! Lines for the person at the terminal, or the program behind a pipe that may have seen enough.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// Prints a line to standard output. What nobody reads any more is not printed; when it cannot be written for another reason, the
/// program ends with a message.
pub(crate) fn line(text: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => {}
        Err(e) if e.kind() == ErrorKind::BrokenPipe => {}
        Err(e) => {
            complain(&anyhow::Error::new(e).context("standard output"));
            std::process::exit(1);
        }
    }
}

/// Prints what went wrong, if anybody listens, and gives the status to end with.
pub(crate) fn complain(error: &anyhow::Error) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "teal: {error:#}");
    ExitCode::FAILURE
}

/// A time for people: `2026-11-22 14:05`, universal time.
pub(crate) fn date(at: teal_types::Timestamp) -> String {
    let (days, secs) = (at.secs.div_euclid(86_400), at.secs.rem_euclid(86_400));
    // Years are counted from March of year 0, so that the day that comes and goes is the last: 400 of them have 146,097 days.
    let from_march = days + 719_468;
    let (era, day) = (from_march.div_euclid(146_097), from_march.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let in_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * in_year + 2) / 153;
    let (in_month, month) = (in_year - (153 * month + 2) / 5 + 1, (month + 2) % 12 + 1);
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year}-{month:02}-{in_month:02} {:02}:{:02}", secs / 3600, secs / 60 % 60)
}

/// [`line()`] with the arguments of `format!`.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::say::line(format_args!($($text)*))
    };
}
pub(crate) use say;

#[cfg(test)]
mod tests {
    use teal_types::Timestamp;

    #[test]
    fn times_are_shown_as_the_calendar_has_them() {
        let shown = |secs| super::date(Timestamp::new(secs, 0));
        // As `date -u -d @N` prints them.
        assert_eq!(shown(0), "1970-01-01 00:00");
        assert_eq!(shown(951_782_399), "2000-02-28 23:59");
        assert_eq!(shown(951_782_400), "2000-02-29 00:00");
        assert_eq!(shown(1_795_348_800), "2026-11-22 12:00");
        assert_eq!(shown(-1), "1969-12-31 23:59");
    }
}
