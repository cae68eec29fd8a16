//! A sparse store lives in a file, and the file system that holds it may be full: a segment is written only after it was allocated there.
//!
//! # Invariants
//! 1. A segment of a sparse store counts as ready only after its host has allocated it.

use crate::error::StoreError;
use crate::geometry::Segment;
use crate::store::Store;

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
                log::warn!("the file system that holds the store has no room for more of it: {e}");
                break;
            }
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
                log::warn!("the file system that holds the store has no room for what the store uses: {e}");
                return Err(StoreError::NoSpace);
            }
            self.segments.lock().doubtful.remove(&segment);
        }
        Ok(())
    }
}
