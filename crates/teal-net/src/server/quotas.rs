//! Quotas: the connections, the requests in progress and the requests per second that each enrolled
//! machine uses of the server.
//!
//! # Guarantees
//! 1. One machine's limits do not depend on how it divides its requests among connections.
//! 2. A machine that is gone and has rested is forgotten: reconnecting gives a machine no more than
//!    waiting would.
//! 3. While machines that ask for little are served, those that ask for much are slowed down
//!    ([`deference`](super::deference)).

use super::deference::PeerUsage;
use crate::limits::{TokenBucket, TransportLimits};
use crate::peer::CertifiedPeer;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The quotas of all machines that are connected, or were a moment ago.
pub(super) struct ConnectionQuotas {
    per_peer: usize,
    requests_per_peer: usize,
    requests_per_second: u32,
    all: Arc<Semaphore>,
    /// Guards the machines' quotas; held for look-ups only.
    quotas: Mutex<HashMap<CertifiedPeer, Arc<PeerQuota>>>,
}

/// The use that one machine makes of the server, and its limits.
struct PeerQuota {
    connections: Arc<Semaphore>,
    requests: Arc<Semaphore>,
    /// Guards the measure of requests per second; held for a computation only.
    rate: Mutex<TokenBucket>,
    /// Guards what the machine has used lately; held for a computation only, also under the lock of
    /// the table.
    usage: Mutex<PeerUsage>,
}

/// The share of one connection; given back when dropped.
pub(super) struct ConnectionQuota {
    quota: Arc<PeerQuota>,
    _one_of_all: OwnedSemaphorePermit,
    _one_of_the_peer: OwnedSemaphorePermit,
}

impl ConnectionQuotas {
    pub(super) fn new(limits: &TransportLimits) -> Self {
        Self {
            per_peer: limits.connections_per_peer.max(1),
            requests_per_peer: limits.requests_per_peer.max(1),
            requests_per_second: limits.requests_per_second,
            all: Arc::new(Semaphore::new(limits.connections.max(1))),
            quotas: Mutex::new(HashMap::new()),
        }
    }

    /// Returns the share of one more connection of `peer`, or the reason for which there is none.
    pub(super) fn take_quota(
        &self,
        peer: CertifiedPeer,
        now: Duration,
    ) -> Result<ConnectionQuota, String> {
        // One lock for the look-up and the entry, so that two connections cannot exceed the quota
        // together.
        let mut quotas = self.quotas.lock();
        // A connection and a request in progress hold the quota too, so the count says that the
        // machine is gone.
        quotas.retain(|_, quota| Arc::strong_count(quota) > 1 || !quota.rate.lock().is_full(now));
        let quota = quotas.entry(peer).or_insert_with(|| {
            Arc::new(PeerQuota {
                connections: Arc::new(Semaphore::new(self.per_peer)),
                requests: Arc::new(Semaphore::new(self.requests_per_peer)),
                rate: Mutex::new(TokenBucket::new(self.requests_per_second)),
                usage: Mutex::default(),
            })
        });
        // Tried before the place among all: a machine with too many connections takes nothing from
        // others.
        let one_of_the_peer = quota.connections.clone().try_acquire_owned();
        let one_of_the_peer = one_of_the_peer
            .map_err(|_| format!("this machine has {} connections already", self.per_peer))?;
        // A failure here gives the permit above back by dropping it.
        let one_of_all = self.all.clone().try_acquire_owned();
        let one_of_all = one_of_all.map_err(|_| "too many machines are connected".to_owned())?;
        Ok(ConnectionQuota {
            quota: quota.clone(),
            _one_of_all: one_of_all,
            _one_of_the_peer: one_of_the_peer,
        })
    }

    /// Returns how long one more request of the machine has to wait because others that ask for
    /// less are being served.
    pub(super) fn deference_delay(&self, of: &ConnectionQuota, now: Duration) -> Duration {
        let units = {
            let usage = of.quota.usage.lock();
            if !usage.is_heavy(now) {
                return Duration::ZERO;
            }
            usage.units_at(now)
        };
        let defers = self.quotas.lock().values().any(|other| {
            !Arc::ptr_eq(other, &of.quota) && other.usage.lock().goes_before(units, now)
        });
        if defers {
            of.quota.usage.lock().take_place(now)
        } else {
            Duration::ZERO
        }
    }
}

impl ConnectionQuota {
    /// Returns how long one more request has to wait for the sake of the rate; `None` if it is one
    /// too many.
    pub(super) fn rate_delay(&self, now: Duration) -> Option<Duration> {
        self.quota.rate.lock().take(now)
    }

    /// Returns the permits of the machine's requests in progress.
    pub(super) fn request_permits(&self) -> Arc<Semaphore> {
        self.quota.requests.clone()
    }

    /// Returns the account of what the machine's requests use.
    pub(super) fn usage(&self) -> UsageAccount {
        UsageAccount(self.quota.clone())
    }
}

/// The account of what a machine's requests use.
#[derive(Clone)]
pub(super) struct UsageAccount(Arc<PeerQuota>);

impl UsageAccount {
    /// Counts a request that begins or ends, with the bytes of it that have come or go.
    pub(super) fn count(&self, bytes: usize, now: Duration) {
        self.0.usage.lock().count(bytes, now);
    }

    /// Learns how long a request has taken.
    pub(super) fn learn_service(&self, took: Duration) {
        self.0.usage.lock().learn_service(took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use teal_types::{ReplicaNo, VolumeId};

    const NOW: Duration = Duration::from_secs(100);

    fn peer(replica: u32) -> CertifiedPeer {
        CertifiedPeer {
            volume: VolumeId::new(1),
            replica: ReplicaNo::new(replica),
        }
    }

    #[test]
    fn connections_are_limited_for_each_and_for_all_and_places_come_back() {
        let seats = ConnectionQuotas::new(&TransportLimits {
            connections: 3,
            connections_per_peer: 2,
            ..TransportLimits::default()
        });
        let (one, _two) = (
            seats.take_quota(peer(1), NOW).unwrap(),
            seats.take_quota(peer(1), NOW).unwrap(),
        );
        assert_eq!(
            seats.take_quota(peer(1), NOW).err().unwrap(),
            "this machine has 2 connections already"
        );
        let _three = seats.take_quota(peer(2), NOW).unwrap();
        assert_eq!(
            seats.take_quota(peer(3), NOW).err().unwrap(),
            "too many machines are connected"
        );
        drop(one);
        assert!(seats.take_quota(peer(3), NOW).is_ok());
    }

    #[test]
    fn who_asks_for_much_defers_to_who_asks_for_little() {
        let seats = ConnectionQuotas::new(&TransportLimits::default());
        let (heavy, light) = (
            seats.take_quota(peer(1), NOW).unwrap(),
            seats.take_quota(peer(2), NOW).unwrap(),
        );
        for _ in 0..100 {
            heavy.usage().learn_service(Duration::from_millis(10));
        }
        heavy.usage().count(64 << 20, NOW);
        let delays =
            |of: &ConnectionQuota, now| [0; 2].map(|_| seats.deference_delay(of, now).as_millis());
        assert_eq!(delays(&heavy, NOW), [0, 0], "nobody else is served");
        light.usage().count(1000, NOW);
        let [first, second] = delays(&heavy, NOW);
        assert_eq!(first, 0);
        assert!(
            (35..=40).contains(&second),
            "a quarter of the time: {second}"
        );
        assert_eq!(delays(&light, NOW), [0, 0]);
        let later = NOW + Duration::from_millis(100);
        assert_eq!(delays(&heavy, later), [0, 0], "the other one is silent");
        // Another one that asks for as much.
        light.usage().count(64 << 20, later);
        assert_eq!(delays(&heavy, later), [0, 0]);
    }

    #[test]
    fn reconnecting_does_not_refill_the_rate_and_the_rested_are_forgotten() {
        let seats = ConnectionQuotas::new(&TransportLimits {
            requests_per_second: 1,
            ..TransportLimits::default()
        });
        let first = seats.take_quota(peer(1), NOW).unwrap();
        assert_eq!(
            (first.rate_delay(NOW), first.rate_delay(NOW)),
            (Some(Duration::ZERO), Some(Duration::from_secs(1)))
        );
        drop(first);
        let again = seats.take_quota(peer(1), NOW).unwrap();
        assert_eq!(again.rate_delay(NOW), None);
        drop(again);
        let _other = seats
            .take_quota(peer(2), NOW + Duration::from_secs(10))
            .unwrap();
        assert_eq!(seats.quotas.lock().len(), 1);
    }
}
