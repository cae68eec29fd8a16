//! A batch of this replica that history is known to hold.

use teal_types::{BatchNo, CommitSeq};

/// A batch of this replica that the server has committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CommittedBatch {
    /// The number that this replica gave it.
    pub(crate) batch: BatchNo,
    /// Its place in history.
    pub(crate) seq: CommitSeq,
}
