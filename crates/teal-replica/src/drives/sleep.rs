//! The sleep of a drive, and when it is woken: ski rental, as in BlueFS's ghost hints (4.3.9).
//!
//! # Guarantees
//! 1. A drive with a power state in which it serves nothing is assumed to sleep once it was idle
//!    for so long that going to sleep has paid.
//! 2. *Ski rental*: the drive is woken when the cost of serving its reads elsewhere adds up to the
//!    cost of waking it; so at most twice the least is spent. Costs from before a pause in which
//!    sleeping paid do not count.
//! 3. Nothing here waits: another source serves the reader meanwhile.

use super::choice::to_span;
use std::time::Duration;
use teal_energy::Profile;
use teal_energy::device::DeviceModel;
use teal_energy::policy::choice::{CostWeights, PredictedRead, WeightedCost};
use teal_types::{Energy, TimeSpan};

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct SleepTracker {
    /// The idle time after which the drive sleeps.
    after: TimeSpan,
    /// Going down and up.
    trip: Energy,
    used: Duration,
    lost: WeightedCost,
    last: Duration,
}

impl SleepTracker {
    /// Returns the tracker of a drive with this profile, used at `now`; `None` if it never sleeps.
    pub(super) fn for_profile(profile: &Profile, now: Duration) -> Option<Self> {
        let power = DeviceModel::new(profile).ok()?.power;
        // The mode with the least power that does not serve is the sleep.
        let asleep = power
            .state_ids()
            .filter(|state| !power.serves(*state))
            .min_by_key(|state| power.state_power(*state))?;
        let trip = power.round_trip(power.nearest_serving(asleep), asleep)?;
        let after = trip.break_even()?;
        let last = now;
        Some(Self {
            after,
            trip: trip.energy,
            used: now,
            lost: WeightedCost::default(),
            last,
        })
    }

    pub(super) fn note_use(&mut self, now: Duration) {
        // Clocks of several threads: the latest use counts.
        self.used = self.used.max(now);
    }

    /// Makes the drive look as if it had been idle for a day.
    #[cfg(test)]
    pub(super) fn sleep_long_ago(&mut self) {
        self.used = Duration::ZERO;
        self.after = self.after.min(TimeSpan::from_secs(1));
    }

    pub(super) fn is_asleep(&self, now: Duration) -> bool {
        // The disk is taken to sleep once the break-even time has passed: a policy that is
        // 2-competitive.
        to_span(now.saturating_sub(self.used)) > self.after
    }

    /// Counts a read that another source has served at cost `served` and that would have cost
    /// `ideal` here. Returns whether to wake the drive.
    pub(super) fn count_loss(
        &mut self,
        (served, ideal): (WeightedCost, WeightedCost),
        weights: CostWeights,
        now: Duration,
    ) -> bool {
        // After a long pause, a new account begins.
        if to_span(now.saturating_sub(self.last)) > self.after {
            self.lost = WeightedCost::default();
        }
        self.last = now;
        self.lost.0 += served.0.saturating_sub(ideal.0);
        // The account has reached the price of a wake-up.
        let is_enough = self.lost.0 > 0
            && self.lost.0
                >= weights
                    .weighted_cost(PredictedRead {
                        latency: TimeSpan::ZERO,
                        energy: self.trip,
                    })
                    .0;
        if is_enough {
            self.lost = WeightedCost::default();
        }
        is_enough
    }
}
