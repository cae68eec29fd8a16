//! Waiting for what must happen.

use std::time::Duration;
use teal_env::{Clock as _, SystemClock};

/// How long anything that must happen may take on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Polls `condition` until it holds; `false` if it does not within `limit`.
#[must_use]
pub(crate) fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = SystemClock.monotonic_time() + limit;
    while !condition() {
        if SystemClock.monotonic_time() >= end {
            return false;
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    true
}
