//! What the commit thread remembers from step to step.

use crate::pace::Rounds;
use std::thread::JoinHandle;
use std::time::Duration;

/// The thread, and what it must remember.
#[derive(Debug, Default)]
pub(crate) struct Background {
    pub(crate) threads: Vec<JoinHandle<()>>,
    pub(crate) rounds: Rounds,
    /// Bytes written by others, and when the last of them were.
    pub(crate) written: u64,
    pub(crate) since: Duration,
}
