//! The queue's cap: how much content may be here and not at the server.
//!
//! # Guarantees
//! 1. From three quarters of the cap on a flush is due at once.
//! 2. At the cap, which one operation may pass, whoever writes waits for the server to take what
//!    there is: while it can be asked, and at most the usual deadline. Then it is
//!    [`FsError::NoSpace`]. Nothing that was answered is given up, and removing and reading go on.
//!
//! # How
//! What is written is counted as it comes, which is too much where something is overwritten or
//! removed; so before anybody waits, and after a flush, the notes are counted.

use super::Replica;
use std::time::Duration;
use teal_volume::{FsError, WRITE_STEP};

/// How long a writer waits before it looks again.
const LOOK: Duration = Duration::from_millis(500);

impl Replica {
    /// So much was written.
    pub(crate) fn count_queued(&self, len: u64) {
        let Some(cap) = self.options().queue else {
            return;
        };
        let before = self.backlog().add(len);
        if !is_filling(before, cap) && is_filling(before + len, cap) {
            self.state().wake();
        }
    }

    /// Some of it may have gone.
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
        let (queue, len) = (&self.backlog(), len.min(WRITE_STEP as u64));
        let mut until = None;
        loop {
            let bytes = queue.bytes();
            if bytes == 0 || bytes.saturating_add(len) <= cap {
                return Ok(());
            }
            if queue.is_rough() {
                self.count_queue()?;
                continue;
            }
            let now = self.monotonic();
            let until = *until.get_or_insert(now + self.options().deadline);
            if now >= until || !self.state().wait_for_flush(LOOK.min(until - now)) {
                return Err(FsError::NoSpace);
            }
        }
    }
}
