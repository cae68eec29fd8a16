//! The counters of the server.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use teal_proto::{ClientRequest, REQUEST_KINDS};

/// The numbers of requests, commits and bytes since a server was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// Requests, by [`REQUEST_KINDS`].
    pub requests: [u64; REQUEST_KINDS.len()],
    /// Requests that were refused.
    pub refused: u64,
    /// Batches committed.
    pub commits: u64,
    /// Operations of these.
    pub ops: u64,
    /// Conflicts they met.
    pub conflicts: u64,
    /// Directories passed on the way up, to see that none is put into itself.
    pub ancestor_steps: u64,
    /// Bytes of chunks that came.
    pub received_bytes: u64,
    /// Bytes of content that went out.
    pub sent_bytes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct ServerCounters {
    requests: [AtomicU64; REQUEST_KINDS.len()],
    refused: AtomicU64,
    commits: AtomicU64,
    ops: AtomicU64,
    conflicts: AtomicU64,
    ancestor_steps: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
}

impl ServerCounters {
    pub(crate) fn count_request(&self, request: &ClientRequest) {
        self.requests[request.kind()].fetch_add(1, Relaxed);
    }
    pub(crate) fn count_refusal(&self) {
        self.refused.fetch_add(1, Relaxed);
    }
    pub(crate) fn count_commit(&self, ops: usize, conflicts: usize, ancestor_steps: u64) {
        self.commits.fetch_add(1, Relaxed);
        self.ops.fetch_add(ops as u64, Relaxed);
        self.conflicts.fetch_add(conflicts as u64, Relaxed);
        self.ancestor_steps.fetch_add(ancestor_steps, Relaxed);
    }
    pub(crate) fn count_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Relaxed);
    }
    pub(crate) fn count_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Relaxed);
    }
    pub(crate) fn snapshot(&self) -> ServerCounts {
        ServerCounts {
            requests: std::array::from_fn(|kind| self.requests[kind].load(Relaxed)),
            refused: self.refused.load(Relaxed),
            commits: self.commits.load(Relaxed),
            ops: self.ops.load(Relaxed),
            conflicts: self.conflicts.load(Relaxed),
            ancestor_steps: self.ancestor_steps.load(Relaxed),
            received_bytes: self.received.load(Relaxed),
            sent_bytes: self.sent.load(Relaxed),
        }
    }
}
