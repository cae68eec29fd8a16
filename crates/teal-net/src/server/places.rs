//! Places for peers that have not shown a certificate: when all are taken, the oldest peer loses
//! its place to the newcomer.
//!
//! # Guarantees
//! 1. At most so many places are taken at a time.
//! 2. A silent peer cannot hold back a newcomer: there is always a place, and the oldest
//!    connections go.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// A number of places.
#[derive(Debug)]
pub(super) struct StrangerPlaces {
    most: usize,
    /// Guards the taken places; held for look-ups only.
    taken: Mutex<TakenPlaces>,
}

#[derive(Debug, Default)]
struct TakenPlaces {
    next: u64,
    /// By age: what tells each that it has lost its place.
    by_age: BTreeMap<u64, Arc<Notify>>,
}

/// One place; given back when dropped.
#[derive(Debug)]
pub(super) struct StrangerPlace {
    places: Arc<StrangerPlaces>,
    number: u64,
    lost: Arc<Notify>,
}

impl StrangerPlaces {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most: most.max(1),
            taken: Mutex::default(),
        })
    }

    /// Takes a place, that of the oldest if all are taken.
    pub(super) fn take_place(self: &Arc<Self>) -> StrangerPlace {
        let lost = Arc::new(Notify::new());
        let mut taken = self.taken.lock();
        // The oldest has had the most time, so it is the one to go.
        if taken.by_age.len() >= self.most
            && let Some((_, oldest)) = taken.by_age.pop_first()
        {
            oldest.notify_one();
        }
        // Numbers go up, so the order of the map is the order of age.
        let number = taken.next;
        taken.next += 1;
        taken.by_age.insert(number, Arc::clone(&lost));
        assert!(
            taken.by_age.len() <= self.most,
            "whoever comes takes the place of another"
        );
        StrangerPlace {
            places: Arc::clone(self),
            number,
            lost,
        }
    }
}

impl StrangerPlace {
    /// Waits until the place has gone to a newcomer.
    pub(super) async fn wait_until_lost(&self) {
        self.lost.notified().await;
    }
}

impl Drop for StrangerPlace {
    fn drop(&mut self) {
        self.places.taken.lock().by_age.remove(&self.number);
    }
}
