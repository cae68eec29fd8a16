//! Civil and monotonic time.

use std::time::Duration;
use teal_types::Timestamp;

/// Tells the time. Civil time may jump; monotonic time never goes back.
pub trait Clock: Send + Sync {
    /// Returns civil time now, for file times.
    fn civil_time(&self) -> Timestamp;
    /// Returns the time since some fixed start, for intervals and deadlines.
    fn monotonic_time(&self) -> Duration;
}

/// A clock that can be waited for.
pub trait Timer: Clock {
    /// Returns when [`Clock::monotonic_time`] has reached `until`; at once if it has.
    fn wait_until(&self, until: Duration);
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn civil_time(&self) -> Timestamp {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        Timestamp::new(t.tv_sec, u32::try_from(t.tv_nsec).unwrap_or(0))
    }
    fn monotonic_time(&self) -> Duration {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Duration::new(
            t.tv_sec.unsigned_abs(),
            u32::try_from(t.tv_nsec).unwrap_or(0),
        )
    }
}

impl Timer for SystemClock {
    fn wait_until(&self, until: Duration) {
        // A time beyond the kernel's range is never reached: the wait lasts for ever.
        let secs = i64::try_from(until.as_secs()).unwrap_or(i64::MAX);
        let until = rustix::time::Timespec {
            tv_sec: secs,
            tv_nsec: until.subsec_nanos().into(),
        };
        // Absolute, so that a signal costs nothing: it is asked again.
        while rustix::thread::clock_nanosleep_absolute(rustix::thread::ClockId::Monotonic, &until)
            == Err(rustix::io::Errno::INTR)
        {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_when_its_time_has_come() {
        let until = SystemClock.monotonic_time() + Duration::from_millis(3);
        SystemClock.wait_until(until);
        assert!(SystemClock.monotonic_time() >= until);
        SystemClock.wait_until(Duration::ZERO);
    }
}
