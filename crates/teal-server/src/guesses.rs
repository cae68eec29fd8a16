//! Wrong tokens of late: guessing ends before it gets anywhere.

use crate::limits::{GUESS_WINDOW, GUESSES_MAX};
use std::time::Duration;

/// Counts wrong tokens in the present window.
#[derive(Debug, Default)]
pub(crate) struct TokenGuesses {
    since: Duration,
    wrong: usize,
}

impl TokenGuesses {
    /// Returns whether tokens are looked at now.
    pub(crate) fn is_open(&mut self, now: Duration) -> bool {
        if now.saturating_sub(self.since) >= GUESS_WINDOW {
            *self = Self {
                since: now,
                wrong: 0,
            };
        }
        self.wrong < GUESSES_MAX
    }

    pub(crate) fn record_wrong(&mut self) {
        self.wrong += 1;
    }
}
