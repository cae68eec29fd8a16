//! Pauses between attempts that fail, growing.

use std::time::Duration;

/// The longest pause between two attempts to reach the server.
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// The first pause.
const BACKOFF_MIN: Duration = Duration::from_millis(200);

/// Pauses after failures, growing.
#[derive(Default)]
pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) fn next(&mut self) -> Duration {
        self.0 = (self.0 * 2).clamp(BACKOFF_MIN, BACKOFF_MAX);
        self.0
    }
}
