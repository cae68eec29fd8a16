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
use teal_fuse::{KernelNotifier, NodeId};
use teal_posix::{FileSystem, Invalidation, InvalidationSink};
use teal_types::ObjectNo;

/// More than this at once, and the kernel forgets everything of the objects concerned when it gets
/// to it: the queue is cut to the newest word on each.
const QUEUE_MAX: usize = 1 << 16;

#[derive(Debug, Default)]
struct InvalidationQueue {
    invalidations: VecDeque<Invalidation>,
    /// Words that were left, and of them those that the kernel has heard or never will.
    queued: u64,
    delivered: u64,
    ended: bool,
}

/// Words for the kernel, and the thread that brings them.
#[derive(Debug, Default)]
pub(crate) struct KernelInvalidator {
    queue: Mutex<InvalidationQueue>,
    changed: Condvar,
    delivered: Condvar,
}

impl InvalidationSink for KernelInvalidator {
    fn tell(&self, what: Invalidation) {
        self.enqueue(what);
    }

    fn wait_until_heard(&self, limit: Duration) {
        let mut queue = self.queue.lock();
        let all = queue.queued;
        self.delivered.wait_while_for(
            &mut queue,
            |queue| queue.delivered < all && !queue.ended,
            limit,
        );
    }
}

impl KernelInvalidator {
    pub(crate) fn enqueue(&self, what: Invalidation) {
        let mut queue = self.queue.lock();
        if queue.invalidations.back() == Some(&what)
            || (queue.invalidations.len() >= QUEUE_MAX && queue.invalidations.contains(&what))
        {
            return;
        }
        queue.invalidations.push_back(what);
        queue.queued += 1;
        self.changed.notify_one();
    }

    pub(crate) fn stop(&self) {
        self.queue.lock().ended = true;
        self.changed.notify_one();
        self.delivered.notify_all();
    }

    /// The kernel has heard another word.
    fn count_delivered(&self) {
        self.queue.lock().delivered += 1;
        self.delivered.notify_all();
    }

    fn next_invalidation(&self) -> Option<Invalidation> {
        let mut queue = self.queue.lock();
        loop {
            if queue.ended {
                return None;
            }
            if let Some(what) = queue.invalidations.pop_front() {
                return Some(what);
            }
            self.changed.wait(&mut queue);
        }
    }

    /// Starts the thread.
    pub(crate) fn start_thread(
        self: &Arc<Self>,
        notifier: KernelNotifier,
        client: Arc<FileSystem>,
    ) -> std::io::Result<JoinHandle<()>> {
        let this = Arc::clone(self);
        std::thread::Builder::new()
            .name("teal-forget".into())
            .spawn(move || {
                while let Some(what) = this.next_invalidation() {
                    let done = match &what {
                        Invalidation::Attributes(no) => notifier.inval_attr(NodeId::new(no.get())),
                        Invalidation::Data(no, offset, len) => {
                            notifier.inval_data(NodeId::new(no.get()), *offset, *len)
                        }
                        Invalidation::Grown(no, size) => raise_size(&notifier, &client, *no, *size),
                        Invalidation::Entry(dir, name) => {
                            notifier.inval_entry(NodeId::new(dir.get()), name.as_bytes())
                        }
                    };
                    if let Err(error) = done {
                        log::debug!("the kernel was told to forget {what:?}: {error}");
                    }
                    this.count_delivered();
                }
            })
    }
}

/// Raises the size that the kernel holds of a file, unless the file has been cut since: then the
/// kernel did that itself, or hears of it next.
fn raise_size(
    notifier: &KernelNotifier,
    client: &FileSystem,
    no: ObjectNo,
    size: u64,
) -> Result<bool, Errno> {
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
        let forgetting = KernelInvalidator::default();
        let word = |no| Invalidation::Attributes(ObjectNo::new(no));
        for no in [1, 1, 2, 1] {
            forgetting.enqueue(word(no));
        }
        let heard: Vec<_> = (0..3).map(|_| forgetting.next_invalidation()).collect();
        assert_eq!(heard, [Some(word(1)), Some(word(2)), Some(word(1))]);
        forgetting.enqueue(word(3));
        forgetting.stop();
        assert_eq!(forgetting.next_invalidation(), None);
    }
}
