//! The number of threads that serve: as many as wanted, and more while these are held up.
//!
//! # Guarantees
//! 1. *Never all held up*: while every worker is in a request, and none has ended one for
//!    [`STUCK_AFTER`], one more is started, up to [`WORKERS_MAX`]. A request that waits for a
//!    server, a disk or a lock holds up only requests that need the same.
//! 2. *Idle is idle*: while a worker is free, no thread wakes up.
//! 3. *Back to the wanted number*: an extra worker that finds more free workers than are wanted,
//!    after it has served a request, ends.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// The most workers.
pub(super) const WORKERS_MAX: usize = 64;
/// A long time for a request that only needs a processor.
const STUCK_AFTER: Duration = Duration::from_millis(10);

/// The numbers of workers of a session.
/// The kind of a worker, which decides when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkerKind {
    /// Serves until the mount is gone.
    Permanent,
    /// Was started while all others were held up, and ends when there are too many.
    Extra,
}

#[derive(Debug)]
pub(super) struct WorkerPool {
    wanted: usize,
    workers: AtomicUsize,
    /// The number of workers that are in a request.
    busy: AtomicUsize,
    /// The number of requests that have ended.
    finished: AtomicU64,
    /// True if the watching thread has been woken, and has not found a free worker since.
    is_watcher_woken: AtomicBool,
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl WorkerPool {
    /// Makes a pool without workers, of which `wanted` are to be free to serve.
    pub(super) fn new(wanted: usize) -> Self {
        Self {
            wanted,
            workers: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            finished: AtomicU64::new(0),
            is_watcher_woken: AtomicBool::new(false),
            is_over: Mutex::new(false),
            changed: Condvar::new(),
        }
    }

    /// Counts one more worker.
    pub(super) fn add_worker(&self) {
        self.workers.fetch_add(1, SeqCst);
    }

    /// Counts one worker less.
    pub(super) fn remove_worker(&self) {
        let before = self.workers.fetch_sub(1, SeqCst);
        debug_assert!(before > 0, "a worker left that was never counted");
    }

    /// Notes that a worker has a request, and wakes the watching thread if it was the last free
    /// one.
    pub(super) fn begin_request(&self) {
        let busy = self.busy.fetch_add(1, SeqCst) + 1;
        if busy >= self.workers.load(SeqCst) && !self.is_watcher_woken.swap(true, SeqCst) {
            // The lock makes the watching thread either see the flag or be asleep already: a
            // notification between the two would be lost.
            let _is_over = self.is_over.lock();
            self.changed.notify_one();
        }
    }

    /// Notes that a worker has served its request. Returns whether there are more free workers than
    /// wanted.
    pub(super) fn end_request(&self) -> bool {
        self.finished.fetch_add(1, SeqCst);
        let before = self.busy.fetch_sub(1, SeqCst);
        debug_assert!(before > 0, "a request ended that never began");
        self.workers.load(SeqCst) > before - 1 + self.wanted
    }

    /// Notes that the mount is gone, which ends the watching thread.
    pub(super) fn mark_over(&self) {
        // Under the lock, as above.
        *self.is_over.lock() = true;
        self.changed.notify_one();
    }

    /// Starts a worker through `start_worker`, which returns whether one could be had, whenever all
    /// are held up; returns when the mount is gone.
    pub(super) fn grow_when_stuck(&self, mut start_worker: impl FnMut() -> bool) {
        let mut is_over = self.is_over.lock();
        // The count of ended requests at the last look, if all workers were busy then.
        let mut finished_before = None;
        while !*is_over {
            // Sleeps without a time-out while a worker is free.
            if !self.is_watcher_woken.load(SeqCst) {
                self.changed.wait(&mut is_over);
                finished_before = None;
                continue;
            }
            // A request that takes the last free worker from here on wakes this thread again.
            self.is_watcher_woken.store(false, SeqCst);
            if self.busy.load(SeqCst) < self.workers.load(SeqCst) {
                continue;
            }
            self.is_watcher_woken.store(true, SeqCst);
            // All are busy, and stuck if no request has ended since the last look.
            let finished = self.finished.load(SeqCst);
            let is_stuck = finished_before == Some(finished);
            if is_stuck && self.workers.load(SeqCst) < WORKERS_MAX && start_worker() {
                self.add_worker();
            }
            finished_before = Some(finished);
            // Looks again after the time in which a request that only needs a processor has ended.
            self.changed.wait_for(&mut is_over, STUCK_AFTER);
        }
    }
}

#[cfg(test)]
mod tests;
