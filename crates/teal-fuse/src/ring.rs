//! Requests over `io_uring`: answering one and getting the next is one system call instead of two.
//!
//! # How the kernel sees it
//! A *queue* for each processor that can exist; a request goes into that of the processor its caller runs on. An *entry* of a queue is
//! memory for one request and its answer, registered by one command; each further command commits an answer and completes when the
//! next request is in that memory. The kernel writes there in the context of the thread that gave the command, and uses the entry
//! first that was committed last. Once each queue has an entry, all requests come this way but forgets and interrupts, which are still
//! read from the device; notifications are still written there. Before that, callers wait.
//!
//! # Guarantees
//! 1. *One worker, one ring, one entry, one request*: a request that waits keeps its own worker from others and nothing else. With as
//!    many entries waiting, so many requests of a queue are served at once; more wait in the kernel.
//! 2. *Memory in turns*: the kernel has an entry's memory exactly while its worker is inside `Lane::exchange`. Otherwise
//!    the worker has it, or whoever answers, under a lock.
//! 3. *An answer from anywhere*: a [`Reply`](crate::Reply) writes into the entry's memory and wakes its worker, which commits. An answer to a request
//!    with a payload, which the handler may still be reading, is put aside first. One that is never sent was sent by the drop of
//!    its `Reply`, so that no entry is lost.
//! 4. *A clean end*: an unmount, an abort (`/sys/fs/fuse`) or another end of the connection completes the commands of idle workers with
//!    `ENOTCONN` or `ECONNABORTED`, refuses the commits of busy ones, and ends the reading of the device; whoever reads there then calls off those
//!    workers whose answer is still to come. A late answer finds its slot `Ended` and is lost. A killed process is the kernel's: it
//!    cancels what is in flight, closes the device, and callers see `ENOTCONN`.
//! 5. *Idle is idle*: workers sleep in the kernel without a time-out.
//! 6. *Bounded*: [`WORKERS_MAX`] workers and as many entries, whose payload is touched when it is first used.

mod area;
mod slot;

pub(crate) use area::Area;

use crate::abi::{FUSE_IO_URING_CMD_COMMIT_AND_FETCH, FUSE_IO_URING_CMD_REGISTER};
use crate::ioctl::Lane;
use crate::transport::Outlet;
use parking_lot::Mutex;
use rustix::io::Errno;
use slot::Slot;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread::Scope;

/// The most workers, of all queues together.
const WORKERS_MAX: usize = 128;
/// The most workers of one queue.
const QUEUE_WORKERS_MAX: usize = 16;
/// With more processors than this a queue would be left with one worker.
const QUEUES_MAX: usize = WORKERS_MAX / 2;
/// Which processors can exist.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// What the workers of a connection need, made before the connection relies on them.
#[derive(Debug)]
pub(crate) struct Rings {
    slots: Vec<Arc<Slot>>,
    /// One for each slot, until its worker takes it; queue by queue, again and again.
    lanes: Mutex<Vec<Lane>>,
    queues: usize,
}

/// How many queues the kernel wants.
fn queues() -> Option<usize> {
    count(&std::fs::read_to_string(POSSIBLE).ok()?)
}

/// How many processors a list like `0-3,8` names.
fn count(list: &str) -> Option<usize> {
    let of = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        (last.parse::<usize>().ok()? + 1).checked_sub(first.parse().ok()?)
    };
    list.trim().split(',').map(of).sum()
}

impl Rings {
    /// Entries for payloads of at most `payload` bytes.
    ///
    /// # Errors
    /// Whatever keeps rings from being had.
    pub(crate) fn new(device: BorrowedFd<'_>, payload: usize) -> Result<Self, Errno> {
        let queues = queues().filter(|queues| *queues <= QUEUES_MAX).ok_or(Errno::NOTSUP)?;
        let each = (WORKERS_MAX / queues).min(QUEUE_WORKERS_MAX);
        let slots: Vec<_> = (0..each * queues).map(|_| Arc::new(Slot::new(payload))).collect();
        let lane = |(number, slot): (usize, &Arc<Slot>)| Lane::new(device, (number % queues) as u16, slot.area());
        let lanes = slots.iter().enumerate().map(lane).collect::<Result<_, _>>()?;
        Ok(Self { slots, lanes: Mutex::new(lanes), queues })
    }

    /// Starts the workers. `serve` answers a message through an outlet, or says that nobody will. Where not every queue can have a
    /// worker, all requests come over the device.
    pub(crate) fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        serve: impl Fn(&[u8], Arc<dyn Outlet>) -> bool + Copy + Send + 'scope,
    ) {
        let mut lanes = std::mem::take(&mut *self.lanes.lock()).into_iter();
        for (number, slot) in self.slots.iter().enumerate() {
            let Some(lane) = lanes.next() else { return };
            let name = format!("ring-{}-{}", number % self.queues, number / self.queues);
            let work = move || {
                if let Err(errno) = work(lane, slot, serve) {
                    log::error!("a worker of a ring ends: {errno}");
                }
            };
            if let Err(error) = std::thread::Builder::new().name(name).spawn_scoped(scope, work) {
                log::warn!("{number} workers serve rings, more cannot start: {error}");
                if let Some(lane) = lanes.next().filter(|_| number < self.queues) {
                    lane.call_off();
                }
                return;
            }
        }
    }

    /// The connection has ended.
    pub(crate) fn end(&self) {
        self.slots.iter().for_each(|slot| slot.end());
    }
}

fn work(mut lane: Lane, slot: &Arc<Slot>, serve: impl Fn(&[u8], Arc<dyn Outlet>) -> bool) -> Result<(), Errno> {
    lane.enable()?;
    let mut next = (FUSE_IO_URING_CMD_REGISTER, 0);
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
        match slot.serve(|message| serve(message, Arc::clone(slot) as Arc<dyn Outlet>)) {
            Some(id) => next = (FUSE_IO_URING_CMD_COMMIT_AND_FETCH, id),
            None => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
