//! Writes in the background: does what POSIX's `aio_write` does in the C library, by threads of the
//! run.
//!
//! # Guarantees
//! 1. A write belongs to the thread that asked for it, which learns of a failure at its next
//!    `aiowait`.
//! 2. Writes that have not begun when the run ends are dropped.

use super::waiting::StopFlag;
use parking_lot::{Condvar, Mutex};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use teal_env::{AlignedBuffer, BufferPool};

/// Number of threads that write for one process of the script, as in the C library.
pub(super) const WRITERS: u64 = 16;
/// Number of such threads for all processes together.
pub(super) const WRITERS_MAX: u64 = 64;
/// Bytes of memory that are kept for further writes.
const STOCK: usize = 64 << 20;
/// Time after which a wait looks whether the run is over.
const LOOK: Duration = Duration::from_millis(50);

/// Counts a thread's background writes.
#[derive(Debug, Default)]
pub(super) struct OutstandingWrites {
    /// Writes that are done since it was last asked, and the first error.
    done: Mutex<(u64, Option<Errno>)>,
    changed: Condvar,
}

impl OutstandingWrites {
    /// Waits until this number of writes is done, or the run ends; returns the number of those that
    /// are done.
    pub(super) fn reap(&self, wanted: u64, stop: &StopFlag) -> Result<u64, Errno> {
        let mut done = self.done.lock();
        while done.0 < wanted && !stop.is_set() {
            // The wait is short, because the end of the run does not wake it.
            let _ = self.changed.wait_for(&mut done, LOOK);
        }
        match done.1.take() {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut done.0)),
        }
    }
}

/// Describes one background write.
#[derive(Debug)]
pub(super) struct WriteRequest {
    pub(super) file: Arc<OwnedFd>,
    pub(super) offset: u64,
    pub(super) data: AlignedBuffer,
    pub(super) outstanding: Arc<OutstandingWrites>,
}

/// Queues writes for the writing threads.
#[derive(Debug)]
pub(super) struct WriteQueue {
    /// Guards the queue, and is never held while a write goes on.
    waiting: Mutex<VecDeque<WriteRequest>>,
    changed: Condvar,
    stock: Arc<BufferPool>,
}

impl WriteQueue {
    pub(super) fn new() -> Self {
        Self {
            waiting: Mutex::default(),
            changed: Condvar::new(),
            stock: BufferPool::new(STOCK),
        }
    }

    /// Lends memory for a write.
    pub(super) fn lend(&self, len: usize) -> AlignedBuffer {
        self.stock.lend(len)
    }

    pub(super) fn push(&self, request: WriteRequest) {
        self.waiting.lock().push_back(request);
        self.changed.notify_one();
    }

    /// Writes until the run ends.
    pub(super) fn serve(&self, stop: &StopFlag) {
        loop {
            let mut waiting = self.waiting.lock();
            // A spurious or timed wake-up finds the queue empty and waits again.
            while waiting.is_empty() && !stop.is_set() {
                let _ = self.changed.wait_for(&mut waiting, LOOK);
            }
            if stop.is_set() {
                return;
            }
            let Some(request) = waiting.pop_front() else {
                continue;
            };
            // The lock is dropped before the write, so that other threads can write at the same
            // time.
            drop(waiting);
            let written = rustix::io::pwrite(&*request.file, &request.data, request.offset);
            let mut done = request.outstanding.done.lock();
            done.0 += 1;
            if let Err(error) = written {
                done.1.get_or_insert(error);
            }
            request.outstanding.changed.notify_all();
        }
    }
}
