//! A thread that works for others, who do not wait longer than they want to.
//!
//! # Guarantees
//! 1. [`Hand::ask`] returns within its deadline, whatever the work does; work that hangs hangs alone.
//! 2. While work is late, nobody begins to wait for more.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

/// Pieces of work that may wait for their turn; whoever comes then is told at once that it is late.
const WAITING_MAX: usize = 32;

type Work = Box<dyn FnOnce() + Send>;

/// See the module.
#[derive(Debug)]
pub struct Hand {
    work: SyncSender<Work>,
    /// Pieces of work that somebody stopped waiting for, and that are not done yet.
    late: Arc<AtomicU64>,
}

impl Hand {
    /// A thread of this name. It ends with this, or when the work that hangs ends.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn new(name: &str) -> io::Result<Self> {
        let (work, todo) = sync_channel::<Work>(WAITING_MAX);
        std::thread::Builder::new()
            .name(name.into())
            .spawn(move || todo.into_iter().for_each(|work| work()))?;
        Ok(Self {
            work,
            late: Arc::default(),
        })
    }

    /// Whether it has not come back from what it was asked.
    pub fn is_late(&self) -> bool {
        self.late.load(Ordering::Acquire) > 0
    }

    /// Has work done, and waits for what comes of it; `None`: not in time.
    pub fn ask<T: Send + 'static>(
        &self,
        deadline: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if self.is_late() {
            return None;
        }
        let (answer, answered) = sync_channel(1);
        let (late, ended) = (Arc::clone(&self.late), Arc::new(AtomicBool::new(false)));
        let other = Arc::clone(&ended);
        let work = Box::new(move || {
            let _ = answer.send(work());
            // The second of the two to come here knows of the other.
            if other.swap(true, Ordering::AcqRel) {
                late.fetch_sub(1, Ordering::AcqRel);
            }
        });
        self.work.try_send(work).ok()?;
        if let Ok(done) = answered.recv_timeout(deadline) {
            return Some(done);
        }
        self.late.fetch_add(1, Ordering::AcqRel);
        if !ended.swap(true, Ordering::AcqRel) {
            return None;
        }
        // It came just now.
        self.late.fetch_sub(1, Ordering::AcqRel);
        answered.recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn work_that_hangs_makes_nobody_wait() {
        let hand = Hand::new("test").unwrap();
        assert_eq!(hand.ask(LONG, || 1), Some(1));
        let (go, gone) = channel::<()>();
        assert_eq!(
            hand.ask(Duration::from_millis(1), move || gone.recv().is_ok()),
            None
        );
        assert!(hand.is_late());
        assert_eq!(hand.ask(LONG, || 2), None, "at once");
        drop(go);
        while hand.is_late() {
            std::thread::yield_now();
        }
        assert_eq!(hand.ask(LONG, || 3), Some(3));
    }
}
