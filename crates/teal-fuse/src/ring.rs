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
//!    `Lane::exchange`. Otherwise the worker has it, or whoever answers, under a lock.
//! 3. *An answer from anywhere*: a [`Reply`](crate::Reply) writes into the entry's memory and wakes
//!    its worker, which commits. An answer to a request with a payload, which the handler may still
//!    be reading, is put aside first. An answer that nobody gave was given by the drop of its
//!    `Reply`, so that no entry is lost.
//! 4. *A clean end*: an unmount, an abort (`/sys/fs/fuse`) or another end of the connection
//!    completes the commands of idle workers with `ENOTCONN` or `ECONNABORTED`, refuses the commits
//!    of busy ones, and ends the reading of the device; whoever reads there then calls off those
//!    whose answer is still to come. A late answer finds its slot `Ended` and is lost. A killed
//!    process is the kernel's: it cancels what is in flight and then closes the device, and callers
//!    see `ENOTCONN` or `ECONNABORTED`, or `ECANCELED` or `EINTR` where a request was just on its
//!    way to a worker. That can be a moment later than the process is gone.
//! 5. *Idle is idle*: workers sleep in the kernel without a time-out.
//! 6. *Bounded*: at most [`WORKERS_MAX`] workers and as many entries, whose payload is touched when
//!    it is first used.
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
use entry::RingEntry;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::Scope;

/// The most workers, of all queues together.
const WORKERS_MAX: usize = 128;
/// The most workers of one queue.
const QUEUE_WORKERS_MAX: usize = 16;
/// With more processors than this a queue would be left with one worker.
const QUEUES_MAX: usize = WORKERS_MAX / 2;
/// Which processors can exist.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// The entries of a connection, made before the connection relies on them.
#[derive(Debug)]
pub(crate) struct UringQueues(Vec<ProcessorQueue>);

/// The requests of one processor.
#[derive(Debug)]
struct ProcessorQueue {
    entries: Vec<Arc<RingEntry>>,
    /// Of those slots, last first, that have no worker yet.
    unstarted_rings: Mutex<Vec<CommandRing>>,
    /// Workers that do not wait for an answer from elsewhere.
    ready_workers: AtomicUsize,
}

/// Returns how many queues the kernel wants.
fn kernel_queue_count() -> Option<usize> {
    count_processors(&std::fs::read_to_string(POSSIBLE).ok()?)
}

/// Returns how many processors a list like `0-3,8` names.
fn count_processors(list: &str) -> Option<usize> {
    let of = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        (last.parse::<usize>().ok()? + 1).checked_sub(first.parse().ok()?)
    };
    list.trim().split(',').map(of).sum()
}

/// What all workers share.
struct WorkerContext<'scope, 'env, S> {
    scope: &'scope Scope<'scope, 'env>,
    /// Workers of a queue that are to be ready.
    wanted_workers: usize,
    serve: S,
}

impl UringQueues {
    /// Entries for payloads of at most `payload` bytes.
    ///
    /// # Errors
    /// Whatever keeps rings from being had.
    pub(crate) fn new(device: BorrowedFd<'_>, payload: usize) -> Result<Self, Errno> {
        let device = Arc::new(rustix::io::fcntl_dupfd_cloexec(device, 0)?);
        let queues = kernel_queue_count()
            .filter(|queues| *queues <= QUEUES_MAX)
            .ok_or(Errno::NOTSUP)?;
        let each = (WORKERS_MAX / queues).min(QUEUE_WORKERS_MAX);
        let queue = |number| {
            let slots: Vec<_> = (0..each)
                .map(|_| Arc::new(RingEntry::new(payload)))
                .collect();
            let lanes = slots
                .iter()
                .rev()
                .map(|slot| CommandRing::new(Arc::clone(&device), number, slot.memory()));
            Ok(ProcessorQueue {
                unstarted_rings: Mutex::new(lanes.collect::<Result<_, _>>()?),
                entries: slots,
                ready_workers: AtomicUsize::new(0),
            })
        };
        Ok(Self(
            (0..queues as u16).map(queue).collect::<Result<_, _>>()?,
        ))
    }

    /// Starts `wanted` workers for each queue, or as many as may be. `serve` answers a message
    /// through an outlet, or says that nobody will. Where not every queue can have a worker, all
    /// requests come over the device.
    pub(crate) fn start_workers<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        wanted: NonZeroUsize,
        serve: impl Fn(&[u8], Arc<dyn MessageSink>) -> bool + Send + Sync + 'scope,
    ) {
        let work = Arc::new(WorkerContext {
            scope,
            wanted_workers: wanted.get().max(2),
            serve,
        });
        for queue in &self.0 {
            (0..work.wanted_workers).for_each(|_| queue.start_worker(&work));
            if queue.ready_workers.load(Relaxed) == 0 {
                // None can be had: the lane that is left says so.
                let left = queue.unstarted_rings.lock().pop();
                return left.map(CommandRing::decline_rings).unwrap_or_default();
            }
        }
    }

    /// The connection has ended.
    pub(crate) fn mark_ended(&self) {
        self.0
            .iter()
            .flat_map(|queue| &queue.entries)
            .for_each(|slot| slot.mark_ended());
    }
}

impl ProcessorQueue {
    /// Starts one more worker, if there may be more.
    fn start_worker<'scope, S>(&'scope self, work: &Arc<WorkerContext<'scope, '_, S>>)
    where
        S: Fn(&[u8], Arc<dyn MessageSink>) -> bool + Send + Sync + 'scope,
    {
        let mut lanes = self.unstarted_rings.lock();
        let Some(lane) = lanes.pop() else { return };
        let (number, slot) = (
            lanes.len(),
            &self.entries[self.entries.len() - 1 - lanes.len()],
        );
        drop(lanes);
        self.ready_workers.fetch_add(1, Relaxed);
        let shared = Arc::clone(work);
        let run = move || {
            if let Err(errno) = self.run_worker(lane, slot, &shared) {
                log::error!("a worker of a ring ends: {errno}");
            }
        };
        if let Err(error) = std::thread::Builder::new()
            .name(format!("ring-{number}"))
            .spawn_scoped(work.scope, run)
        {
            self.ready_workers.fetch_sub(1, Relaxed);
            log::warn!("a worker of a ring cannot start: {error}");
        }
    }

    fn run_worker<'scope, S>(
        &'scope self,
        mut lane: CommandRing,
        slot: &Arc<RingEntry>,
        work: &Arc<WorkerContext<'scope, '_, S>>,
    ) -> Result<(), Errno>
    where
        S: Fn(&[u8], Arc<dyn MessageSink>) -> bool + Send + Sync + 'scope,
    {
        lane.enable()?;
        let mut next = (FUSE_IO_URING_CMD_REGISTER, 0);
        let waits = |waits: bool| {
            if !waits {
                self.ready_workers.fetch_add(1, Relaxed);
            } else if self.ready_workers.fetch_sub(1, Relaxed) <= work.wanted_workers {
                self.start_worker(work);
            }
        };
        loop {
            match lane.exchange(next.0, next.1) {
                Ok(()) => {}
                Err(Errno::NOTCONN | Errno::CONNABORTED | Errno::NODEV) => return Ok(()),
                Err(errno) if next.0 == FUSE_IO_URING_CMD_COMMIT_AND_FETCH => {
                    log::error!("the kernel refused an answer: {errno}");
                    next = (FUSE_IO_URING_CMD_REGISTER, 0);
                    continue;
                }
                Err(errno) => return Err(errno),
            }
            match slot.serve_request(
                |message| (work.serve)(message, Arc::clone(slot) as Arc<dyn MessageSink>),
                waits,
            ) {
                Some(id) => next = (FUSE_IO_URING_CMD_COMMIT_AND_FETCH, id),
                None => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests;
