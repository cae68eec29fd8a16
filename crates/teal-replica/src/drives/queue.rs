//! The objects that wait for a burst to a drive.

use std::collections::BTreeSet;
use std::time::Duration;
use teal_types::{ByteRanges, CommitSeq, ObjectNo};

/// The most objects in a queue. Any further one comes to the drive when it is read again.
pub(super) const QUEUE_MAX: usize = 1 << 16;

/// The objects that wait for a drive.
#[derive(Debug, Default)]
pub(crate) struct DriveQueue {
    pub(super) objects: BTreeSet<ObjectNo>,
    pub(super) bytes: u64,
    pub(super) since: Option<Duration>,
    pub(super) spoiled: Vec<(ObjectNo, CommitSeq, ByteRanges)>,
}

impl DriveQueue {
    pub(super) fn add(&mut self, no: ObjectNo, bytes: u64, now: Duration) {
        debug_assert!(self.objects.len() <= QUEUE_MAX);
        // A list that is too long loses news. The drive then keeps fewer copies, never wrong ones.
        if self.objects.len() < QUEUE_MAX {
            self.objects.insert(no);
            self.bytes += bytes;
            self.since.get_or_insert(now);
        }
    }
}
