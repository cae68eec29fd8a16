//! The kernel must forget objects that were changed elsewhere.
//!
//! # Guarantees
//! 1. The kernel is told from a thread of its own that holds no lock: it may take an inode's lock,
//!    which a request may hold until it is answered.
//! 2. A file that has grown has its new size in the kernel before the change is said to have
//!    arrived here: programs that append do not ask for the size.
//! 3. A change only enqueues its invalidation and goes on; the order of changes is the order in
//!    which the kernel hears of them.

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use teal_fuse::{KernelNotifier, NodeId};
use teal_posix::{FileSystem, Invalidation, InvalidationSink};
use teal_types::ObjectNo;

/// The most invalidations that wait. Beyond this, one that waits already is not enqueued again: the
/// kernel forgets the present state when it gets to it.
const QUEUE_MAX: usize = 1 << 16;

#[derive(Debug, Default)]
struct InvalidationQueue {
    invalidations: VecDeque<Invalidation>,
    /// The number of invalidations ever enqueued, and of those that the kernel has heard of or
    /// never will.
    queued: u64,
    delivered: u64,
    ended: bool,
}

/// Invalidations for the kernel, and the thread that delivers them.
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
        // Later ones need not be waited for.
        let all = queue.queued;
        self.delivered.wait_while_for(
            &mut queue,
            |queue| queue.delivered < all && !queue.ended,
            limit,
        );
    }
}

impl KernelInvalidator {
    /// Leaves an invalidation for the thread.
    pub(crate) fn enqueue(&self, what: Invalidation) {
        let mut queue = self.queue.lock();
        // The same twice in a row is one: the kernel forgets it once.
        if queue.invalidations.back() == Some(&what)
            || (queue.invalidations.len() >= QUEUE_MAX && queue.invalidations.contains(&what))
        {
            return;
        }
        queue.invalidations.push_back(what);
        queue.queued += 1;
        self.changed.notify_one();
    }

    /// Ends the thread and all waits for it.
    pub(crate) fn stop(&self) {
        self.queue.lock().ended = true;
        self.changed.notify_one();
        self.delivered.notify_all();
    }

    /// Notes that one more was delivered, and wakes the threads that wait for it.
    fn count_delivered(&self) {
        let mut queue = self.queue.lock();
        queue.delivered += 1;
        debug_assert!(
            queue.delivered <= queue.queued,
            "more was delivered than enqueued"
        );
        drop(queue);
        self.delivered.notify_all();
    }

    /// Waits for the next invalidation; `None` after the end.
    fn next_invalidation(&self) -> Option<Invalidation> {
        let mut queue = self.queue.lock();
        loop {
            // What is left is not delivered: the mount is gone.
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
        file_system: Arc<FileSystem>,
    ) -> std::io::Result<JoinHandle<()>> {
        let this = Arc::clone(self);
        std::thread::Builder::new()
            .name("teal-forget".into())
            .spawn(move || {
                while let Some(what) = this.next_invalidation() {
                    // Without the lock of the queue: the kernel may hold up this call until a
                    // request is answered.
                    let done = match &what {
                        Invalidation::Attributes(no) => notifier.inval_attr(NodeId::new(no.get())),
                        Invalidation::Data(no, offset, len) => {
                            notifier.inval_data(NodeId::new(no.get()), *offset, *len)
                        }
                        Invalidation::Grown(no, size) => {
                            raise_size(&notifier, &file_system, *no, *size)
                        }
                        Invalidation::Entry(dir, name) => {
                            notifier.inval_entry(NodeId::new(dir.get()), name.as_bytes())
                        }
                    };
                    // The mount is gone, or the kernel does not know the message: there is nothing
                    // to be done here.
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
    file_system: &FileSystem,
    no: ObjectNo,
    size: u64,
) -> Result<bool, Errno> {
    if file_system.getattr(no).is_ok_and(|attr| attr.size < size) {
        return Ok(true);
    }
    let raised = notifier.raise_size(NodeId::new(no.get()), size);
    // The file system keeps note of the size that the kernel holds.
    if raised == Ok(true) {
        file_system.note_kernel_size(no, size);
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
