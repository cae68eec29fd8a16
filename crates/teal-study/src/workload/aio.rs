//! Writes that nobody waits for at once: what POSIX's `aio_write` does in the C library, by threads
//! of the run.
//!
//! # Guarantees
//! 1. A write belongs to the thread that asked for it; it learns of its failure at the next
//!    `aiowait`.
//! 2. When the run ends, what has not begun is dropped.

use super::waiting::StopFlag;
use parking_lot::{Condvar, Mutex};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use teal_env::{AlignedBuffer, BufferPool};

/// Threads that write for one process of the script, as the C library has them.
pub(super) const WRITERS: u64 = 16;
/// And for all together.
pub(super) const WRITERS_MAX: u64 = 64;
/// Memory that is kept for further writes.
const STOCK: usize = 64 << 20;
/// How long a wait lasts before it looks whether the run is over.
const LOOK: Duration = Duration::from_millis(50);

/// A thread's writes.
#[derive(Debug, Default)]
pub(super) struct OutstandingWrites {
    /// Done since it was last asked, and what went wrong first.
    done: Mutex<(u64, Option<Errno>)>,
    changed: Condvar,
}

impl OutstandingWrites {
    /// Waits until so many are done, or the run ends; says how many are.
    pub(super) fn reap(&self, wanted: u64, stop: &StopFlag) -> Result<u64, Errno> {
        let mut done = self.done.lock();
        while done.0 < wanted && !stop.is_set() {
            let _ = self.changed.wait_for(&mut done, LOOK);
        }
        match done.1.take() {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut done.0)),
        }
    }
}

/// One write.
#[derive(Debug)]
pub(super) struct WriteRequest {
    pub(super) file: Arc<OwnedFd>,
    pub(super) offset: u64,
    pub(super) data: AlignedBuffer,
    pub(super) outstanding: Arc<OutstandingWrites>,
}

/// Writes that wait for a thread.
#[derive(Debug)]
pub(super) struct WriteQueue {
    /// Nothing is done under it.
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

    /// Memory for a write.
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
            while waiting.is_empty() && !stop.is_set() {
                let _ = self.changed.wait_for(&mut waiting, LOOK);
            }
            if stop.is_set() {
                return;
            }
            let Some(request) = waiting.pop_front() else {
                continue;
            };
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
