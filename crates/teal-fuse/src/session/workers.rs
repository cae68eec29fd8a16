//! How many threads serve: as many as wanted, and more while these are held up.
//!
//! # Guarantees
//! 1. *Never all held up*: while every worker is in a request, and none has ended one for
//!    [`PATIENCE`], one more is called, up to [`CREW_MAX`]. Whoever waits for a server, a disk or a
//!    lock keeps only what needs the same from being served.
//! 2. *Idle is idle*: while a worker is free nobody wakes up.
//! 3. *Back to the wanted number*: a worker that was called, and finds more free than are wanted
//!    when it has served, leaves.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// The most workers.
pub(super) const WORKERS_MAX: usize = 64;
/// Long for a request that only needs a processor.
const STUCK_AFTER: Duration = Duration::from_millis(10);

/// Who serves a session, in numbers.
#[derive(Debug)]
pub(super) struct WorkerPool {
    wanted: usize,
    workers: AtomicUsize,
    /// In a request.
    busy: AtomicUsize,
    /// Requests that have ended.
    finished: AtomicU64,
    /// Whether whoever calls more workers has been woken, and has not found a free one since.
    is_watcher_woken: AtomicBool,
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl WorkerPool {
    /// A crew of `all`, of which `wanted` are to be free to serve.
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

    /// One more serves.
    pub(super) fn add_worker(&self) {
        self.workers.fetch_add(1, SeqCst);
    }

    /// One less does.
    pub(super) fn remove_worker(&self) {
        self.workers.fetch_sub(1, SeqCst);
    }

    /// A worker has a request.
    pub(super) fn begin_request(&self) {
        let busy = self.busy.fetch_add(1, SeqCst) + 1;
        if busy >= self.workers.load(SeqCst) && !self.is_watcher_woken.swap(true, SeqCst) {
            let _is_over = self.is_over.lock();
            self.changed.notify_one();
        }
    }

    /// It has served it; whether there are more free workers than wanted.
    pub(super) fn end_request(&self) -> bool {
        self.finished.fetch_add(1, SeqCst);
        let busy = self.busy.fetch_sub(1, SeqCst) - 1;
        self.workers.load(SeqCst) > busy + self.wanted
    }

    /// The mount is gone.
    pub(super) fn mark_over(&self) {
        *self.is_over.lock() = true;
        self.changed.notify_one();
    }

    /// Calls `more` workers whenever all are held up, until the mount is gone. `more` says whether
    /// one could be had.
    pub(super) fn grow_when_stuck(&self, mut more: impl FnMut() -> bool) {
        let mut is_over = self.is_over.lock();
        let mut done = None;
        while !*is_over {
            if !self.is_watcher_woken.load(SeqCst) {
                self.changed.wait(&mut is_over);
                done = None;
                continue;
            }
            // Whoever takes the last free worker from here on wakes this again.
            self.is_watcher_woken.store(false, SeqCst);
            if self.busy.load(SeqCst) < self.workers.load(SeqCst) {
                continue;
            }
            self.is_watcher_woken.store(true, SeqCst);
            let now = self.finished.load(SeqCst);
            if done == Some(now) && self.workers.load(SeqCst) < WORKERS_MAX && more() {
                self.add_worker();
            }
            done = Some(now);
            self.changed.wait_for(&mut is_over, STUCK_AFTER);
        }
    }
}

#[cfg(test)]
mod tests;
