//! What a cache above this volume must forget, and the one way on which it is told.

use std::sync::{Arc, OnceLock};
use std::time::Duration;
use teal_types::{Name, ObjectNo};

/// How long an append that was moved waits for the kernel to hear of it. The locked page may be its
/// own, which nobody can read before the answer.
const MOVED_WITHIN: Duration = Duration::from_millis(100);

/// What the kernel, or another cache of what this volume answered, must forget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invalidation {
    /// The attributes of an object.
    Attributes(ObjectNo),
    /// Its attributes and its content from an offset on, so many bytes; 0: to the end. The content
    /// of a directory is what was listed of it: a kernel that keeps that looks at it anew when the
    /// directory's time has changed, and otherwise when it is told so.
    Data(ObjectNo, u64, u64),
    /// That a file ends before this size, if it believes so. Comes after the [`Data`](Self::Data)
    /// of the same change; the file system's `kernel_raised` is to be called when it is done.
    Grown(ObjectNo, u64),
    /// What a name leads to, or that it leads nowhere.
    Entry(ObjectNo, Name),
}

/// Passes on what the kernel must forget. It is called without locks of this volume.
pub trait InvalidationSink: Send + Sync {
    /// Takes an invalidation in its order, and waits for nothing.
    fn tell(&self, what: Invalidation);

    /// Waits until the kernel has heard all that was told before, for `limit` at most: it may be
    /// waiting for a request that waits for the caller.
    fn wait_until_heard(&self, limit: Duration);
}

/// The registered sink, if there is one.
#[derive(Default)]
pub struct InvalidationChannel {
    sink: OnceLock<Arc<dyn InvalidationSink>>,
}

impl std::fmt::Debug for InvalidationChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Invalidations")
            .field("has_sink", &self.sink.get().is_some())
            .finish()
    }
}

impl InvalidationChannel {
    /// Registers the sink. Only the first call counts.
    pub fn register(&self, sink: Arc<dyn InvalidationSink>) {
        let _ = self.sink.set(sink);
    }

    /// Tells the sink.
    pub fn tell(&self, what: Invalidation) {
        if let Some(sink) = self.sink.get() {
            sink.tell(what);
        }
    }

    /// Waits until everything that was told has been heard, for `limit` at most.
    pub fn wait_until_heard(&self, limit: Duration) {
        if let Some(sink) = self.sink.get() {
            sink.wait_until_heard(limit);
        }
    }

    /// Has the kernel forget what it holds of a file of this size, which it may have heard of
    /// before the file changed.
    pub fn content_changed(&self, no: ObjectNo, size: u64) {
        self.tell(Invalidation::Data(no, 0, 0));
        self.tell(Invalidation::Grown(no, size));
    }

    /// Has the kernel forget a file in which bytes lie elsewhere than where the kernel put them.
    /// Returns when nobody can read them there. Only a page that the kernel itself keeps locked
    /// until the write is answered is left; nobody can read that either.
    pub fn content_moved(&self, no: ObjectNo, size: u64) {
        self.content_changed(no, size);
        self.wait_until_heard(MOVED_WITHIN);
    }
}
