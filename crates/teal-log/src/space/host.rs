//! A sparse store lives in a file, and the file system that holds it may be full: a segment is
//! written only after it was allocated there.
//!
//! # Invariants
//! 1. A segment of a sparse store counts as ready only after its host has allocated it.
//! 2. What is said to be free is no more than the host has room for; the host is asked at most once
//!    in [`HOST_AGE`].
//! 3. That the host is full is said once, until it has given something again.
//!
//! # Locks
//! `seen` guards the last answer of the host; asking the host, a system call, is done under it. The
//! segment table is not locked while the host allocates.

use crate::error::StoreError;
use crate::format::geometry::{Geometry, Segment};
use crate::space::segments::SegmentTable;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use teal_env::{Clock, Disk, HostRoom};

/// How old an answer of the host may be. Asking it is a system call that reads nothing where the
/// host is a local file system.
const HOST_AGE: Duration = Duration::from_secs(1);

/// An answer of the host.
#[derive(Debug, Clone, Copy)]
struct HostAnswer {
    at: Duration,
    room: Option<HostRoom>,
}

/// The file system below a store, as far as it has been asked.
pub(crate) struct HostAllocation {
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    geometry: Geometry,
    /// What the store is called in messages.
    label: String,
    seen: Mutex<Option<HostAnswer>>,
    /// It has been said that the host is full, and nothing was had from it since.
    is_full: AtomicBool,
}

impl HostAllocation {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        geometry: Geometry,
        label: &str,
    ) -> Self {
        let label = if label.is_empty() { "the store" } else { label };
        Self {
            disk,
            clock,
            geometry,
            label: label.to_owned(),
            seen: Mutex::default(),
            is_full: AtomicBool::new(false),
        }
    }

    /// Returns what the host has left for the store; `None` where nothing bounds it.
    fn room_left(&self) -> Option<HostRoom> {
        let now = self.clock.monotonic_time();
        let mut seen = self.seen.lock();
        match *seen {
            Some(known) if now.saturating_sub(known.at) < HOST_AGE => known.room,
            _ => {
                let room = self.disk.host_room();
                *seen = Some(HostAnswer { at: now, room });
                room
            }
        }
    }

    /// Returns the bytes that the host would not give if it were asked now, out of `unready` bytes
    /// that it was not asked for yet while it was for `held` bytes.
    pub(crate) fn missing_bytes(&self, held: u64, unready: u64) -> u64 {
        let Some(room) = self.room_left() else {
            return 0;
        };
        // An earlier opening may have had more allocated than this one knows of.
        let allocated_before = room.allocated.saturating_sub(held);
        unready.saturating_sub(room.free.saturating_add(allocated_before))
    }

    /// Lets the host allocate free segments until this much is ready; says so in the log when the
    /// host is full.
    pub(crate) fn allocate_until_ready(&self, segments: &Mutex<SegmentTable>, bytes: u64) {
        loop {
            let next = {
                let segments = segments.lock();
                if segments.ready_bytes() >= bytes {
                    None
                } else {
                    segments.next_free(false)
                }
            };
            let Some(segment) = next else { break };
            if let Err(e) = self.allocate_segment(segment) {
                self.say_it_is_full("more of it", &e);
                break;
            }
            self.is_full.store(false, Ordering::Relaxed);
            // It has less left now.
            *self.seen.lock() = None;
            let mut segments = segments.lock();
            segments.set_ready(segment);
            segments.refill_head();
        }
    }

    /// Before the first write of an opening: lets the host allocate what the last opening used.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] when it has no room for that.
    pub(crate) fn allocate_doubtful(
        &self,
        segments: &Mutex<SegmentTable>,
    ) -> Result<(), StoreError> {
        let doubtful = segments.lock().doubtful().clone();
        for segment in doubtful {
            if let Err(e) = self.allocate_segment(Segment(segment)) {
                self.say_it_is_full("what it uses", &e);
                return Err(StoreError::NoSpace);
            }
            segments.lock().is_allocated(Segment(segment));
        }
        Ok(())
    }

    fn allocate_segment(&self, segment: Segment) -> std::io::Result<()> {
        let run = self.geometry.whole_run(segment);
        self.disk.allocate(run.addr, u64::from(run.sectors))
    }

    fn say_it_is_full(&self, what: &str, e: &std::io::Error) {
        if !self.is_full.swap(true, Ordering::Relaxed) {
            let name = &self.label;
            log::warn!("the file system that holds {name} has no room for {what}: {e}");
        }
    }
}
