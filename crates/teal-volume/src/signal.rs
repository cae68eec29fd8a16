//! Wakes the commit thread when something is due before its time.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The thread looks at what is due so often while a batch grows to its usual size.
const LOOKS: u64 = 4;

#[derive(Debug, Default)]
struct SignalState {
    is_due: bool,
    stop: bool,
}

/// Wakes the commit thread. A signal that comes before the wait is not lost.
#[derive(Debug, Default)]
pub struct CommitSignal {
    state: Mutex<SignalState>,
    changed: Condvar,
    /// Bytes written since the thread last looked.
    written: AtomicU64,
}

impl CommitSignal {
    /// Wakes the thread: something is due now.
    pub fn raise(&self) {
        self.state.lock().is_due = true;
        self.changed.notify_one();
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_one();
    }

    /// Sleeps until the signal is raised or the time is over, if there is one. Returns `false` when
    /// it is time to stop.
    pub fn wait(&self, at_most: Option<Duration>) -> bool {
        let mut state = self.state.lock();
        if !state.is_due && !state.stop {
            match at_most {
                Some(time) => drop(self.changed.wait_for(&mut state, time)),
                None => self.changed.wait(&mut state),
            }
        }
        state.is_due = false;
        !state.stop
    }

    /// Counts bytes that were written into a batch that may grow to `batch_bytes`, and wakes the
    /// thread now and then, so that it sees whether the batch is large, or room short.
    pub fn count_written(&self, bytes: u64, batch_bytes: u64) {
        let before = self.written.fetch_add(bytes, Ordering::Relaxed);
        let limit = batch_bytes / LOOKS;
        if before < limit && before + bytes >= limit {
            self.raise();
        }
    }

    /// Returns the bytes that were written since the last call.
    pub fn take_written(&self) -> u64 {
        self.written.swap(0, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_raised_before_the_wait_is_seen() {
        let signal = CommitSignal::default();
        signal.raise();
        assert!(signal.wait(None));
        signal.stop();
        assert!(!signal.wait(None));
    }

    #[test]
    fn a_quarter_of_a_batch_raises_the_signal_once() {
        let signal = CommitSignal::default();
        signal.count_written(20, 100);
        assert!(!signal.state.lock().is_due);
        signal.count_written(5, 100);
        assert!(std::mem::take(&mut signal.state.lock().is_due));
        signal.count_written(50, 100);
        assert!(!signal.state.lock().is_due, "the thread has been woken");
        assert_eq!((signal.take_written(), signal.take_written()), (75, 0));
    }
}
