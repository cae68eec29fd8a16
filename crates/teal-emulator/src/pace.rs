//! The pace of modelled time: at once, on a clock of its own, or slept on the machine's.

use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use teal_env::{Clock, Timer};
use teal_types::{Time, TimeSpan, Timestamp};

/// A clock that goes on only when work is done. Clones tell the same time.
#[derive(Debug, Clone, Default)]
pub struct VirtualClock(Arc<Mutex<Time>>);

impl VirtualClock {
    /// Returns the time.
    pub fn now(&self) -> Time {
        *self.0.lock()
    }

    /// Lets time pass without requests.
    pub fn advance_by(&self, span: TimeSpan) {
        let mut now = self.0.lock();
        *now = *now + span;
    }

    /// Lets time pass until `time`, unless it is later already.
    pub fn advance_to(&self, time: Time) {
        let mut now = self.0.lock();
        // A clock never goes back, whichever of two requests is answered first.
        *now = time.max(*now);
    }
}

impl Clock for VirtualClock {
    /// Returns the time since the clock's start, as if that had been in 1970.
    fn civil_time(&self) -> Timestamp {
        let nanos = self.now().get();
        Timestamp::new(
            (nanos / 1_000_000_000) as i64,
            (nanos % 1_000_000_000) as u32,
        )
    }
    fn monotonic_time(&self) -> Duration {
        Duration::from_nanos(self.now().get())
    }
}

/// The pace of modelled time.
#[derive(Clone)]
pub enum EmulationPace {
    /// A request comes when the one before is done, and the clock goes on by what it takes: no time
    /// is spent waiting.
    Virtual(VirtualClock),
    /// A request comes when it comes, and is answered when the drive would have done it.
    Real {
        /// The clock that is waited for.
        timer: Arc<dyn Timer>,
        /// The drive's time zero.
        origin: Duration,
    },
}

impl fmt::Debug for EmulationPace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, Self::Virtual(_)) {
            "virtual time"
        } else {
            "real time"
        })
    }
}

impl EmulationPace {
    /// Makes a pace of real time, from now on.
    pub fn real_time(timer: Arc<dyn Timer>) -> Self {
        let origin = timer.monotonic_time();
        Self::Real { timer, origin }
    }

    /// Returns the drive's time now.
    pub fn now(&self) -> Time {
        match self {
            Self::Virtual(clock) => clock.now(),
            Self::Real { timer, origin } => {
                // The drive's time begins with the pace, and not with the machine.
                let nanos = timer.monotonic_time().saturating_sub(*origin).as_nanos();
                Time::after_start(TimeSpan::from_nanos(
                    u64::try_from(nanos).unwrap_or(u64::MAX),
                ))
            }
        }
    }

    /// Waits until it is `time`.
    pub fn wait_until(&self, time: Time) {
        match self {
            Self::Virtual(clock) => clock.advance_to(time),
            Self::Real { timer, origin } => {
                timer.wait_until(*origin + Duration::from_nanos(time.get()))
            }
        }
    }

    /// Returns whether waiting takes time.
    pub fn is_real(&self) -> bool {
        matches!(self, Self::Real { .. })
    }
}
