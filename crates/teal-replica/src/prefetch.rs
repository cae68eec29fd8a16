//! Prefetching content while a reader goes on.
//!
//! # Guarantees
//! 1. *In proportion*: there is never more unused prefetched content than the
//!    [`PrefetchWindow`](super::prefetch_window::PrefetchWindow) allows, counted from the last
//!    place where a reader had to wait. A reader that stops soon gets nothing more; one that reads
//!    on gets the next part when half of the last one is used.
//! 2. *Bounded*: at most [`AT_ONCE`] requests are under way, each for one reply. Nothing is asked
//!    of a server that did not answer a moment ago.
//! 3. *No waiting*: only a reader that needs the content waits for it. It comes on threads of its
//!    own, and is stored as needed content is.
//!
//! # How
//! A reader that has to wait, or uses prefetched content, [sets the
//! place](super::prefetch_target::PrefetchTarget::set_place). The threads fetch absent content near
//! it until the window is full or nothing is left. Without threads, a round with the server does
//! one step.

use super::fetch::{PART, wants_for};
use super::prefetch_target::ReadPlace;
use super::prefetch_window::FetchClaim;
use super::{Replica, SyncError};
use teal_proto::WantedRange;
use teal_types::ranges::ByteRanges;

/// Requests at the same time, beside those that readers wait for.
pub(super) const AT_ONCE: usize = 3;

/// Less than this part of the window is not worth a request.
const SMALL: u64 = 8;

impl Replica {
    /// Sends one request for content that should be prefetched by now, if there is any. For
    /// programs without threads.
    pub(super) fn fetch_due_ahead(&self) -> Result<(), SyncError> {
        let place = self.lookout().current_place();
        let Some(place) = place else { return Ok(()) };
        if !self.fetch_ahead(place)? {
            self.lookout().clear_place(place);
        }
        Ok(())
    }

    /// Sends one request for content near a place, if the window has space. Returns whether there
    /// was any.
    fn fetch_ahead(&self, place: ReadPlace) -> Result<bool, SyncError> {
        self.try_reach()?;
        let mut flight = self.flights().begin_claim();
        let wants = self.wants_ahead(place, &mut flight)?;
        if wants.is_empty() {
            return Ok(false);
        }
        self.room_for(wants.iter().map(|want| want.len).sum());
        let begun = self.monotonic();
        // Nothing of it is needed yet: a reader finds out itself if some has changed or is damaged.
        self.read_content((place.0, 0), &wants)?;
        self.content_ahead()
            .note_duration(self.monotonic().saturating_sub(begun));
        Ok(true)
    }

    fn wants_ahead(
        &self,
        (no, from): ReadPlace,
        flight: &mut FetchClaim<'_>,
    ) -> Result<Vec<WantedRange>, SyncError> {
        // One thread at a time looks for neighbours: two would find the same ones.
        let _looking = self.lookout().looking.lock();
        let (size, room) = self.content_ahead().available();
        // Little room: a request would cost more than it brings.
        if room == 0 || room < size / SMALL {
            return Ok(Vec::new());
        }
        let room = room.min(PART);
        let mut range = ByteRanges::default();
        range.add(from, from.saturating_add(room));
        let (note, mut absent) = self.take_absent(no, &range, flight)?;
        let near = vec![(no, note.data_seq, absent.clone())];
        // The reader will ask the drive itself.
        if !absent.is_empty()
            && self
                .drive_set()
                .without_cheaper(near, self.monotonic())
                .is_empty()
        {
            // A drive has it.
            absent = ByteRanges::default();
        }
        self.content_ahead()
            .note_prefetched(no, from, absent.byte_count());
        let mut wants = wants_for(no, &note, &absent);
        wants.extend(self.neighbour_wants(
            no,
            room - absent.byte_count().min(room),
            size,
            flight,
        )?);
        Ok(wants)
    }
}

/// Prefetches content until the replica stops; the body of a thread.
pub(super) fn run_ahead(replica: &Replica) {
    while let Some(place) = replica.lookout().wait_for_place() {
        match replica.fetch_ahead(place) {
            // Nothing is left to fetch around this place.
            Ok(true) => {}
            Ok(false) => replica.lookout().clear_place(place),
            // Prefetching only ever saves time: a failure is no reader's error.
            Err(e) => {
                log::debug!("nothing comes ahead: {e}");
                replica.lookout().clear_place(place);
            }
        }
    }
}
