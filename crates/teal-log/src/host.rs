//! A sparse store lives in a file, and the file system that holds it may be full: a segment is written only after it was allocated there.
//!
//! # Invariants
//! 1. A segment of a sparse store counts as ready only after its host has allocated it.
//! 2. That the host is full is said once, until it has given something again.

use crate::error::StoreError;
use crate::geometry::Segment;
use crate::store::Store;
use std::sync::atomic::Ordering;

impl Store {
    /// Lets the host allocate free segments until this much is ready; says so in the log when the host is full.
    pub(crate) fn host_more(&self, bytes: u64) {
        loop {
            let next = {
                let segments = self.segments.lock();
                if segments.ready_bytes() >= bytes { None } else { segments.next_free(false) }
            };
            let Some(segment) = next else { break };
            let run = self.geometry.whole(segment);
            if let Err(e) = self.reader.disk().allocate(run.addr, u64::from(run.sectors)) {
                self.say_host_is_full("more of it", &e);
                break;
            }
            self.host_is_full.store(false, Ordering::Relaxed);
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
            if let Err(e) = self.reader.disk().allocate(run.addr, u64::from(run.sectors)) {
                self.say_host_is_full("what it uses", &e);
                return Err(StoreError::NoSpace);
            }
            self.segments.lock().doubtful.remove(&segment);
        }
        Ok(())
    }

    fn say_host_is_full(&self, what: &str, e: &std::io::Error) {
        if !self.host_is_full.swap(true, Ordering::Relaxed) {
            let name = if self.sb.label.is_empty() { "the store" } else { self.sb.label.as_str() };
            log::warn!("the file system that holds {name} has no room for {what}: {e}");
        }
    }
}
