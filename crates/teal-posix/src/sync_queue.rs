//! The requests that wait for one commit together.

use parking_lot::{Condvar, Mutex};
use std::time::Duration;
use teal_volume::FsError;

/// The longest wait for more who want durability too.
pub(crate) const PATIENCE_MAX: Duration = Duration::from_millis(5);

/// Commits' worth of time that waiting for others may take: each of them saves one.
const PATIENCE_COMMITS: u32 = 3;

/// Is called with the result of the commit.
pub(crate) type Waiter = Box<dyn FnOnce(Result<(), FsError>) + Send>;

#[derive(Default)]
pub(crate) struct SyncQueueState {
    pub(crate) waiters: Vec<Waiter>,
    pub(crate) running: bool,
    /// How many there were lately: those of the last commit, and those who came during it.
    pub(crate) expected: usize,
    /// How long they are waited for.
    pub(crate) patience: Duration,
}

/// Those who wait; the lock guards the list and nothing is done under it.
#[derive(Default)]
pub(crate) struct SyncQueue {
    pub(crate) state: Mutex<SyncQueueState>,
    pub(crate) changed: Condvar,
}

impl SyncQueue {
    /// Takes everybody who waits now, sleeping while nobody does; `None` when it is time to stop.
    pub(crate) fn next_group(&self) -> Option<Vec<Waiter>> {
        let mut state = self.state.lock();
        while state.waiters.is_empty() && state.running {
            self.changed.wait(&mut state);
        }
        // One wait, whoever wakes it: either all have come, or the time is over.
        if state.waiters.len() < state.expected && state.running {
            let patience = state.patience;
            self.changed.wait_for(&mut state, patience);
        }
        (!state.waiters.is_empty()).then(|| std::mem::take(&mut state.waiters))
    }

    /// Notes a commit for `answered` that took `duration`.
    pub(crate) fn note_commit(&self, answered: usize, duration: Duration) {
        let mut state = self.state.lock();
        state.expected = answered + state.waiters.len();
        state.patience = (duration * PATIENCE_COMMITS).min(PATIENCE_MAX);
    }

    pub(crate) fn stop(&self) {
        self.state.lock().running = false;
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(queue: &SyncQueue, n: usize) {
        queue
            .state
            .lock()
            .waiters
            .extend((0..n).map(|_| Box::new(|_| ()) as Waiter));
    }

    fn outlook(queue: &SyncQueue) -> (usize, Duration) {
        let state = queue.state.lock();
        (state.expected, state.patience)
    }

    #[test]
    fn who_came_during_a_commit_is_expected_with_those_it_answered() {
        let queue = SyncQueue::default();
        waiting(&queue, 3);
        queue.note_commit(2, Duration::from_micros(200));
        assert_eq!(outlook(&queue), (5, Duration::from_micros(600)));
        assert_eq!(
            queue.next_group().map(|group| group.len()),
            Some(3),
            "nobody else came"
        );
    }

    #[test]
    fn patience_has_a_limit_and_who_is_alone_needs_none() {
        let queue = SyncQueue::default();
        queue.note_commit(1, Duration::from_secs(9));
        assert_eq!(outlook(&queue), (1, PATIENCE_MAX));
        queue.state.lock().running = true;
        waiting(&queue, 1);
        assert_eq!(queue.next_group().map(|group| group.len()), Some(1));
    }
}
