//! A sparse store lives in a file, and the file system that holds it may be full: a segment is written only after it was allocated there.
//!
//! # Invariants
//! 1. A segment of a sparse store counts as ready only after its host has allocated it.
//! 2. What is said to be free is no more than the host has room for; the host is asked at most once in [`HOST_AGE`].
//! 3. That the host is full is said once, until it has given something again.

use crate::error::StoreError;
use crate::format::geometry::Segment;
use crate::store::Store;
use std::sync::atomic::Ordering;
use std::time::Duration;
use teal_env::HostRoom;

/// How old an answer of the host may be. Asking it is a system call that reads nothing where the host is a local file system.
const HOST_AGE: Duration = Duration::from_secs(1);

/// An answer of the host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostSeen {
    at: Duration,
    room: Option<HostRoom>,
}

impl Store {
    /// What the host has left for the store; `None` where nothing bounds it.
    fn host_room(&self) -> Option<HostRoom> {
        let now = self.clock.monotonic();
        let mut seen = self.host_seen.lock();
        match *seen {
            Some(known) if now.saturating_sub(known.at) < HOST_AGE => known.room,
            _ => {
                let room = self.reader.disk().host_room();
                *seen = Some(HostSeen { at: now, room });
                room
            }
        }
    }

    /// Bytes of the segments that the host would not give if it were asked now, out of `unready` bytes that it was not asked for yet while
    /// it was for `held` bytes.
    pub(crate) fn host_lacks(&self, held: u64, unready: u64) -> u64 {
        let Some(room) = self.host_room() else {
            return 0;
        };
        // An earlier opening may have had more allocated than this one knows of.
        let allocated_before = room.allocated.saturating_sub(held);
        unready.saturating_sub(room.free.saturating_add(allocated_before))
    }

    /// Lets the host allocate free segments until this much is ready; says so in the log when the host is full.
    pub(crate) fn host_more(&self, bytes: u64) {
        loop {
            let next = {
                let segments = self.segments.lock();
                if segments.ready_bytes() >= bytes {
                    None
                } else {
                    segments.next_free(false)
                }
            };
            let Some(segment) = next else { break };
            let run = self.geometry.whole(segment);
            if let Err(e) = self
                .reader
                .disk()
                .allocate(run.addr, u64::from(run.sectors))
            {
                self.say_host_is_full("more of it", &e);
                break;
            }
            self.host_is_full.store(false, Ordering::Relaxed);
            // It has less left now.
            *self.host_seen.lock() = None;
            let mut segments = self.segments.lock();
            segments.set_ready(segment);
            segments.refill();
        }
    }

    /// Before the first write of an opening: the host must hold what the last one used.
    pub(crate) fn host_again(&self) -> Result<(), StoreError> {
        let doubtful = self.segments.lock().doubtful.clone();
        for segment in doubtful {
            let run = self.geometry.whole(Segment(segment));
            if let Err(e) = self
                .reader
                .disk()
                .allocate(run.addr, u64::from(run.sectors))
            {
                self.say_host_is_full("what it uses", &e);
                return Err(StoreError::NoSpace);
            }
            self.segments.lock().doubtful.remove(&segment);
        }
        Ok(())
    }

    fn say_host_is_full(&self, what: &str, e: &std::io::Error) {
        if !self.host_is_full.swap(true, Ordering::Relaxed) {
            let name = if self.sb.label.is_empty() {
                "the store"
            } else {
                self.sb.label.as_str()
            };
            log::warn!("the file system that holds {name} has no room for {what}: {e}");
        }
    }
}
