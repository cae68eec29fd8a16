//! The target of prefetching: the place that was read last.

use parking_lot::{Condvar, Mutex};
use teal_types::ObjectNo;
use teal_volume::{LockRank, RankedMutex};

/// A place in an object.
pub(super) type ReadPlace = (ObjectNo, u64);

/// The place near which content should be prefetched.
#[derive(Debug)]
pub(super) struct PrefetchTarget {
    /// Guards itself.
    state: Mutex<TargetState>,
    given: Condvar,
    /// Held while a thread chooses content to fetch. The store is read under it, and nothing else
    /// waits.
    pub(super) looking: RankedMutex<()>,
}

#[derive(Debug, Default)]
struct TargetState {
    place: Option<ReadPlace>,
    stop: bool,
}

impl Default for PrefetchTarget {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            given: Condvar::new(),
            looking: RankedMutex::new(LockRank::Prefetch, ()),
        }
    }
}

impl PrefetchTarget {
    /// Sets the place at which content was needed last.
    pub(super) fn set_place(&self, place: ReadPlace) {
        self.state.lock().place = Some(place);
        self.given.notify_all();
    }

    /// Clears the place: nothing more is to be fetched near it.
    pub(super) fn clear_place(&self, place: ReadPlace) {
        let mut state = self.state.lock();
        // Another reader may have given a new place meanwhile.
        if state.place == Some(place) {
            state.place = None;
        }
    }

    /// Waits for a place; `None`: it is time to stop.
    pub(super) fn wait_for_place(&self) -> Option<ReadPlace> {
        let mut state = self.state.lock();
        // The condition is looked at under the lock, so that no signal is missed.
        self.given
            .wait_while(&mut state, |state| state.place.is_none() && !state.stop);
        if state.stop { None } else { state.place }
    }

    /// Returns the place, if there is one.
    pub(super) fn current_place(&self) -> Option<ReadPlace> {
        self.state.lock().place
    }

    pub(super) fn stop(&self) {
        self.state.lock().stop = true;
        self.given.notify_all();
    }
}
