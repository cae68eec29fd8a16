//! A clock that stands still until it is advanced.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use teal_env::Clock;
use teal_types::Timestamp;

/// A [`Clock`] under the test's control. Clones tell the same time.
#[derive(Debug, Clone)]
pub struct SimClock(Arc<Mutex<(Timestamp, Duration)>>);

impl SimClock {
    /// Makes a clock that shows `civil`, with monotonic time 0.
    pub fn new(civil: Timestamp) -> Self {
        Self(Arc::new(Mutex::new((civil, Duration::ZERO))))
    }

    /// Advances both times by `by`.
    pub fn advance(&self, by: Duration) {
        let (civil, monotonic) = &mut *self.0.lock();
        let secs =
            civil.secs + i64::try_from(by.as_secs()).expect("a test ends before the sun does");
        *civil = Timestamp::new(secs, civil.nanos + by.subsec_nanos());
        *monotonic += by;
    }

    /// Sets civil time, as when a user sets the clock; monotonic time goes on.
    pub fn set_civil(&self, to: Timestamp) {
        self.0.lock().0 = to;
    }
}

impl Default for SimClock {
    /// 2023-11-14 22:13:20 UTC.
    fn default() -> Self {
        Self::new(Timestamp::new(1_700_000_000, 0))
    }
}

impl Clock for SimClock {
    fn civil_time(&self) -> Timestamp {
        self.0.lock().0
    }
    fn monotonic_time(&self) -> Duration {
        self.0.lock().1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_only_on_demand() {
        let clock = SimClock::new(Timestamp::new(10, 999_999_999));
        let same = clock.clone();
        same.advance(Duration::new(1, 2));
        assert_eq!(
            (clock.civil_time(), clock.monotonic_time()),
            (Timestamp::new(12, 1), Duration::new(1, 2))
        );
        clock.set_civil(Timestamp::new(-5, 0));
        assert_eq!(
            (same.civil_time(), same.monotonic_time()),
            (Timestamp::new(-5, 0), Duration::new(1, 2))
        );
    }
}
