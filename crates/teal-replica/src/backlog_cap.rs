//! The cap of the backlog: a bound on the content that is here and not at the server.
//!
//! # Guarantees
//! 1. From three quarters of the cap on a flush is due at once.
//! 2. At the cap, which one operation may pass, a writer waits until the server has taken content:
//!    while the server can be asked, and at most for the usual deadline. Then the error is
//!    [`FsError::NoSpace`]. No acknowledged write is given up, and removing and reading go on.
//!
//! # How
//! Bytes are counted as they are written, which is too much if content is overwritten or removed.
//! So the notes are counted before a writer waits, and after a flush.

use super::Replica;
use std::time::Duration;
use teal_volume::{FsError, WRITE_STEP};

/// The time after which a waiting writer looks again.
const LOOK: Duration = Duration::from_millis(500);

impl Replica {
    /// Counts bytes that were written.
    pub(crate) fn count_queued(&self, len: u64) {
        let Some(cap) = self.options().queue else {
            return;
        };
        // The counter only grows until it is counted again.
        let before = self.backlog().add(len);
        // Only the write that crosses the mark wakes the flush.
        if !is_filling(before, cap) && is_filling(before + len, cap) {
            self.state().wake();
        }
    }

    /// Notes that the backlog may have become smaller.
    pub(crate) fn mark_backlog_rough(&self) {
        self.backlog().set_rough();
    }

    /// Returns whether a flush is due for the sake of room.
    pub(crate) fn is_filling(&self) -> bool {
        self.options()
            .queue
            .is_some_and(|cap| is_filling(self.backlog().bytes(), cap))
    }
}

fn is_filling(bytes: u64, cap: u64) -> bool {
    // At three quarters, so that writers rarely have to wait.
    bytes >= cap / 4 * 3
}

impl Replica {
    /// Counts what is only here.
    pub(crate) fn count_queue(&self) -> Result<u64, FsError> {
        self.backlog().recount(|| Ok(self.only_here()?.1))
    }

    /// Waits until so much more may be written.
    pub(crate) fn wait_until_queue_has_room(&self, len: u64) -> Result<(), FsError> {
        let Some(cap) = self.options().queue else {
            return Ok(());
        };
        let queue = &self.backlog();
        let len = len.min(WRITE_STEP as u64);
        let mut until = None;
        loop {
            let bytes = queue.bytes();
            // A write larger than the whole cap still goes, alone.
            if bytes == 0 || bytes.saturating_add(len) <= cap {
                return Ok(());
            }
            // The counter is an upper bound: it is counted before a writer waits.
            if queue.is_rough() {
                self.count_queue()?;
                continue;
            }
            // The deadline runs from the first wait.
            let now = self.monotonic();
            let until = *until.get_or_insert(now + self.options().deadline);
            if now >= until || !self.state().wait_for_flush(LOOK.min(until - now)) {
                return Err(FsError::NoSpace);
            }
        }
    }
}
