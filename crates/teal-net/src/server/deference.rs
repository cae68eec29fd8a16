//! Deference: while a machine that asks for little is being served, one that asks for much is
//! slowed down to a part of the server.
//!
//! Turns within the server let each machine do one thing at a time, but processors, TLS and the
//! disk are shared by whoever comes. A machine that sends what it can over all its connections
//! would take what is left of them, and everybody else would wait for it at every step.
//!
//! # Model
//! A *unit* is one request, or [`UNIT_BYTES`] of a request or an answer. A machine's usage is the
//! number of its units in the last seconds, of which those of a second ago count half
//! (exponential decay). A machine *defers* to another one if the other one has begun or ended a
//! request within [`ACTIVE`], and uses at most a [`LIGHT`]th of what it uses itself.
//!
//! # Guarantees
//! 1. *Alone at full speed*: a machine defers to nobody who has been silent for [`ACTIVE`].
//! 2. *Equals share*: machines of similar usage, and machines below [`HEAVY_UNITS`], defer to
//!    nobody.
//! 3. *No starvation*: a machine that defers begins a request after [`SHARE`] times the time that
//!    its requests take, at most [`SHARE`] times [`SERVICE_MAX`] after the one before, and no
//!    request waits longer than [`WAIT`].

use crate::limits::WAIT;
use std::time::Duration;

/// The bytes of a request or an answer that count as much as one request.
const UNIT_BYTES: usize = 16 << 10;
/// The usage below which a machine defers to nobody: some hundred requests in a second.
const HEAVY_UNITS: f64 = 200.0;
/// A machine defers to others that use this many times less.
const LIGHT: f64 = 4.0;
/// The time for which a machine counts as being served after its last request or answer.
const ACTIVE: Duration = Duration::from_millis(25);
/// A machine that defers takes one part in so many of the time.
const SHARE: u32 = 4;
/// A request that takes longer counts as this long: it may be one that waits for news.
const SERVICE_MAX: Duration = Duration::from_millis(20);
/// The time in which usage decays to half.
const HALF_LIFE: Duration = Duration::from_secs(1);

/// What one machine has lately used of the server.
#[derive(Debug, Default)]
pub(super) struct PeerUsage {
    /// The decayed number of units, as of `touched`.
    units: f64,
    /// The time of the last request or answer.
    touched: Duration,
    /// The moving average of the time that a request takes; at most [`SERVICE_MAX`].
    service: Duration,
    /// The time at which the next request may begin while the machine defers.
    next_begin: Duration,
}

impl PeerUsage {
    /// Counts a request that begins or ends, with the bytes of it that have come or go.
    pub(super) fn count(&mut self, bytes: usize, now: Duration) {
        self.units = self.units_at(now) + 1.0 + bytes as f64 / UNIT_BYTES as f64;
        self.touched = self.touched.max(now);
    }

    /// Learns how long a request has taken.
    pub(super) fn learn_service(&mut self, took: Duration) {
        let took = took.min(SERVICE_MAX);
        self.service = (self.service * 7 + took) / 8;
        debug_assert!(self.service <= SERVICE_MAX, "an average of bounded times");
    }

    /// Returns the usage at `now`, in units.
    pub(super) fn units_at(&self, now: Duration) -> f64 {
        let age = now.saturating_sub(self.touched);
        self.units * (-age.as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2()
    }

    /// Returns whether the machine uses so much that it may have to defer to others.
    pub(super) fn is_heavy(&self, now: Duration) -> bool {
        self.units_at(now) >= HEAVY_UNITS
    }

    /// Returns whether a machine that uses `units` defers to this one.
    pub(super) fn goes_before(&self, units: f64, now: Duration) -> bool {
        let is_active = now < self.touched + ACTIVE;
        is_active && self.units_at(now) * LIGHT <= units
    }

    /// Takes the next place among the machine's own requests, one behind the other; returns how
    /// long the request waits for it.
    pub(super) fn take_place(&mut self, now: Duration) -> Duration {
        let begin = self.next_begin.max(now);
        // Bounded, so that requests which were given up while they waited are not waited for.
        self.next_begin = (begin + self.service * SHARE).min(now + WAIT);
        begin - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn usage(units: usize) -> PeerUsage {
        let mut usage = PeerUsage::default();
        usage.count((units - 1) * UNIT_BYTES, NOW);
        usage
    }

    #[test]
    fn usage_decays_by_half_each_second() {
        let usage = usage(800);
        assert!(usage.is_heavy(NOW) && usage.is_heavy(NOW + HALF_LIFE * 2));
        assert!(!usage.is_heavy(NOW + HALF_LIFE * 2 + Duration::from_millis(10)));
    }

    #[test]
    fn who_uses_much_less_and_is_served_goes_before() {
        let light = usage(10);
        assert!(light.goes_before(40.0, NOW));
        assert!(!light.goes_before(39.0, NOW), "they are alike");
        assert!(!light.goes_before(40.0, NOW + ACTIVE), "it is silent");
    }

    #[test]
    fn places_follow_each_other_by_the_time_that_requests_take() {
        let mut heavy = usage(1000);
        assert_eq!(
            heavy.take_place(NOW),
            Duration::ZERO,
            "nothing is known yet"
        );
        for _ in 0..100 {
            // One that waits for news counts little.
            heavy.learn_service(Duration::from_secs(30));
        }
        let gap = SERVICE_MAX * SHARE;
        let almost = |wait: Duration, places: u32| {
            let expected = gap * places;
            wait <= expected && wait + Duration::from_millis(1) * places >= expected
        };
        assert_eq!(heavy.take_place(NOW), Duration::ZERO);
        assert!(almost(heavy.take_place(NOW), 1));
        assert!(almost(heavy.take_place(NOW), 2));
        let rested = NOW + Duration::from_secs(1);
        assert_eq!(heavy.take_place(rested), Duration::ZERO);
    }
}
