//! Numbers of replicas, of the incarnations of their stores, and of the batches they send.
//!
//! # Guarantees
//! 1. Numbers of different kinds are different types and never convert into each other.
//! 2. Each is encoded as the bare integer inside it, on disks, between machines and in JSON.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The number of a replica in its volume. The server gives them, from 1 on; 0 stands for a replica
/// that no server knows.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct ReplicaNo(u32);

impl ReplicaNo {
    /// The number of the first replica of a volume.
    pub const FIRST: Self = Self(1);

    /// Wraps the raw number.
    pub const fn new(raw: u32) -> Self {
        Self(raw)
    }
    /// Returns the raw number, as stored and sent.
    pub const fn get(self) -> u32 {
        self.0
    }
    /// Returns the number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for ReplicaNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One life of a replica's store. A store that is a copy of one that went on gets a new one, so
/// that its batches aren't taken for those of the original.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Incarnation(u32);

impl Incarnation {
    /// The replica has no incarnation yet.
    pub const NONE: Self = Self(0);

    /// Wraps the raw number.
    pub const fn new(raw: u32) -> Self {
        Self(raw)
    }
    /// Returns the raw number, as stored and sent.
    pub const fn get(self) -> u32 {
        self.0
    }
    /// Returns whether the replica has no incarnation yet.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
    /// Returns the incarnation after this one, unless all numbers are used.
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One life of the server's history of a volume. A server that was restored from a copy begins a
/// new one.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct ServerIncarnation(u32);

impl ServerIncarnation {
    /// The client knows none yet.
    pub const NONE: Self = Self(0);
    /// The incarnation with which a volume begins; those after it are drawn by lot.
    pub const FIRST: Self = Self(1);

    /// Wraps the raw number.
    pub const fn new(raw: u32) -> Self {
        Self(raw)
    }
    /// Returns the raw number, as stored and sent.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// The number of a batch among those of its author's incarnation, counted from 1.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct BatchNo(u64);

impl BatchNo {
    /// The incarnation has no batch yet.
    pub const NONE: Self = Self(0);
    /// The first batch of an incarnation.
    pub const FIRST: Self = Self(1);

    /// Wraps the raw number.
    pub const fn new(raw: u64) -> Self {
        Self(raw)
    }
    /// Returns the raw number, as stored and sent.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// Returns whether this stands for no batch at all.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
    /// Returns the number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
    /// Returns the number before this one, which for the first batch is [`NONE`](Self::NONE).
    #[must_use]
    pub const fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl fmt::Display for BatchNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The incarnation of a replica that makes batches.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Author {
    /// The replica.
    pub replica: ReplicaNo,
    /// Its incarnation.
    pub incarnation: Incarnation,
}

impl Author {
    /// Names a batch of this author.
    pub const fn batch(self, no: BatchNo) -> BatchId {
        BatchId {
            replica: self.replica,
            incarnation: self.incarnation,
            batch: no,
        }
    }
}

/// Names a batch in its volume.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct BatchId {
    /// The replica that made it.
    pub replica: ReplicaNo,
    /// The incarnation of that replica.
    pub incarnation: Incarnation,
    /// Its number in that incarnation.
    pub batch: BatchNo,
}

impl BatchId {
    /// Returns the incarnation that made the batch.
    pub const fn author(self) -> Author {
        Author {
            replica: self.replica,
            incarnation: self.incarnation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_counted_and_end_where_their_integers_do() {
        assert_eq!(Incarnation::new(u32::MAX).next(), None);
        assert_eq!(Incarnation::NONE.next(), Some(Incarnation::new(1)));
        assert_eq!(BatchNo::NONE.next(), BatchNo::FIRST);
        assert_eq!(BatchNo::FIRST.previous(), BatchNo::NONE);
        assert!(BatchNo::NONE.previous().is_none());
        assert_eq!(ReplicaNo::FIRST.next().to_string(), "2");
    }

    #[test]
    fn a_batch_is_ordered_by_its_author_first() {
        let author = |replica, incarnation| Author {
            replica: ReplicaNo::new(replica),
            incarnation: Incarnation::new(incarnation),
        };
        let last = author(1, 1).batch(BatchNo::new(9));
        let first = author(1, 2).batch(BatchNo::FIRST);
        assert!(last < first && first < author(2, 1).batch(BatchNo::FIRST));
        assert_eq!(last.author(), author(1, 1));
    }
}
