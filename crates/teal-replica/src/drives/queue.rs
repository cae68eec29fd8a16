//! The objects that wait for a burst to a drive, and the thread that waits for them.
//!
//! # Invariants
//! 1. What is taken for a burst that fails comes back.
//! 2. At most [`QUEUE_MAX`] objects wait.
//! 3. A drive that was let go is never used again, and no thread waits for it.

use crate::seeded::{Bug, bug};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use teal_types::{ByteRanges, CommitSeq, ObjectNo};

/// The most objects in a queue. Any further one comes to the drive when it is read again.
pub(super) const QUEUE_MAX: usize = 1 << 16;
/// Bytes in the queue that make a burst due.
const BURST: u64 = 8 << 20;

/// The objects that wait for a drive.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) objects: BTreeSet<ObjectNo>,
    bytes: u64,
    since: Option<Duration>,
    /// Damaged content that is to be given up.
    pub(super) spoiled: Vec<(ObjectNo, CommitSeq, ByteRanges)>,
}

impl Waiting {
    fn add(&mut self, no: ObjectNo, bytes: u64, now: Duration) {
        debug_assert!(self.objects.len() <= QUEUE_MAX);
        // A list that is too long loses news. The drive then keeps fewer copies, never wrong ones.
        if self.objects.len() < QUEUE_MAX {
            self.objects.insert(no);
            self.bytes += bytes;
            self.since.get_or_insert(now);
        }
    }
}

/// See the module. The lock is a leaf.
#[derive(Debug, Default)]
pub(super) struct BurstQueue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// Objects that the burst under way has not come to yet.
    ahead: AtomicU64,
    is_gone: AtomicBool,
}

impl BurstQueue {
    /// Adds an object of which so much is to be copied.
    pub(super) fn add(&self, no: ObjectNo, bytes: u64, now: Duration) {
        self.waiting.lock().add(no, bytes, now);
        self.changed.notify_all();
    }

    /// Adds damaged content, which is to be given up and copied again.
    pub(super) fn add_spoiled(
        &self,
        no: ObjectNo,
        data_seq: CommitSeq,
        spoiled: &ByteRanges,
        now: Duration,
    ) {
        let mut waiting = self.waiting.lock();
        if !bug(Bug::SpoiledKept) {
            waiting.spoiled.push((no, data_seq, spoiled.clone()));
        }
        waiting.add(no, 0, now);
        drop(waiting);
        self.changed.notify_all();
    }

    /// Takes all that waits, for a burst.
    pub(super) fn take(&self) -> Waiting {
        let taken = std::mem::take(&mut *self.waiting.lock());
        self.set_ahead(taken.objects.len());
        taken
    }

    /// Ends a burst: what it had taken waits again if it failed.
    pub(super) fn end_burst(&self, taken: Waiting, is_done: bool, now: Duration) {
        self.set_ahead(0);
        if is_done {
            return;
        }
        let mut waiting = self.waiting.lock();
        taken.objects.iter().for_each(|no| waiting.add(*no, 0, now));
        waiting.spoiled.extend(taken.spoiled);
    }

    /// Notes how many objects the burst under way has still to come to.
    pub(super) fn set_ahead(&self, objects: usize) {
        self.ahead.store(objects as u64, Ordering::Relaxed);
    }

    /// Notes that the burst under way has come to one more.
    pub(super) fn pass_one(&self) {
        self.ahead.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns how many objects wait, those of the burst under way included, and the bytes of the
    /// others, as far as known.
    pub(super) fn len(&self) -> (u64, u64) {
        let waiting = self.waiting.lock();
        let objects = waiting.objects.len() as u64 + self.ahead.load(Ordering::Relaxed);
        (objects, waiting.bytes)
    }

    /// Returns whether no object waits for the next burst.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.lock().objects.is_empty()
    }

    /// Returns whether an object waits for the next burst.
    pub(super) fn contains(&self, no: ObjectNo) -> bool {
        self.waiting.lock().objects.contains(&no)
    }

    /// Returns how long until a burst is due; `None`: until something comes.
    pub(super) fn due_in(&self, now: Duration, age: Duration) -> Option<Duration> {
        let waiting = self.waiting.lock();
        let since = waiting.since?;
        Some(if waiting.bytes >= BURST {
            Duration::ZERO
        } else {
            (since + age).saturating_sub(now)
        })
    }

    /// Waits for something to come; `false` when the drive was let go.
    pub(super) fn wait(&self, at_most: Option<Duration>) -> bool {
        let mut waiting = self.waiting.lock();
        if !self.is_gone() {
            match at_most {
                Some(time) => drop(self.changed.wait_for(&mut waiting, time)),
                None => self.changed.wait(&mut waiting),
            }
        }
        !self.is_gone()
    }

    /// Lets the drive go: it is not used any more. Returns whether it was in use.
    pub(super) fn let_go(&self) -> bool {
        let waiting = self.waiting.lock();
        let was_used = !self.is_gone.swap(true, Ordering::AcqRel);
        drop(waiting);
        self.changed.notify_all();
        was_used
    }

    /// Returns whether the drive was let go.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Duration = Duration::from_secs(30);

    fn no(no: u64) -> ObjectNo {
        ObjectNo::new(no)
    }

    #[test]
    fn a_burst_is_due_by_age_or_by_size() {
        let (queue, now) = (BurstQueue::default(), Duration::from_secs(5));
        assert_eq!(queue.due_in(now, AGE), None);
        queue.add(no(7), 100, now);
        assert_eq!(queue.due_in(now + AGE / 2, AGE), Some(AGE / 2));
        queue.add(no(8), BURST, now + AGE / 2);
        assert_eq!(queue.due_in(now + AGE / 2, AGE), Some(Duration::ZERO));
        assert_eq!(queue.len(), (2, 100 + BURST));
    }

    #[test]
    fn what_a_burst_that_fails_had_taken_waits_again() {
        let (queue, now) = (BurstQueue::default(), Duration::ZERO);
        queue.add(no(7), 1, now);
        queue.add_spoiled(no(8), CommitSeq::new(1), &ByteRanges::default(), now);
        let taken = queue.take();
        assert!(
            queue.is_empty() && queue.len().0 == 2,
            "they are on their way"
        );
        queue.end_burst(taken, false, now);
        assert!(queue.contains(no(7)) && queue.contains(no(8)));
        let taken = queue.take();
        assert_eq!(taken.spoiled.len(), 1);
        queue.end_burst(taken, true, now);
        assert_eq!(queue.len(), (0, 0));
    }

    #[test]
    fn a_drive_is_let_go_once_and_no_thread_waits_for_it() {
        let queue = std::sync::Arc::new(BurstQueue::default());
        let waits = {
            let queue = std::sync::Arc::clone(&queue);
            std::thread::Builder::new()
                .spawn(move || queue.wait(None))
                .unwrap()
        };
        assert!(queue.let_go() && !queue.let_go());
        assert!(!waits.join().unwrap() && queue.is_gone());
    }

    #[test]
    fn the_queue_is_bounded() {
        let queue = BurstQueue::default();
        for at in 0..QUEUE_MAX as u64 + 2 {
            queue.add(no(at), 1, Duration::ZERO);
        }
        assert_eq!(queue.len().0, QUEUE_MAX as u64);
    }
}
