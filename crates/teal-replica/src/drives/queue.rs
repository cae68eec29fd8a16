//! The objects that wait for a burst to a drive.

use std::collections::BTreeSet;
use std::time::Duration;
use teal_types::{ByteRanges, CommitSeq, ObjectNo};

/// So many objects wait at most: what is one more is on the drive when it is read again.
pub(super) const QUEUE_MAX: usize = 1 << 16;

/// What waits for a drive.
#[derive(Debug, Default)]
pub(crate) struct DriveQueue {
    pub(super) objects: BTreeSet<ObjectNo>,
    pub(super) bytes: u64,
    pub(super) since: Option<Duration>,
    pub(super) spoiled: Vec<(ObjectNo, CommitSeq, ByteRanges)>,
}

impl DriveQueue {
    pub(super) fn add(&mut self, no: ObjectNo, bytes: u64, now: Duration) {
        if self.objects.len() < QUEUE_MAX {
            self.objects.insert(no);
            self.bytes += bytes;
            self.since.get_or_insert(now);
        }
    }
}
