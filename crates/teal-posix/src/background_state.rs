//! What the commit thread remembers from step to step.

use crate::cleaning_pace::RoundHistory;
use std::thread::JoinHandle;
use std::time::Duration;

/// The thread, and what it must remember.
#[derive(Debug, Default)]
pub(crate) struct BackgroundState {
    pub(crate) threads: Vec<JoinHandle<()>>,
    pub(crate) rounds: RoundHistory,
    /// Bytes written by others, and when the last of them were.
    pub(crate) written: u64,
    pub(crate) since: Duration,
}
