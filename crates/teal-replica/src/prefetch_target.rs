//! Where something should be fetched ahead: the place that was read last.

use parking_lot::{Condvar, Mutex};
use teal_types::ObjectNo;
use teal_volume::{LockRank, RankedMutex};

/// A place in an object.
pub(super) type ReadPlace = (ObjectNo, u64);

/// Where something should come ahead.
#[derive(Debug)]
pub(super) struct PrefetchTarget {
    /// Guards itself.
    state: Mutex<TargetState>,
    given: Condvar,
    /// For who looks what should come; under it the store is read, nothing else waits.
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
    /// Something was needed there last.
    pub(super) fn set_place(&self, place: ReadPlace) {
        self.state.lock().place = Some(place);
        self.given.notify_all();
    }

    /// There is nothing more to come near there.
    pub(super) fn clear_place(&self, place: ReadPlace) {
        let mut state = self.state.lock();
        if state.place == Some(place) {
            state.place = None;
        }
    }

    /// Waits for a place; `None`: it is time to stop.
    pub(super) fn wait_for_place(&self) -> Option<ReadPlace> {
        let mut state = self.state.lock();
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
