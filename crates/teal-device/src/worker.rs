//! The thread that serves a drive's requests, each with a deadline.
//!
//! # Guarantees
//! 1. [`DriveWorker::run_with_deadline`] returns within its deadline, whatever the work does: work
//!    that hangs
//!    holds up the worker's thread only.
//! 2. While work is late, further requests fail at once instead of waiting behind it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

/// The number of requests that may wait for their turn; one more fails at once.
const WAITING_MAX: usize = 32;

type WorkItem = Box<dyn FnOnce() + Send>;

/// A thread that serves requests for callers that don't wait longer than they say. See the module.
#[derive(Debug)]
pub struct DriveWorker {
    queue: SyncSender<WorkItem>,
    /// The number of work items that their callers have given up and that are not done yet.
    late_items: Arc<AtomicU64>,
}

impl DriveWorker {
    /// Starts a thread of this name. It ends when the worker is dropped and the work under way has
    /// ended.
    ///
    /// # Errors
    /// The system can't start a thread.
    pub fn new(name: &str) -> io::Result<Self> {
        // Bounded: a caller that finds it full fails at once.
        let (queue, items) = sync_channel::<WorkItem>(WAITING_MAX);
        let serve = move || {
            for item in items {
                item();
            }
        };
        std::thread::Builder::new().name(name.into()).spawn(serve)?;
        Ok(Self {
            queue,
            late_items: Arc::default(),
        })
    }

    /// Returns whether work that its caller has given up is still under way.
    pub fn is_late(&self) -> bool {
        self.late_items.load(Ordering::Acquire) > 0
    }

    /// Runs `work` on the worker's thread, and returns its result; `None` if it isn't done by the
    /// deadline.
    pub fn run_with_deadline<T: Send + 'static>(
        &self,
        deadline: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        // Work behind an item that hangs would hang with it.
        if self.is_late() {
            return None;
        }
        let (answer, answered) = sync_channel(1);
        // Set by the first of two: the work that ends, and the caller that gives up. The second
        // undoes the count.
        let is_over = Arc::new(AtomicBool::new(false));
        let late_items = Arc::clone(&self.late_items);
        let is_over_for_worker = Arc::clone(&is_over);
        let item = Box::new(move || {
            // The caller may be gone: then the answer is dropped.
            let _ = answer.send(work());
            if is_over_for_worker.swap(true, Ordering::AcqRel) {
                let before = late_items.fetch_sub(1, Ordering::AcqRel);
                debug_assert!(before > 0, "an item is late that was never counted");
            }
        });
        self.queue.try_send(item).ok()?;
        if let Ok(result) = answered.recv_timeout(deadline) {
            return Some(result);
        }
        // Counts before it looks whether the work has ended, so that the worker never undoes a
        // count that isn't there yet.
        self.late_items.fetch_add(1, Ordering::AcqRel);
        if !is_over.swap(true, Ordering::AcqRel) {
            return None;
        }
        // The work ended between the deadline and here: its result counts.
        self.late_items.fetch_sub(1, Ordering::AcqRel);
        answered.recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn work_that_hangs_holds_up_no_caller() {
        let worker = DriveWorker::new("test").unwrap();
        assert_eq!(worker.run_with_deadline(LONG, || 1), Some(1));
        let (go, gone) = channel::<()>();
        assert_eq!(
            worker.run_with_deadline(Duration::from_millis(1), move || gone.recv().is_ok()),
            None
        );
        assert!(worker.is_late());
        assert_eq!(worker.run_with_deadline(LONG, || 2), None, "at once");
        drop(go);
        while worker.is_late() {
            std::thread::yield_now();
        }
        assert_eq!(worker.run_with_deadline(LONG, || 3), Some(3));
    }
}
