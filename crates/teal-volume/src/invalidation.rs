//! Invalidations: the facts that a cache above this volume must forget, and the channel that
//! carries them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;
use teal_types::{Name, ObjectNo};

/// The longest time that a moved append waits for the kernel to hear of it. The locked page may be
/// the append's own, which no program can read before the answer.
const MOVED_WITHIN: Duration = Duration::from_millis(100);

/// A fact that the kernel, or another cache above this volume, must forget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invalidation {
    /// The attributes of an object.
    Attributes(ObjectNo),
    /// Its attributes and its content from an offset on, so many bytes; 0: to the end. The content
    /// of a directory is what was listed of it: a kernel that keeps that looks at it anew when the
    /// directory's time has changed, and otherwise when it is told so.
    Data(ObjectNo, u64, u64),
    /// The end of a file, if the cache believes it to be before this size. Comes after the
    /// [`Data`](Self::Data) of the same change; the file system's `note_kernel_size` is to be
    /// called when it is done.
    Grown(ObjectNo, u64),
    /// The target of a name, or that the name leads nowhere.
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
    // The first listener stays; a second one is ignored.
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
        // The size goes last, so that the kernel's new size covers no old content.
        self.tell(Invalidation::Data(no, 0, 0));
        self.tell(Invalidation::Grown(no, size));
    }

    /// Has the kernel forget a file in which bytes lie elsewhere than the kernel has put them.
    /// Returns when no program can read them there. Only a page that the kernel itself keeps locked
    /// until the write is answered is left; no program can read that either.
    pub fn content_moved(&self, no: ObjectNo, size: u64) {
        self.content_changed(no, size);
        // A bounded wait: the kernel may be blocked by the very request that is being answered.
        self.wait_until_heard(MOVED_WITHIN);
    }
}
