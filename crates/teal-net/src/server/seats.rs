//! What each enrolled machine uses of the server: its connections, its requests in progress, its requests per second.
//!
//! # Guarantees
//! 1. One machine's limits do not depend on how it divides its requests among connections.
//! 2. A machine that is gone and has rested is forgotten: reconnecting gives nobody more than waiting would.

use super::Peer;
use crate::limits::{Bucket, Limits};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// All machines that are connected, or were a moment ago.
pub(super) struct Seats {
    per_peer: usize,
    requests_per_peer: usize,
    requests_per_second: u32,
    all: Arc<Semaphore>,
    /// Guards who is there; held for look-ups only.
    desks: Mutex<HashMap<Peer, Arc<Desk>>>,
}

/// One machine.
struct Desk {
    connections: Arc<Semaphore>,
    requests: Arc<Semaphore>,
    /// Guards the measure of requests per second; held for a computation only.
    rate: Mutex<Bucket>,
}

/// The place of one connection; given back when dropped.
pub(super) struct Seat {
    desk: Arc<Desk>,
    _one_of_all: OwnedSemaphorePermit,
    _one_of_the_peer: OwnedSemaphorePermit,
}

impl Seats {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            per_peer: limits.connections_per_peer.max(1),
            requests_per_peer: limits.requests_per_peer.max(1),
            requests_per_second: limits.requests_per_second,
            all: Arc::new(Semaphore::new(limits.connections.max(1))),
            desks: Mutex::new(HashMap::new()),
        }
    }

    /// A place for one more connection of `peer`, or why there is none.
    pub(super) fn take(&self, peer: Peer, now: Duration) -> Result<Seat, String> {
        let mut desks = self.desks.lock();
        // Whoever holds a seat or a request in progress holds the desk too.
        desks.retain(|_, desk| Arc::strong_count(desk) > 1 || !desk.rate.lock().is_full(now));
        let desk = desks.entry(peer).or_insert_with(|| {
            Arc::new(Desk {
                connections: Arc::new(Semaphore::new(self.per_peer)),
                requests: Arc::new(Semaphore::new(self.requests_per_peer)),
                rate: Mutex::new(Bucket::new(self.requests_per_second)),
            })
        });
        let one_of_the_peer = desk.connections.clone().try_acquire_owned();
        let one_of_the_peer = one_of_the_peer
            .map_err(|_| format!("this machine has {} connections already", self.per_peer))?;
        let one_of_all = self.all.clone().try_acquire_owned();
        let one_of_all = one_of_all.map_err(|_| "too many machines are connected".to_owned())?;
        Ok(Seat {
            desk: desk.clone(),
            _one_of_all: one_of_all,
            _one_of_the_peer: one_of_the_peer,
        })
    }
}

impl Seat {
    /// How long one more request has to wait for the sake of the rate; `None` if it is one too many.
    pub(super) fn pace(&self, now: Duration) -> Option<Duration> {
        self.desk.rate.lock().take(now)
    }

    /// The machine's requests in progress.
    pub(super) fn requests(&self) -> Arc<Semaphore> {
        self.desk.requests.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn peer(replica: u32) -> Peer {
        Peer { volume: 1, replica }
    }

    #[test]
    fn connections_are_limited_for_each_and_for_all_and_places_come_back() {
        let seats = Seats::new(&Limits {
            connections: 3,
            connections_per_peer: 2,
            ..Limits::default()
        });
        let (one, _two) = (
            seats.take(peer(1), NOW).unwrap(),
            seats.take(peer(1), NOW).unwrap(),
        );
        assert_eq!(
            seats.take(peer(1), NOW).err().unwrap(),
            "this machine has 2 connections already"
        );
        let _three = seats.take(peer(2), NOW).unwrap();
        assert_eq!(
            seats.take(peer(3), NOW).err().unwrap(),
            "too many machines are connected"
        );
        drop(one);
        assert!(seats.take(peer(3), NOW).is_ok());
    }

    #[test]
    fn reconnecting_does_not_refill_the_rate_and_the_rested_are_forgotten() {
        let seats = Seats::new(&Limits {
            requests_per_second: 1,
            ..Limits::default()
        });
        let first = seats.take(peer(1), NOW).unwrap();
        assert_eq!(
            (first.pace(NOW), first.pace(NOW)),
            (Some(Duration::ZERO), Some(Duration::from_secs(1)))
        );
        drop(first);
        let again = seats.take(peer(1), NOW).unwrap();
        assert_eq!(again.pace(NOW), None);
        drop(again);
        let _other = seats.take(peer(2), NOW + Duration::from_secs(10)).unwrap();
        assert_eq!(seats.desks.lock().len(), 1);
    }
}
