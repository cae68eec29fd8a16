//! Lines for the person at the terminal, or the program behind a pipe that may have seen enough.

use crate::place_text;
use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

/// Prints a line to standard output. A closed pipe is no error, as its reader has seen enough; when
/// the line cannot be written for another reason, the program ends with a message.
pub fn line(text: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    // The line is flushed, so that a failed write is seen here and not at the end.
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => {}
        Err(e) if e.kind() == ErrorKind::BrokenPipe => {}
        Err(e) => {
            print_error(&anyhow::Error::new(e).context("standard output"));
            std::process::exit(1);
        }
    }
}

/// Prints an error to standard error, and returns the status to end with.
pub fn print_error(error: &anyhow::Error) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "teal: {}", with_causes(error));
    ExitCode::FAILURE
}

/// Returns an error with its causes, each said once: some messages contain that of their cause.
pub fn with_causes(error: &anyhow::Error) -> String {
    // A shorter cause may be part of another sentence by accident.
    const TELLING: usize = 8;
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        // Some messages end with that of their cause; only a long one counts elsewhere in the text.
        let is_said = text.ends_with(&cause) || (cause.len() >= TELLING && text.contains(&cause));
        if !is_said {
            let between = if text.is_empty() { "" } else { ": " };
            text = format!("{text}{between}{cause}");
        }
    }
    text
}

/// Returns a text from elsewhere on one line: control characters are escaped.
pub fn escape_control(text: &str) -> String {
    let shown = |c: char| {
        if c.is_control() {
            c.escape_default().to_string()
        } else {
            c.to_string()
        }
    };
    text.chars().map(shown).collect()
}

/// Returns a path for people.
pub fn shown_path(path: &Path) -> String {
    escape_control(&place_text::encode(path))
}

/// Returns a number with its noun: `1 file`, `2 files`.
pub fn count_noun(number: u64, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}

/// Returns a word as a shell takes it.
pub fn shell_quoted(word: &str) -> String {
    let is_safe = |c: char| c.is_alphanumeric() || "-_=,.:/".contains(c);
    // An empty word needs quotes, or it would vanish.
    if !word.is_empty() && word.chars().all(is_safe) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Returns a time for people: `2026-11-22 14:05`, universal time.
pub fn date_and_time(at: teal_types::Timestamp) -> String {
    let secs = at.secs.rem_euclid(86_400);
    format!(
        "{} {:02}:{:02}",
        at.format_date(),
        secs / 3600,
        secs / 60 % 60
    )
}

/// Prints a line with the arguments of `format!`; see [`line()`].
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => {
        $crate::say::line(format_args!($($text)*))
    };
}
pub use say;

#[cfg(test)]
mod tests {
    use super::*;
    use teal_types::Timestamp;

    #[test]
    fn what_is_shown_stays_on_one_line_and_can_be_typed() {
        assert_eq!(escape_control("a\nb\u{1b}c"), "a\\nb\\u{1b}c");
        assert_eq!(
            (count_noun(1, "file"), count_noun(0, "file")),
            ("1 file".to_owned(), "0 files".to_owned())
        );
        assert_eq!(
            (shell_quoted("usb-1"), shell_quoted("sp ace")),
            ("usb-1".to_owned(), "'sp ace'".to_owned())
        );
        // To a shell an option is a word like others, quoted or not.
        assert_eq!(
            (shell_quoted("it's"), shell_quoted("-x"), shell_quoted("")),
            (r"'it'\''s'".to_owned(), "-x".to_owned(), "''".to_owned())
        );
        assert_eq!(
            (shell_quoted("data=journal,x"), shell_quoted("^has")),
            ("data=journal,x".to_owned(), "'^has'".to_owned())
        );
    }

    #[test]
    fn a_cause_is_said_once() {
        let disk = || std::io::Error::other("the disk is gone");
        let error = anyhow::Error::new(disk()).context("reading sector 7");
        assert_eq!(with_causes(&error), "reading sector 7: the disk is gone");
        let error = anyhow::Error::new(disk())
            .context("reading sector 7: the disk is gone")
            .context("no");
        assert_eq!(
            with_causes(&error),
            "no: reading sector 7: the disk is gone"
        );
    }

    #[test]
    fn times_are_shown_as_the_calendar_has_them() {
        let shown = |secs| date_and_time(Timestamp::new(secs, 0));
        // As `date -u -d @N` prints them.
        assert_eq!(shown(0), "1970-01-01 00:00");
        assert_eq!(shown(951_782_399), "2000-02-28 23:59");
        assert_eq!(shown(951_782_400), "2000-02-29 00:00");
        assert_eq!(shown(1_795_348_800), "2026-11-22 12:00");
        assert_eq!(shown(-1), "1969-12-31 23:59");
    }
}
