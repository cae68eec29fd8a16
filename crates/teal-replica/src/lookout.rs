//! Where something should be fetched ahead: the place that was read last.

use parking_lot::{Condvar, Mutex};
use teal_types::ObjectNo;
use teal_volume::{Rank, RankedMutex};

/// A place in an object.
pub(super) type Place = (ObjectNo, u64);

/// Where something should come ahead.
#[derive(Debug)]
pub(super) struct Lookout {
    /// Guards itself.
    state: Mutex<Near>,
    given: Condvar,
    /// For who looks what should come; under it the store is read, nothing else waits.
    pub(super) looking: RankedMutex<()>,
}

#[derive(Debug, Default)]
struct Near {
    place: Option<Place>,
    stop: bool,
}

impl Default for Lookout {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            given: Condvar::new(),
            looking: RankedMutex::new(Rank::Lookout, ()),
        }
    }
}

impl Lookout {
    /// Something was needed there last.
    pub(super) fn give(&self, place: Place) {
        self.state.lock().place = Some(place);
        self.given.notify_all();
    }

    /// There is nothing more to come near there.
    pub(super) fn done(&self, place: Place) {
        let mut state = self.state.lock();
        if state.place == Some(place) {
            state.place = None;
        }
    }

    /// Waits for a place; `None`: it is time to stop.
    pub(super) fn next(&self) -> Option<Place> {
        let mut state = self.state.lock();
        self.given
            .wait_while(&mut state, |state| state.place.is_none() && !state.stop);
        if state.stop { None } else { state.place }
    }

    /// Returns the place, if there is one.
    pub(super) fn place(&self) -> Option<Place> {
        self.state.lock().place
    }

    pub(super) fn stop(&self) {
        self.state.lock().stop = true;
        self.given.notify_all();
    }
}
