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

/// [`line()`] with the arguments of `format!`.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::say::line(format_args!($($text)*))
    };
}
pub(crate) use say;
