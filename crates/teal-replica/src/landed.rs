//! A batch of this replica that the server has committed.

use teal_types::CommitSeq;

/// A batch of this replica that history is known to hold: its counter and its place.
pub(crate) type Landed = Option<(u64, CommitSeq)>;
