//! Somebody who looks on while requests are served, such as a recording.

use parking_lot::RwLock;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use teal_fuse::{Reply, Request};

/// Looks on. Called by all workers at once, before the request is served.
pub trait Watcher: Send + Sync {
    /// A request came. What is returned is told the answer, just before it is sent.
    fn saw(&self, request: &Request<'_>) -> Option<teal_fuse::Watcher>;
}

/// The watcher, if there is one.
#[derive(Default)]
pub(crate) struct Watch {
    is_there: AtomicBool,
    /// Held while a watcher is shown a request.
    watcher: RwLock<Option<Arc<dyn Watcher>>>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watch").field(&self.is_there).finish()
    }
}

impl Watch {
    pub(crate) fn set(&self, watcher: Option<Arc<dyn Watcher>>) {
        let mut present = self.watcher.write();
        self.is_there.store(watcher.is_some(), Ordering::Relaxed);
        *present = watcher;
    }

    /// Shows a request to the watcher; the reply to use instead.
    pub(crate) fn show(&self, request: &Request<'_>, reply: Reply) -> Reply {
        if !self.is_there.load(Ordering::Relaxed) {
            return reply;
        }
        let told = self
            .watcher
            .read()
            .as_ref()
            .and_then(|watcher| watcher.saw(request));
        match told {
            Some(told) => reply.watched(told),
            None => reply,
        }
    }
}
