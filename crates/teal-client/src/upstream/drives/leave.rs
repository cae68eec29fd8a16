//! What a drive gets before it is let go.
//!
//! # Guarantees
//! 1. What was changed here is sent to the server first, and copied to the drive then: drives get what the server has.
//! 2. What is left behind is said, with the reason; the drive is let go all the same.

use super::super::Replica;
use super::Attached;
use crate::{Client, FsError};
use std::sync::Arc;

/// What comes meanwhile is taken along so often before a drive is let go.
const BURSTS: u32 = 4;

impl Client {
    /// Sends what is only here to the server, as [`flush_upstream`](Self::flush_upstream) does, and copies all that waits to the drive.
    ///
    /// # Errors
    /// Why something is left behind, for people.
    pub(super) fn bring_up_to_date(&self, replica: &Replica, attached: &Arc<Attached>) -> Result<(), String> {
        let sent = self.flush_upstream();
        let left = |e: FsError| {
            let why = match e {
                FsError::Unreachable(why) => why,
                e => e.to_string(),
            };
            match self.only_here() {
                Ok((0, _)) => why,
                Ok((1, _)) => format!("one object is neither at the server nor on the drive ({why})"),
                Ok((objects, _)) => format!("{objects} objects are neither at the server nor on the drive ({why})"),
                Err(e) => format!("{why}; {e}"),
            }
        };
        if sent.is_err() && replica.state.lock().trouble.is_some() {
            // Nothing is copied while nobody knows what the server has.
            return sent.map_err(left);
        }
        let (again, now) = (attached.short_again(true), self.clock.monotonic());
        again.into_iter().for_each(|no| replica.drives.has_news_for(attached, no, 0, now));
        for _ in 0..BURSTS {
            self.burst(replica, attached).map_err(|e| e.to_string())?;
            if attached.queue.lock().objects.is_empty() {
                break;
            }
        }
        sent.map_err(left)?;
        match attached.short_of() {
            (0, _) => Ok(()),
            (1, bytes) => Err(format!("it is full, and one file with affinity ({bytes} bytes of it) is not on it")),
            (files, bytes) => {
                Err(format!("it is full, and {files} files with affinity ({bytes} bytes of them) are not on it"))
            }
        }
    }
}
