//! Learns from earlier idle times when an idle device is put to sleep.
//!
//! # Guarantees
//! 1. Until enough has been seen, a device sleeps when staying awake has cost as much as is lost if
//!    it is found asleep: at most twice the least possible.
//! 2. After that the time-out is the one that would have cost least on the idle times seen, older
//!    ones counting less; never longer than four times that.
//! 3. Only integers: buckets whose bounds grow by the square root of two.

use crate::breakeven::RoundTrip;
use crate::power::PowerModel;
use crate::profile::StateId;
use teal_types::{Energy, Power, TimeSpan};

/// Buckets up to more than a day.
const BUCKETS: usize = 56;
/// Counts are halved when they add up to this.
const MEMORY: u32 = 96;
/// Idle times to see before they are trusted.
const TRUSTED: u32 = 6;
/// The first bound.
const SHORTEST: u64 = 1_000_000;

/// Idle times of one device, by length.
#[derive(Debug, Clone)]
pub struct IdleTimes {
    counts: [u32; BUCKETS],
}

impl Default for IdleTimes {
    fn default() -> Self {
        Self {
            counts: [0; BUCKETS],
        }
    }
}

/// Returns the lower bound of a bucket: 1 ms times the square root of two to the power of its
/// number.
fn bucket_bound(bucket: usize) -> u64 {
    let whole = SHORTEST << (bucket / 2);
    if bucket.is_multiple_of(2) {
        whole
    } else {
        whole + whole * 414 / 1000
    }
}

/// Returns the cost of an idle time with a time-out after which the device goes down. `lost` is the
/// loss when it is found asleep: the way down and up, the wait for it, or the energy that others
/// spend in its place.
fn idle_cost(trip: &RoundTrip, timeout: TimeSpan, idle: TimeSpan, lost: Energy) -> Energy {
    if idle <= timeout {
        return trip.cost_awake(idle);
    }
    trip.cost_awake(timeout)
        + trip.asleep * idle.saturating_sub(timeout).saturating_sub(trip.time)
        + lost
}

impl IdleTimes {
    /// Adds an idle time that has ended.
    pub fn add_idle_time(&mut self, idle: TimeSpan) {
        let bucket = (0..BUCKETS)
            .rposition(|bucket| bucket_bound(bucket) <= idle.get())
            .unwrap_or(0);
        // Counts are in quarters, so that halving them does not lose a single observation at once.
        self.counts[bucket] += 4;
        // Halving lets older idle times count less.
        if self.counts.iter().sum::<u32>() > MEMORY * 4 {
            self.counts.iter_mut().for_each(|count| *count /= 2);
        }
    }

    fn seen_count(&self) -> u32 {
        self.counts.iter().sum::<u32>() / 4
    }

    /// Returns the best time-out before going down this way, and its cost on the idle times seen.
    /// `lost` is the cost of finding the device asleep. It is `None` if going down never pays.
    pub fn best_timeout(&self, trip: &RoundTrip, lost: Energy) -> Option<(TimeSpan, Energy)> {
        let saved = trip.awake.saturating_sub(trip.asleep);
        if saved == Power::ZERO {
            return None;
        }
        // Break-even of the loss: staying awake for this long costs as much as finding the device
        // asleep.
        let extra = lost.saturating_sub(trip.asleep * trip.time);
        let even = TimeSpan::from_nanos(extra.get().saturating_mul(1_000_000_000) / saved.get());
        let of = |timeout: TimeSpan| {
            let each = |bucket: usize| {
                // The upper bound, which is a time-out too: one that outlasts all of the bucket can
                // be chosen.
                idle_cost(
                    trip,
                    timeout,
                    TimeSpan::from_nanos(bucket_bound(bucket + 1)),
                    lost,
                ) * u64::from(self.counts[bucket])
            };
            (0..BUCKETS).map(each).sum::<Energy>()
        };
        // Ski rental: without knowledge of the future, waiting for break-even costs at most twice
        // the optimum.
        if self.seen_count() < TRUSTED {
            return Some((even, of(even)));
        }
        // A longer time-out would only pay on idle times that were never seen.
        let longest = even * 4;
        let bounds = (0..BUCKETS)
            .map(|bucket| TimeSpan::from_nanos(bucket_bound(bucket)))
            .filter(|bound| *bound <= longest);
        // Between two bounds the cost on the buckets does not change, so that the bounds are all
        // candidates.
        let candidates = [even, longest, TimeSpan::ZERO].into_iter().chain(bounds);
        candidates
            .map(|timeout| (of(timeout), timeout))
            .min()
            .map(|(energy, timeout)| (timeout, energy))
    }

    /// Returns the state to go down to from `awake` and the time-out before that; `None` if no
    /// lower state pays. `lost` returns the cost of finding the device in a state.
    pub fn best_state(
        &self,
        power: &PowerModel,
        awake: StateId,
        lost: impl Fn(StateId) -> Energy,
    ) -> Option<(StateId, TimeSpan)> {
        let below = power
            .state_ids()
            .filter(|state| power.state_power(*state) < power.state_power(awake));
        let options = below.filter_map(|state| {
            let trip = power.round_trip(awake, state)?;
            let (timeout, energy) = self.best_timeout(&trip, lost(state))?;
            Some((energy, timeout, state))
        });
        options.min().map(|(_, timeout, state)| (state, timeout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: RoundTrip = RoundTrip {
        awake: Power::from_milliwatts(1000),
        asleep: Power::ZERO,
        time: TimeSpan::from_secs(1),
        energy: Energy::from_joules(10),
    };

    fn seen(idle: &[(u64, u64)]) -> IdleTimes {
        let mut times = IdleTimes::default();
        for _ in 0..10 {
            for &(seconds, often) in idle {
                (0..often).for_each(|_| times.add_idle_time(TimeSpan::from_secs(seconds)));
            }
        }
        times
    }

    #[test]
    fn break_even_until_enough_is_known() {
        let mut times = IdleTimes::default();
        assert_eq!(
            times.best_timeout(&TRIP, TRIP.energy).unwrap().0,
            TimeSpan::from_secs(10)
        );
        (0..TRUSTED).for_each(|_| times.add_idle_time(TimeSpan::from_secs(1000)));
        assert_eq!(
            times.best_timeout(&TRIP, TRIP.energy).unwrap().0,
            TimeSpan::ZERO,
            "only long ones were seen"
        );
    }

    #[test]
    fn short_and_long_idle_times_are_told_apart() {
        // Nine pauses of a second, then half an hour: wait just longer than the short ones.
        let (timeout, _) = seen(&[(1, 9), (1800, 1)])
            .best_timeout(&TRIP, TRIP.energy)
            .unwrap();
        assert!(
            timeout > TimeSpan::from_secs(1) && timeout <= TimeSpan::from_millis(1500),
            "{timeout}"
        );
        // Pauses just longer than break-even are not worth a person's wait.
        let penalty = Energy::from_joules(20);
        let (timeout, _) = seen(&[(12, 1)])
            .best_timeout(&TRIP, TRIP.energy + penalty)
            .unwrap();
        assert!(timeout > TimeSpan::from_secs(12), "{timeout}");
    }

    #[test]
    fn old_habits_are_forgotten() {
        let mut times = seen(&[(1800, 10)]);
        (0..400).for_each(|_| times.add_idle_time(TimeSpan::from_secs(11)));
        let (timeout, _) = times
            .best_timeout(&TRIP, TRIP.energy + Energy::from_joules(20))
            .unwrap();
        assert!(timeout > TimeSpan::from_secs(11), "{timeout}");
    }

    #[test]
    fn nothing_sleeps_where_it_does_not_pay() {
        let flat = RoundTrip {
            asleep: Power::from_milliwatts(1000),
            ..TRIP
        };
        assert_eq!(IdleTimes::default().best_timeout(&flat, TRIP.energy), None);
        assert!(bucket_bound(BUCKETS) > TimeSpan::from_hours(24).get());
    }
}
