//! Content that comes before anybody asks for it, while whoever reads goes on.
//!
//! # Guarantees
//! 1. *In proportion*: of what nobody has used yet there is never more than the
//!    [`Window`](super::ahead::Window) says, from the last place where somebody had to wait. So who
//!    stops reading soon has nothing more come; who reads on has the next part come when half of it
//!    is used.
//! 2. *Bounded*: [`AT_ONCE`] requests at a time, each of one reply. Nothing is asked of a server
//!    that did not answer a moment ago.
//! 3. *Nobody waits* for it but who needs it: it comes on threads of its own, and enters as what
//!    was asked for does.
//!
//! # How
//! Whoever has to wait, or uses what came ahead, says [`where`](super::lookout::Lookout::give) that
//! was. The threads look what lies there and is absent, one after the other, until the window is
//! full or there is nothing. Without threads, a round with the server does it.

use super::fetch::{PART, wants_for};
use super::prefetch_target::ReadPlace;
use super::prefetch_window::FetchClaim;
use super::{Replica, SyncError};
use teal_proto::WantedRange;
use teal_types::ranges::ByteRanges;

/// Requests at the same time, beside those that somebody waits for.
pub(super) const AT_ONCE: usize = 3;

/// Less than this part of the window is not worth a request.
const SMALL: u64 = 8;

impl Replica {
    /// One request for what should come ahead by now, if there is anything; without a thread for
    /// it.
    pub(super) fn fetch_due_ahead(&self) -> Result<(), SyncError> {
        let place = self.lookout().current_place();
        let Some(place) = place else { return Ok(()) };
        if !self.fetch_ahead(place)? {
            self.lookout().clear_place(place);
        }
        Ok(())
    }

    /// One request for what lies near there, if the window has room; whether there was anything.
    fn fetch_ahead(&self, place: ReadPlace) -> Result<bool, SyncError> {
        self.try_reach()?;
        let mut flight = self.flights().begin_claim();
        let wants = self.wants_ahead(place, &mut flight)?;
        if wants.is_empty() {
            return Ok(false);
        }
        self.room_for(wants.iter().map(|want| want.len).sum());
        let begun = self.monotonic();
        // None of it is needed: that some is another one by now, or damaged, is for whoever needs
        // it.
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
        let _looking = self.lookout().looking.lock();
        let (size, room) = self.content_ahead().available();
        if room == 0 || room < size / SMALL {
            return Ok(Vec::new());
        }
        let room = room.min(PART);
        let mut range = ByteRanges::default();
        range.add(from, from.saturating_add(room));
        let (note, mut absent) = self.take_absent(no, &range, flight)?;
        let near = vec![(no, note.data_seq, absent.clone())];
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

/// A thread that has content come ahead.
pub(super) fn run_ahead(replica: &Replica) {
    while let Some(place) = replica.lookout().wait_for_place() {
        match replica.fetch_ahead(place) {
            Ok(true) => {}
            Ok(false) => replica.lookout().clear_place(place),
            Err(e) => {
                log::debug!("nothing comes ahead: {e}");
                replica.lookout().clear_place(place);
            }
        }
    }
}
