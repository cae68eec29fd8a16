//! Many who wait for durability, one barrier: a thread that commits for all of them.
//!
//! # Guarantees
//! 1. Everybody is answered exactly once, after a commit that began when he was already in the queue.
//! 2. Nobody occupies a thread of his own while he waits, so that a few request threads can gather many fsyncs.
//! 3. Who is alone never waits for others; who is not waits at most [`PATIENCE_MAX`] for those who were there just before.

use crate::{Client, FsError};
use parking_lot::{Condvar, Mutex};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// The longest wait for more who want durability too.
const PATIENCE_MAX: Duration = Duration::from_millis(5);
/// Commits' worth of time that waiting for others may take: each of them saves one.
const PATIENCE_COMMITS: u32 = 3;

type Waiter = Box<dyn FnOnce(Result<(), FsError>) + Send>;

#[derive(Default)]
struct Waiting {
    waiters: Vec<Waiter>,
    running: bool,
    /// How many there were lately: those of the last commit, and those who came during it.
    expected: usize,
    /// How long they are waited for.
    patience: Duration,
}

/// Those who wait; the lock guards the list and nothing is done under it.
#[derive(Default)]
pub(crate) struct SyncQueue {
    state: Mutex<Waiting>,
    changed: Condvar,
}

impl SyncQueue {
    /// Takes everybody who waits now, sleeping while nobody does; `None` when it is time to stop.
    fn next(&self) -> Option<Vec<Waiter>> {
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
    fn committed(&self, answered: usize, duration: Duration) {
        let mut state = self.state.lock();
        state.expected = answered + state.waiters.len();
        state.patience = (duration * PATIENCE_COMMITS).min(PATIENCE_MAX);
    }

    pub(crate) fn stop(&self) {
        self.state.lock().running = false;
        self.changed.notify_one();
    }
}

impl Client {
    /// Calls `done` when everything that happened before is durable, or could not be made so; on another thread if there is one.
    pub fn sync_then(&self, done: impl FnOnce(Result<(), FsError>) + Send + 'static) {
        let mut state = self.syncs.state.lock();
        if state.running {
            state.waiters.push(Box::new(done));
            let is_news = state.waiters.len() == 1 || state.waiters.len() >= state.expected;
            drop(state);
            if is_news {
                self.syncs.changed.notify_one();
            }
        } else {
            drop(state);
            done(self.sync());
        }
    }

    pub(crate) fn start_syncing(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let (client, queue) = (Arc::downgrade(self), Arc::clone(&self.syncs));
        self.syncs.state.lock().running = true;
        std::thread::Builder::new()
            .name("teal-sync".into())
            .spawn(move || run(&client, &queue))
    }
}

fn run(client: &Weak<Client>, queue: &SyncQueue) {
    while let Some(waiters) = queue.next() {
        let Some(client) = client.upgrade() else {
            return;
        };
        let began = client.volume.monotonic();
        let result = client.sync().and_then(|()| client.sync_at_server());
        queue.committed(
            waiters.len(),
            client.volume.monotonic().saturating_sub(began),
        );
        for waiter in waiters {
            waiter(result.clone());
        }
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
        queue.committed(2, Duration::from_micros(200));
        assert_eq!(outlook(&queue), (5, Duration::from_micros(600)));
        assert_eq!(
            queue.next().map(|group| group.len()),
            Some(3),
            "nobody else came"
        );
    }

    #[test]
    fn patience_has_a_limit_and_who_is_alone_needs_none() {
        let queue = SyncQueue::default();
        queue.committed(1, Duration::from_secs(9));
        assert_eq!(outlook(&queue), (1, PATIENCE_MAX));
        queue.state.lock().running = true;
        waiting(&queue, 1);
        assert_eq!(queue.next().map(|group| group.len()), Some(1));
    }
}
