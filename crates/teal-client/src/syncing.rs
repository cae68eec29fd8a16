//! Many who wait for durability, one barrier: a thread that commits for all of them.
//!
//! # Guarantees
//! 1. Everybody is answered exactly once, after a commit that began when he was already in the queue.
//! 2. Nobody occupies a thread of his own while he waits, so that a few request threads can gather many fsyncs.

use crate::{Client, FsError};
use parking_lot::{Condvar, Mutex};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

type Waiter = Box<dyn FnOnce(Result<(), FsError>) + Send>;

#[derive(Default)]
struct Waiting {
    waiters: Vec<Waiter>,
    running: bool,
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
        (!state.waiters.is_empty()).then(|| std::mem::take(&mut state.waiters))
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
            drop(state);
            self.syncs.changed.notify_one();
        } else {
            drop(state);
            done(self.sync());
        }
    }

    pub(crate) fn start_syncing(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let (client, queue) = (Arc::downgrade(self), Arc::clone(&self.syncs));
        self.syncs.state.lock().running = true;
        std::thread::Builder::new().name("teal-sync".into()).spawn(move || run(&client, &queue))
    }
}

fn run(client: &Weak<Client>, queue: &SyncQueue) {
    while let Some(waiters) = queue.next() {
        let Some(client) = client.upgrade() else { return };
        let result = client.sync();
        for waiter in waiters {
            waiter(result.clone());
        }
    }
}
