//! Three kinds of position, never mixed: in one local log, of an update's origin, in a volume's
//! history.

use crate::{Incarnation, ReplicaNo};
use serde::{Deserialize, Serialize};

/// A position in one local log: counts operations from the store's creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(u64);

impl Lsn {
    /// Before the first operation.
    pub const ZERO: Self = Self(0);
    /// Wraps the raw count.
    pub const fn new(raw: u64) -> Self {
        Self(raw)
    }
    /// Returns the raw count, as stored.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// Returns the position after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Names one update by its origin, so that an update made offline has its name at once.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct UpdateId {
    /// The replica that made the update.
    pub replica: ReplicaNo,
    /// Which life of that replica; a store restored from a copy starts a new one.
    pub incarnation: Incarnation,
    /// Counts the updates of that incarnation.
    pub counter: u64,
}

/// A position in a volume's history, given by the server; history's only order.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct CommitSeq(u64);

impl CommitSeq {
    /// Wraps the raw count.
    pub const fn new(raw: u64) -> Self {
        Self(raw)
    }
    /// Returns the raw count, as stored.
    pub const fn get(self) -> u64 {
        self.0
    }
}
