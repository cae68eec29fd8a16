//! What has changed elsewhere, the kernel must forget.
//!
//! # Guarantees
//! 1. The kernel is told from a thread of its own that holds no lock: it may take an inode's lock,
//!    which a request may hold until it is answered.
//! 2. A file that has grown is as long in the kernel before anybody is told that the change has
//!    arrived here: programs that append ask nobody for its size.
//! 3. Whoever changes something only leaves word and goes on; the order in which things changed is
//!    the order in which the kernel hears.

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use teal_fuse::{NodeId, Notifier};
use teal_posix::{FileSystem, Invalidation, InvalidationSink};
use teal_types::ObjectNo;

/// More than this at once, and the kernel forgets everything of the objects concerned when it gets
/// to it: the queue is cut to the newest word on each.
const QUEUE_MAX: usize = 1 << 16;

#[derive(Debug, Default)]
struct Queue {
    words: VecDeque<Invalidation>,
    /// Words that were left, and of them those that the kernel has heard or never will.
    left: u64,
    heard: u64,
    ended: bool,
}

/// Words for the kernel, and the thread that brings them.
#[derive(Debug, Default)]
pub(crate) struct Forgetting {
    queue: Mutex<Queue>,
    changed: Condvar,
    heard: Condvar,
}

impl InvalidationSink for Forgetting {
    fn tell(&self, what: Invalidation) {
        self.leave_word(what);
    }

    fn wait_until_heard(&self, limit: Duration) {
        let mut queue = self.queue.lock();
        let all = queue.left;
        self.heard
            .wait_while_for(&mut queue, |queue| queue.heard < all && !queue.ended, limit);
    }
}

impl Forgetting {
    pub(crate) fn leave_word(&self, what: Invalidation) {
        let mut queue = self.queue.lock();
        if queue.words.back() == Some(&what)
            || (queue.words.len() >= QUEUE_MAX && queue.words.contains(&what))
        {
            return;
        }
        queue.words.push_back(what);
        queue.left += 1;
        self.changed.notify_one();
    }

    pub(crate) fn end(&self) {
        self.queue.lock().ended = true;
        self.changed.notify_one();
        self.heard.notify_all();
    }

    /// The kernel has heard another word.
    fn has_heard(&self) {
        self.queue.lock().heard += 1;
        self.heard.notify_all();
    }

    fn next(&self) -> Option<Invalidation> {
        let mut queue = self.queue.lock();
        loop {
            if queue.ended {
                return None;
            }
            if let Some(what) = queue.words.pop_front() {
                return Some(what);
            }
            self.changed.wait(&mut queue);
        }
    }

    /// Starts the thread.
    pub(crate) fn start(
        self: &Arc<Self>,
        notifier: Notifier,
        client: Arc<FileSystem>,
    ) -> std::io::Result<JoinHandle<()>> {
        let this = Arc::clone(self);
        std::thread::Builder::new()
            .name("teal-forget".into())
            .spawn(move || {
                while let Some(what) = this.next() {
                    let done = match &what {
                        Invalidation::Attributes(no) => notifier.inval_attr(NodeId::new(no.get())),
                        Invalidation::Data(no, offset, len) => {
                            notifier.inval_data(NodeId::new(no.get()), *offset, *len)
                        }
                        Invalidation::Grown(no, size) => raise(&notifier, &client, *no, *size),
                        Invalidation::Entry(dir, name) => {
                            notifier.inval_entry(NodeId::new(dir.get()), name.as_bytes())
                        }
                    };
                    if let Err(error) = done {
                        log::debug!("the kernel was told to forget {what:?}: {error}");
                    }
                    this.has_heard();
                }
            })
    }
}

/// Raises the size that the kernel holds of a file, unless the file has been cut since: then the
/// kernel did that itself, or hears of it next.
fn raise(notifier: &Notifier, client: &FileSystem, no: ObjectNo, size: u64) -> Result<bool, Errno> {
    if client.getattr(no).is_ok_and(|attr| attr.size < size) {
        return Ok(true);
    }
    let raised = notifier.raise_size(NodeId::new(no.get()), size);
    if raised == Ok(true) {
        client.kernel_raised(no, size);
    }
    raised
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_in_their_order_and_the_same_twice_in_a_row_once() {
        let forgetting = Forgetting::default();
        let word = |no| Invalidation::Attributes(ObjectNo::new(no));
        for no in [1, 1, 2, 1] {
            forgetting.leave_word(word(no));
        }
        let heard: Vec<_> = (0..3).map(|_| forgetting.next()).collect();
        assert_eq!(heard, [Some(word(1)), Some(word(2)), Some(word(1))]);
        forgetting.leave_word(word(3));
        forgetting.end();
        assert_eq!(forgetting.next(), None);
    }
}
