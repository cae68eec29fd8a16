//! The limits of a server, and the measure of requests per second.

use std::time::Duration;

/// The limits of a server. A request that exceeds a limit is refused in words, or waits where that
/// is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransportLimits {
    /// Bytes of one message, request or answer, without what the transport adds. 4 MiB.
    pub message_bytes: usize,
    /// Connections of enrolled machines at a time. 1024.
    pub connections: usize,
    /// Connections of one enrolled machine at a time; one would do, but a machine that has moved
    /// leaves dead ones. 8.
    pub connections_per_peer: usize,
    /// Connections in the handshake at a time; a newcomer beyond that takes the place of the
    /// oldest. 64.
    pub handshakes: usize,
    /// Connections without a certificate at a time, after the handshake; a newcomer beyond that
    /// takes the place of the oldest. 64.
    pub strangers: usize,
    /// Requests in progress at a time, each of which occupies a blocking thread of the runtime; so
    /// does every client that waits for news. 2048.
    pub requests: usize,
    /// Requests in progress at a time of one machine; more wait. 32.
    pub requests_per_peer: usize,
    /// Requests of one machine per second, averaged over a second; more wait for up to a second.
    /// 5000.
    pub requests_per_second: u32,
    /// Enrolments per second, of all machines together; more wait for up to a second. 5.
    pub enrolments_per_second: u32,
    /// The time that a new connection has to finish its handshake, and again to send a request;
    /// enrolling may take thrice as long. 10 seconds.
    pub patience: Duration,
    /// The time that a request may take to arrive, from its first byte to its last; it occupies a
    /// place meanwhile. 2 minutes.
    pub arrival: Duration,
    /// The time that a connection may be silent before it is asked for a sign of life; it then has
    /// `patience` to answer. 5 minutes: each time wakes a machine that may be idle.
    pub silence: Duration,
}

impl Default for TransportLimits {
    fn default() -> Self {
        Self {
            message_bytes: 4 << 20,
            connections: 1024,
            connections_per_peer: 8,
            handshakes: 64,
            strangers: 64,
            requests: 2048,
            requests_per_peer: 32,
            requests_per_second: 5000,
            enrolments_per_second: 5,
            patience: Duration::from_secs(10),
            arrival: Duration::from_secs(120),
            silence: Duration::from_secs(300),
        }
    }
}

/// The longest time for which a limit delays a request before it is refused.
pub(crate) const WAIT: Duration = Duration::from_secs(1);
/// The most that may be done at once after a rest.
const BURST: Duration = Duration::from_secs(1);

/// Lets through a number of things per second, counted on a monotonic clock.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    interval: Duration,
    /// When all that was let through so far will be paid for.
    paid: Duration,
}

impl TokenBucket {
    pub(crate) fn new(per_second: u32) -> Self {
        Self {
            interval: Duration::from_secs(1) / per_second.max(1),
            paid: Duration::ZERO,
        }
    }

    /// Asks for one thing at `now`: how long it has to wait, or `None` if that would be longer than
    /// [`WAIT`].
    pub(crate) fn take(&mut self, now: Duration) -> Option<Duration> {
        // Each thing pushes the time of payment on; the difference to now is the debt.
        let paid = self.paid.max(now) + self.interval;
        let wait = paid.saturating_sub(now + BURST.max(self.interval));
        // A refusal costs nothing: only what is let through is paid for.
        if wait > WAIT {
            return None;
        }
        debug_assert!(self.paid <= paid, "debts grow until they are rested off");
        self.paid = paid;
        Some(wait)
    }

    /// Returns whether a new bucket would do as well.
    pub(crate) fn is_full(&self, now: Duration) -> bool {
        self.paid <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_who_is_connected_may_wait_for_news_and_ask_for_something_else() {
        let limits = TransportLimits::default();
        assert!(limits.requests >= 2 * limits.connections);
    }

    #[test]
    fn a_bucket_lets_through_a_burst_then_makes_wait_then_refuses_and_fills_again() {
        let mut bucket = TokenBucket::new(10);
        let now = Duration::from_secs(50);
        assert!((0..10).all(|_| bucket.take(now) == Some(Duration::ZERO)));
        let waits: Vec<_> = (0..10)
            .map(|_| bucket.take(now).unwrap().as_millis())
            .collect();
        assert_eq!(waits, [100, 200, 300, 400, 500, 600, 700, 800, 900, 1000]);
        assert_eq!(bucket.take(now), None);
        assert_eq!(
            bucket.take(now + Duration::from_millis(100)),
            Some(WAIT),
            "a refusal costs nothing"
        );
        assert!(!bucket.is_full(now + Duration::from_secs(2)));
        let rested = now + Duration::from_millis(2100);
        assert!(bucket.is_full(rested));
        assert_eq!(
            (0..30)
                .filter(|_| bucket.take(rested) == Some(Duration::ZERO))
                .count(),
            10
        );
    }

    #[test]
    fn a_bucket_of_nothing_lets_through_one_a_second() {
        let mut bucket = TokenBucket::new(0);
        assert_eq!(bucket.take(Duration::ZERO), Some(Duration::ZERO));
        assert_eq!(bucket.take(Duration::ZERO), Some(Duration::from_secs(1)));
        assert_eq!(bucket.take(Duration::ZERO), None);
    }
}
