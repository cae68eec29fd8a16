//! One commit for all the requests that wait for durability: a thread that commits for them
//! together.
//!
//! # Guarantees
//! 1. Every request is answered exactly once, after a commit that began when it was already in the
//!    queue.
//! 2. A waiting request occupies no thread of its own, so that a few request threads can gather
//!    many fsyncs.
//! 3. A request that is alone never waits for others; any other waits at most
//!    [`PATIENCE_MAX`](crate::sync_queue::PATIENCE_MAX) for those that were there just before.

use crate::FileSystem;
use crate::sync_queue::SyncQueue;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use teal_volume::FsError;

impl FileSystem {
    /// Calls `done` when everything that happened before is durable, or could not be made so; on
    /// another thread if there is one.
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
        let (file_system, queue) = (Arc::downgrade(self), Arc::clone(&self.syncs));
        self.syncs.state.lock().running = true;
        std::thread::Builder::new()
            .name("teal-sync".into())
            .spawn(move || run(&file_system, &queue))
    }
}

fn run(file_system: &Weak<FileSystem>, queue: &SyncQueue) {
    while let Some(waiters) = queue.next_group() {
        let Some(file_system) = file_system.upgrade() else {
            return;
        };
        let began = file_system.volume.monotonic();
        let result = file_system
            .sync()
            .and_then(|()| file_system.sync_at_server());
        queue.note_commit(
            waiters.len(),
            file_system.volume.monotonic().saturating_sub(began),
        );
        for waiter in waiters {
            waiter(result.clone());
        }
    }
}
