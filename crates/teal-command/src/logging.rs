//! The log of both programs: lines on standard error, chosen by `RUST_LOG`, from `info` upwards
//! where that is not set.

use log::Record;
use std::io::Write as _;
use teal_env::{Clock as _, SystemClock};
use teal_types::Timestamp;

/// Begins to log. It is called once, before anything is logged.
pub fn init_logging() {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info"))
        .format(|out, record| writeln!(out, "{}", format_record(SystemClock.civil_time(), record)))
        .init();
}

/// Returns a record as `[2026-11-22T14:05:09Z INFO ] message`; what follows its first line is set
/// in.
fn format_record(at: Timestamp, record: &Record<'_>) -> String {
    // Seconds of the day, also before 1970.
    let seconds = at.secs.rem_euclid(86_400);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let message = record.args().to_string().replace('\n', "\n    ");
    format!(
        "[{}T{hours:02}:{minutes:02}:{:02}Z {:<5}] {message}",
        at.format_date(),
        seconds % 60,
        record.level()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_time_the_level_and_the_message() {
        let args = format_args!("one\ntwo");
        let record = Record::builder().level(log::Level::Info).args(args).build();
        assert_eq!(
            format_record(Timestamp::new(951_782_399, 5), &record),
            "[2000-02-28T23:59:59Z INFO ] one\n    two"
        );
    }
}
