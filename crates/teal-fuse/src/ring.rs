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

mod area;
mod slot;

pub(crate) use area::Area;

use crate::abi::{FUSE_IO_URING_CMD_COMMIT_AND_FETCH, FUSE_IO_URING_CMD_REGISTER};
use crate::ioctl::Lane;
use crate::transport::Outlet;
use parking_lot::Mutex;
use rustix::io::Errno;
use slot::Slot;
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
pub(crate) struct Rings(Vec<Queue>);

/// The requests of one processor.
#[derive(Debug)]
struct Queue {
    slots: Vec<Arc<Slot>>,
    /// Of those slots, last first, that have no worker yet.
    lanes: Mutex<Vec<Lane>>,
    /// Workers that do not wait for an answer from elsewhere.
    ready: AtomicUsize,
}

/// Returns how many queues the kernel wants.
fn queues() -> Option<usize> {
    count(&std::fs::read_to_string(POSSIBLE).ok()?)
}

/// Returns how many processors a list like `0-3,8` names.
fn count(list: &str) -> Option<usize> {
    let of = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        (last.parse::<usize>().ok()? + 1).checked_sub(first.parse().ok()?)
    };
    list.trim().split(',').map(of).sum()
}

/// What all workers share.
struct Work<'scope, 'env, S> {
    scope: &'scope Scope<'scope, 'env>,
    /// Workers of a queue that are to be ready.
    wanted: usize,
    serve: S,
}

impl Rings {
    /// Entries for payloads of at most `payload` bytes.
    ///
    /// # Errors
    /// Whatever keeps rings from being had.
    pub(crate) fn new(device: BorrowedFd<'_>, payload: usize) -> Result<Self, Errno> {
        let device = Arc::new(rustix::io::fcntl_dupfd_cloexec(device, 0)?);
        let queues = queues()
            .filter(|queues| *queues <= QUEUES_MAX)
            .ok_or(Errno::NOTSUP)?;
        let each = (WORKERS_MAX / queues).min(QUEUE_WORKERS_MAX);
        let queue = |number| {
            let slots: Vec<_> = (0..each).map(|_| Arc::new(Slot::new(payload))).collect();
            let lanes = slots
                .iter()
                .rev()
                .map(|slot| Lane::new(Arc::clone(&device), number, slot.area()));
            Ok(Queue {
                lanes: Mutex::new(lanes.collect::<Result<_, _>>()?),
                slots,
                ready: AtomicUsize::new(0),
            })
        };
        Ok(Self(
            (0..queues as u16).map(queue).collect::<Result<_, _>>()?,
        ))
    }

    /// Starts `wanted` workers for each queue, or as many as may be. `serve` answers a message
    /// through an outlet, or says that nobody will. Where not every queue can have a worker, all
    /// requests come over the device.
    pub(crate) fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        wanted: NonZeroUsize,
        serve: impl Fn(&[u8], Arc<dyn Outlet>) -> bool + Send + Sync + 'scope,
    ) {
        let work = Arc::new(Work {
            scope,
            wanted: wanted.get().max(2),
            serve,
        });
        for queue in &self.0 {
            (0..work.wanted).for_each(|_| queue.grow(&work));
            if queue.ready.load(Relaxed) == 0 {
                // None can be had: the lane that is left says so.
                let left = queue.lanes.lock().pop();
                return left.map(Lane::call_off).unwrap_or_default();
            }
        }
    }

    /// The connection has ended.
    pub(crate) fn end(&self) {
        self.0
            .iter()
            .flat_map(|queue| &queue.slots)
            .for_each(|slot| slot.end());
    }
}

impl Queue {
    /// Starts one more worker, if there may be more.
    fn grow<'scope, S>(&'scope self, work: &Arc<Work<'scope, '_, S>>)
    where
        S: Fn(&[u8], Arc<dyn Outlet>) -> bool + Send + Sync + 'scope,
    {
        let mut lanes = self.lanes.lock();
        let Some(lane) = lanes.pop() else { return };
        let (number, slot) = (lanes.len(), &self.slots[self.slots.len() - 1 - lanes.len()]);
        drop(lanes);
        self.ready.fetch_add(1, Relaxed);
        let shared = Arc::clone(work);
        let run = move || {
            if let Err(errno) = self.work(lane, slot, &shared) {
                log::error!("a worker of a ring ends: {errno}");
            }
        };
        if let Err(error) = std::thread::Builder::new()
            .name(format!("ring-{number}"))
            .spawn_scoped(work.scope, run)
        {
            self.ready.fetch_sub(1, Relaxed);
            log::warn!("a worker of a ring cannot start: {error}");
        }
    }

    fn work<'scope, S>(
        &'scope self,
        mut lane: Lane,
        slot: &Arc<Slot>,
        work: &Arc<Work<'scope, '_, S>>,
    ) -> Result<(), Errno>
    where
        S: Fn(&[u8], Arc<dyn Outlet>) -> bool + Send + Sync + 'scope,
    {
        lane.enable()?;
        let mut next = (FUSE_IO_URING_CMD_REGISTER, 0);
        let waits = |waits: bool| {
            if !waits {
                self.ready.fetch_add(1, Relaxed);
            } else if self.ready.fetch_sub(1, Relaxed) <= work.wanted {
                self.grow(work);
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
            match slot.serve(
                |message| (work.serve)(message, Arc::clone(slot) as Arc<dyn Outlet>),
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
