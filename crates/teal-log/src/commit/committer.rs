//! The state of the one committer: where the chain stands, what it has written and what is durable.

use crate::commit::layout::{Chain, NoRoom};
use crate::commit::witness::Witness;
use crate::error::StoreError;
use std::time::Duration;

/// Where the chain stands; guarded by the store's `commit` lock, which is held across the I/O of a commit.
#[derive(Debug)]
pub(crate) struct Committer {
    pub(crate) chain: Chain,
    /// Whether this opening has written its epoch record.
    pub(crate) epoch_written: bool,
    /// The last checkpoint sealed.
    pub(crate) checkpoint: u64,
    /// The last checkpoint whose anchor is durable.
    pub(crate) anchored: u64,
    /// Which slot of each place was written last.
    pub(crate) slots: Vec<u64>,
    /// Bytes of log since the last checkpoint.
    pub(crate) log_bytes: u64,
    /// Monotonic time of the first commit after it.
    pub(crate) since: Option<Duration>,
    /// Monotonic time of the first operation in a batch that is written and not yet durable.
    pub(crate) unsynced_since: Option<Duration>,
    pub(crate) closed: bool,
    /// Whether the last record before this opening says that a machine has the store open.
    pub(crate) is_marked: bool,
    /// What lay where this opening writes first; `None` once it has written, or if it does not mark the store.
    pub(crate) seen: Option<Witness>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Batch,
    /// A batch whose barrier comes later.
    Written,
    Checkpoint,
    Empty(u16),
}

pub(crate) enum SealError {
    Store(StoreError),
    NoRoom,
}

impl From<NoRoom> for SealError {
    fn from(_: NoRoom) -> Self {
        Self::NoRoom
    }
}
impl From<StoreError> for SealError {
    fn from(e: StoreError) -> Self {
        Self::Store(e)
    }
}
