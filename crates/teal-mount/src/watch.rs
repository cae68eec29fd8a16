//! The seam for watchers of requests, such as a recording.

use parking_lot::RwLock;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use teal_fuse::{KernelRequest, ReplySender};

/// Watches requests. Called by all workers at once, before the request is served.
pub trait RequestWatcher: Send + Sync {
    /// Takes note of a request. The returned watcher is called with the answer, just before it is
    /// sent.
    fn observe_request(&self, request: &KernelRequest<'_>) -> Option<teal_fuse::ReplyWatcher>;
}

/// The watcher, if there is one.
#[derive(Default)]
pub(crate) struct WatcherSlot {
    is_there: AtomicBool,
    /// Held while a watcher is shown a request.
    watcher: RwLock<Option<Arc<dyn RequestWatcher>>>,
}

impl fmt::Debug for WatcherSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watch").field(&self.is_there).finish()
    }
}

impl WatcherSlot {
    pub(crate) fn set(&self, watcher: Option<Arc<dyn RequestWatcher>>) {
        // Waits for requests that are being shown, so that a watcher sees none after it was taken
        // away.
        let mut present = self.watcher.write();
        self.is_there.store(watcher.is_some(), Ordering::Relaxed);
        *present = watcher;
    }

    /// Shows a request to the watcher; returns the reply to use instead.
    pub(crate) fn observe(&self, request: &KernelRequest<'_>, reply: ReplySender) -> ReplySender {
        // Without the lock while there is no watcher.
        if !self.is_there.load(Ordering::Relaxed) {
            return reply;
        }
        let told = self
            .watcher
            .read()
            .as_ref()
            .and_then(|watcher| watcher.observe_request(request));
        match told {
            Some(told) => reply.with_watcher(told),
            None => reply,
        }
    }
}
