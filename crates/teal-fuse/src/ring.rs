//! Requests over `io_uring`: answering one and getting the next is one system call instead of two.
//!
//! # How the kernel sees it
//! A *queue* for each processor that can exist; a request goes into that of the processor its
//! caller runs on. An *entry* of a queue is memory for one request and its answer, registered by
//! one command; each further command commits an answer and completes when the next request is in
//! that memory. The kernel writes there in the context of the thread that gave the command, and
//! uses the entry first that was committed last. Once each queue has an entry, all requests come
//! this way but forgets and interrupts, which are still read from the device; notifications are
//! still written there. Before that, callers wait.
//!
//! # Guarantees
//! 1. *One worker, one ring, one entry, one request*: a request that waits keeps its own worker
//!    from others and nothing else. Each queue begins with as many workers as it is to have; while
//!    one of them waits for an answer that comes from another thread, as `fsync`'s does, one more
//!    takes its place, up to [`QUEUE_WORKERS_MAX`]. What comes while all wait, waits in the kernel
//!    for the next commit.
//! 2. *Memory in turns*: the kernel has an entry's memory exactly while its worker is inside
//!    `CommandRing::exchange`. Otherwise the worker has it, or the thread that answers, under a
//!    lock.
//! 3. *An answer from anywhere*: a [`ReplySender`](crate::ReplySender) writes into the entry's
//!    memory and wakes its worker, which commits. An answer to a request with a payload, which the
//!    handler may still be reading, is put aside first. A sender that is dropped unused has
//!    answered by that, so that no entry is lost.
//! 4. *A clean end*: an unmount, an abort (`/sys/fs/fuse`) or another end of the connection
//!    completes the commands of idle workers with `ENOTCONN` or `ECONNABORTED`, refuses the commits
//!    of busy ones, and ends the reading of the device; the thread that reads there then marks all
//!    entries as `Ended`, which wakes the workers that still wait for an answer. A late answer
//!    finds its entry `Ended` and is lost. The kernel cleans up after a killed process: it cancels
//!    the commands in flight and then closes the device, and callers see `ENOTCONN` or
//!    `ECONNABORTED`, or `ECANCELED` or `EINTR` if a request was just on its way to a worker. That
//!    can be a moment later than the end of the process.
//! 5. *Idle is idle*: workers sleep in the kernel without a time-out.
//! 6. *Bounded*: at most [`WORKERS_MAX`] workers and as many entries. The memory of a payload is
//!    touched when it is first used.
//!
//! # Why few workers
//! The kernel gives a request to any entry that is free, and its worker must then be woken. One
//! that is not free takes the next request with its commit, without going to sleep. With 16 workers
//! for each queue, 8 callers that create files cost twice the switches.

mod entry;
mod entry_memory;

pub(crate) use entry_memory::EntryMemory;

use crate::abi::{FUSE_IO_URING_CMD_COMMIT_AND_FETCH, FUSE_IO_URING_CMD_REGISTER};
use crate::ioctl::CommandRing;
use crate::transport::MessageSink;
use entry::{AnswerWait, RingEntry};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::num::NonZeroUsize;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::Scope;

/// The most workers, of all queues together.
const WORKERS_MAX: usize = 128;
/// The most workers of one queue.
const QUEUE_WORKERS_MAX: usize = 16;
/// With more processors than this a queue would be left with one worker.
const QUEUES_MAX: usize = WORKERS_MAX / 2;
/// The file that lists the processors that can exist.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// The entries of a connection, made before the connection relies on them.
#[derive(Debug)]
pub(crate) struct UringQueues(Vec<ProcessorQueue>);

/// The requests of one processor.
#[derive(Debug)]
struct ProcessorQueue {
    entries: Vec<Arc<RingEntry>>,
    /// The rings of the entries that have no worker yet, last first.
    unstarted_rings: Mutex<Vec<CommandRing>>,
    /// The number of workers that do not wait for an answer from another thread.
    ready_workers: AtomicUsize,
}

/// Returns the number of queues that the kernel wants: one for each processor that can exist.
fn kernel_queue_count() -> Option<usize> {
    count_processors(&std::fs::read_to_string(POSSIBLE).ok()?)
}

/// Returns how many processors a list like `0-3,8` names.
fn count_processors(list: &str) -> Option<usize> {
    let mut count = 0;
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        count += (last + 1).checked_sub(first)?;
    }
    Some(count)
}

/// The context that all workers share.
struct WorkerContext<'scope, 'env, S> {
    scope: &'scope Scope<'scope, 'env>,
    /// The number of workers of a queue that are to be ready.
    wanted_workers: usize,
    serve: S,
}

/// The command with which a worker gives its entry to the kernel next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextCommand {
    /// Registers the entry and asks for the first request.
    Register,
    /// Commits the answer with this number and asks for the next request.
    Commit(u64),
}

impl UringQueues {
    /// Makes entries for payloads of at most `payload` bytes.
    ///
    /// # Errors
    /// Returns the reason for which no rings can be had.
    pub(crate) fn new(device: BorrowedFd<'_>, payload: usize) -> Result<Self, Errno> {
        // A descriptor of its own keeps the connection open until all rings are gone.
        let device = Arc::new(rustix::io::fcntl_dupfd_cloexec(device, 0)?);
        // With too many processors, each queue would have one worker, which could be held up.
        let count = kernel_queue_count()
            .filter(|count| *count <= QUEUES_MAX)
            .ok_or(Errno::NOTSUP)?;
        let entries_each = (WORKERS_MAX / count).min(QUEUE_WORKERS_MAX);
        debug_assert!(entries_each >= 2, "one worker waits, another serves");
        let mut queues = Vec::with_capacity(count);
        for number in 0..count as u16 {
            queues.push(ProcessorQueue::new(&device, number, entries_each, payload)?);
        }
        debug_assert_eq!(queues.len(), count, "the kernel waits for each queue");
        Ok(Self(queues))
    }

    /// Starts `wanted` workers for each queue, or as many as can be had. `serve` answers a message
    /// through a sink, or returns false if it never will. If a queue can have no worker, all
    /// requests come over the device.
    pub(crate) fn start_workers<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        wanted: NonZeroUsize,
        serve: impl Fn(&[u8], Arc<dyn MessageSink>) -> bool + Send + Sync + 'scope,
    ) {
        let context = Arc::new(WorkerContext {
            scope,
            // One worker can wait for an answer from another thread while a second one serves.
            wanted_workers: wanted.get().max(2),
            serve,
        });
        for queue in &self.0 {
            for _ in 0..context.wanted_workers {
                queue.start_worker(&context);
            }
            if queue.ready_workers.load(Relaxed) > 0 {
                continue;
            }
            // The kernel sends nothing over rings before each queue has an entry, so this one must
            // be called off.
            let unstarted = queue.unstarted_rings.lock().pop();
            if let Some(ring) = unstarted {
                ring.decline_rings();
            }
            return;
        }
    }

    /// Tells all workers that the connection has ended.
    pub(crate) fn mark_ended(&self) {
        for queue in &self.0 {
            for entry in &queue.entries {
                entry.mark_ended();
            }
        }
    }
}

impl ProcessorQueue {
    fn new(
        device: &Arc<OwnedFd>,
        number: u16,
        entry_count: usize,
        payload: usize,
    ) -> Result<Self, Errno> {
        let mut entries = Vec::with_capacity(entry_count);
        for _ in 0..entry_count {
            entries.push(Arc::new(RingEntry::new(payload)));
        }
        let mut rings = Vec::with_capacity(entry_count);
        for entry in entries.iter().rev() {
            rings.push(CommandRing::new(
                Arc::clone(device),
                number,
                entry.memory(),
            )?);
        }
        Ok(Self {
            entries,
            unstarted_rings: Mutex::new(rings),
            ready_workers: AtomicUsize::new(0),
        })
    }

    /// Starts one more worker, if there may be more.
    fn start_worker<'scope, S>(&'scope self, context: &Arc<WorkerContext<'scope, '_, S>>)
    where
        S: Fn(&[u8], Arc<dyn MessageSink>) -> bool + Send + Sync + 'scope,
    {
        let mut unstarted = self.unstarted_rings.lock();
        let Some(ring) = unstarted.pop() else { return };
        // Rings lie in reverse order: the ring popped from `n + 1` belongs to the entry that `n`
        // others follow.
        let following = unstarted.len();
        drop(unstarted);
        debug_assert!(following < self.entries.len());
        let entry = &self.entries[self.entries.len() - 1 - following];
        // Counted before the thread runs, so that two starts at once do not both find too few.
        self.ready_workers.fetch_add(1, Relaxed);
        let context_of_worker = Arc::clone(context);
        let run = move || {
            if let Err(errno) = self.run_worker(ring, entry, &context_of_worker) {
                log::error!("a worker of a ring ends: {errno}");
            }
        };
        let builder = std::thread::Builder::new().name(format!("ring-{following}"));
        if let Err(error) = builder.spawn_scoped(context.scope, run) {
            self.ready_workers.fetch_sub(1, Relaxed);
            log::warn!("a worker of a ring cannot start: {error}");
        }
    }

    /// Counts that a worker begins or ends to wait for an answer, and lets another one take its
    /// place meanwhile.
    fn count_wait<'scope, S>(
        &'scope self,
        wait: AnswerWait,
        context: &Arc<WorkerContext<'scope, '_, S>>,
    ) where
        S: Fn(&[u8], Arc<dyn MessageSink>) -> bool + Send + Sync + 'scope,
    {
        match wait {
            AnswerWait::Ends => {
                self.ready_workers.fetch_add(1, Relaxed);
            }
            AnswerWait::Begins => {
                let before = self.ready_workers.fetch_sub(1, Relaxed);
                if before <= context.wanted_workers {
                    self.start_worker(context);
                }
            }
        }
    }

    /// Serves one request after another until the connection has ended.
    fn run_worker<'scope, S>(
        &'scope self,
        mut ring: CommandRing,
        entry: &Arc<RingEntry>,
        context: &Arc<WorkerContext<'scope, '_, S>>,
    ) -> Result<(), Errno>
    where
        S: Fn(&[u8], Arc<dyn MessageSink>) -> bool + Send + Sync + 'scope,
    {
        ring.enable()?;
        let serve =
            |message: &[u8]| (context.serve)(message, Arc::clone(entry) as Arc<dyn MessageSink>);
        let on_wait = |wait: AnswerWait| self.count_wait(wait, context);
        let mut next = NextCommand::Register;
        loop {
            let exchanged = match next {
                NextCommand::Register => ring.exchange(FUSE_IO_URING_CMD_REGISTER, 0),
                NextCommand::Commit(id) => ring.exchange(FUSE_IO_URING_CMD_COMMIT_AND_FETCH, id),
            };
            match exchanged {
                Ok(()) => {}
                // The connection has ended: the mount is gone.
                Err(Errno::NOTCONN | Errno::CONNABORTED | Errno::NODEV) => return Ok(()),
                Err(errno) if next != NextCommand::Register => {
                    // The entry is the worker's again, and is registered anew: it must not be lost.
                    log::error!("the kernel refused an answer: {errno}");
                    next = NextCommand::Register;
                    continue;
                }
                Err(errno) => return Err(errno),
            }
            match entry.serve_request(serve, on_wait) {
                Some(id) => next = NextCommand::Commit(id),
                None => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests;
