//! What the server has done, for people.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use teal_proto::Request;

/// Kinds of requests, in the order of the protocol.
pub const REQUEST_KINDS: [&str; 16] = [
    "hello",
    "incarnate",
    "pull",
    "have",
    "put",
    "stage",
    "commit",
    "list",
    "look",
    "read",
    "conflicts",
    "resolve",
    "history",
    "read_past",
    "bye",
    "keep",
];

/// What a server has done since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests, by [`REQUEST_KINDS`].
    pub requests: [u64; 16],
    /// Requests that were refused.
    pub refused: u64,
    /// Batches committed.
    pub commits: u64,
    /// Operations of these.
    pub ops: u64,
    /// Conflicts they met.
    pub conflicts: u64,
    /// Bytes of chunks that came.
    pub received_bytes: u64,
    /// Bytes of content that went out.
    pub sent_bytes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    requests: [AtomicU64; 16],
    refused: AtomicU64,
    commits: AtomicU64,
    ops: AtomicU64,
    conflicts: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
}

const fn kind(request: &Request) -> usize {
    match request {
        Request::Hello(_) => 0,
        Request::Incarnate => 1,
        Request::Pull { .. } => 2,
        Request::Have { .. } => 3,
        Request::Put { .. } => 4,
        Request::Stage { .. } => 5,
        Request::Commit { .. } => 6,
        Request::List { .. } => 7,
        Request::Look { .. } => 8,
        Request::Read { .. } => 9,
        Request::Conflicts { .. } => 10,
        Request::Resolve { .. } => 11,
        Request::History { .. } => 12,
        Request::ReadPast { .. } => 13,
        Request::Bye => 14,
        Request::Keep { .. } => 15,
    }
}

impl Counters {
    pub(crate) fn asked(&self, request: &Request) {
        self.requests[kind(request)].fetch_add(1, Relaxed);
    }
    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }
    pub(crate) fn committed(&self, ops: usize, conflicts: usize) {
        self.commits.fetch_add(1, Relaxed);
        self.ops.fetch_add(ops as u64, Relaxed);
        self.conflicts.fetch_add(conflicts as u64, Relaxed);
    }
    pub(crate) fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Relaxed);
    }
    pub(crate) fn sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Relaxed);
    }
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            requests: std::array::from_fn(|kind| self.requests[kind].load(Relaxed)),
            refused: self.refused.load(Relaxed),
            commits: self.commits.load(Relaxed),
            ops: self.ops.load(Relaxed),
            conflicts: self.conflicts.load(Relaxed),
            received_bytes: self.received.load(Relaxed),
            sent_bytes: self.sent.load(Relaxed),
        }
    }
}
