//! Civil and monotonic time.

use std::time::Duration;
use teal_types::Timestamp;

/// Tells the time. Civil time may jump; monotonic time never goes back.
pub trait Clock: Send + Sync {
    /// Civil time now, for file times.
    fn civil(&self) -> Timestamp;
    /// Time since some fixed start, for intervals and deadlines.
    fn monotonic(&self) -> Duration;
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn civil(&self) -> Timestamp {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        Timestamp::new(t.tv_sec, u32::try_from(t.tv_nsec).unwrap_or(0))
    }
    fn monotonic(&self) -> Duration {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Duration::new(t.tv_sec.unsigned_abs(), u32::try_from(t.tv_nsec).unwrap_or(0))
    }
}
