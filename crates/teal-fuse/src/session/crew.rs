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
pub(super) const CREW_MAX: usize = 64;
/// Long for a request that only needs a processor.
const PATIENCE: Duration = Duration::from_millis(10);

/// Who serves a session, in numbers.
#[derive(Debug)]
pub(super) struct Crew {
    wanted: usize,
    all: AtomicUsize,
    /// In a request.
    busy: AtomicUsize,
    /// Requests that have ended.
    done: AtomicU64,
    /// Whether whoever calls more workers has been woken, and has not found a free one since.
    is_alarmed: AtomicBool,
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl Crew {
    /// A crew of `all`, of which `wanted` are to be free to serve.
    pub(super) fn new(wanted: usize) -> Self {
        Self {
            wanted,
            all: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            done: AtomicU64::new(0),
            is_alarmed: AtomicBool::new(false),
            is_over: Mutex::new(false),
            changed: Condvar::new(),
        }
    }

    /// One more serves.
    pub(super) fn join(&self) {
        self.all.fetch_add(1, SeqCst);
    }

    /// One less does.
    pub(super) fn leave(&self) {
        self.all.fetch_sub(1, SeqCst);
    }

    /// A worker has a request.
    pub(super) fn begin(&self) {
        let busy = self.busy.fetch_add(1, SeqCst) + 1;
        if busy >= self.all.load(SeqCst) && !self.is_alarmed.swap(true, SeqCst) {
            let _is_over = self.is_over.lock();
            self.changed.notify_one();
        }
    }

    /// It has served it; whether there are more free workers than wanted.
    pub(super) fn end(&self) -> bool {
        self.done.fetch_add(1, SeqCst);
        let busy = self.busy.fetch_sub(1, SeqCst) - 1;
        self.all.load(SeqCst) > busy + self.wanted
    }

    /// The mount is gone.
    pub(super) fn is_over(&self) {
        *self.is_over.lock() = true;
        self.changed.notify_one();
    }

    /// Calls `more` workers whenever all are held up, until the mount is gone. `more` says whether
    /// one could be had.
    pub(super) fn watch(&self, mut more: impl FnMut() -> bool) {
        let mut is_over = self.is_over.lock();
        let mut done = None;
        while !*is_over {
            if !self.is_alarmed.load(SeqCst) {
                self.changed.wait(&mut is_over);
                done = None;
                continue;
            }
            // Whoever takes the last free worker from here on wakes this again.
            self.is_alarmed.store(false, SeqCst);
            if self.busy.load(SeqCst) < self.all.load(SeqCst) {
                continue;
            }
            self.is_alarmed.store(true, SeqCst);
            let now = self.done.load(SeqCst);
            if done == Some(now) && self.all.load(SeqCst) < CREW_MAX && more() {
                self.join();
            }
            done = Some(now);
            self.changed.wait_for(&mut is_over, PATIENCE);
        }
    }
}

#[cfg(test)]
mod tests;
