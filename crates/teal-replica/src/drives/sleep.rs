//! Whether a drive sleeps, and when it is woken: ski rental, as BlueFS's ghost hints have it
//! (4.3.9).
//!
//! # Guarantees
//! 1. A drive whose profile knows a state in which it serves nothing is taken to be there once it
//!    has not been used for as long as going there pays.
//! 2. *Ski rental*: it is woken when what was lost, because something else served in its place, is
//!    what its waking costs; so at most twice the least is spent. What was lost before a pause in
//!    which sleeping paid does not count.
//! 3. Nothing here waits: who reads is served by somebody else meanwhile.

use super::choice::to_span;
use std::time::Duration;
use teal_energy::Profile;
use teal_energy::device::DeviceModel;
use teal_energy::policy::choice::{CostWeights, PredictedRead, WeightedCost};
use teal_types::{Energy, TimeSpan};

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct SleepTracker {
    /// It sleeps after so long.
    after: TimeSpan,
    /// Going down and up.
    trip: Energy,
    used: Duration,
    lost: WeightedCost,
    last: Duration,
}

impl SleepTracker {
    /// Of a drive of this profile, used `now`; `None`: it never sleeps.
    pub(super) fn for_profile(profile: &Profile, now: Duration) -> Option<Self> {
        let power = DeviceModel::new(profile).ok()?.power;
        let asleep = power
            .state_ids()
            .filter(|state| !power.serves(*state))
            .min_by_key(|state| power.state_power(*state))?;
        let trip = power.round_trip(power.nearest_serving(asleep), asleep)?;
        let (after, last) = (trip.break_even()?, now);
        Some(Self {
            after,
            trip: trip.energy,
            used: now,
            lost: WeightedCost::default(),
            last,
        })
    }

    pub(super) fn note_use(&mut self, now: Duration) {
        self.used = self.used.max(now);
    }

    /// As if nobody had used it for a day.
    #[cfg(test)]
    pub(super) fn sleep_long_ago(&mut self) {
        self.used = Duration::ZERO;
        self.after = self.after.min(TimeSpan::from_secs(1));
    }

    pub(super) fn is_asleep(&self, now: Duration) -> bool {
        to_span(now.saturating_sub(self.used)) > self.after
    }

    /// Something else has served at this cost what would have cost `ideal` here; whether it is to
    /// be woken.
    pub(super) fn count_loss(
        &mut self,
        (served, ideal): (WeightedCost, WeightedCost),
        weights: CostWeights,
        now: Duration,
    ) -> bool {
        if to_span(now.saturating_sub(self.last)) > self.after {
            self.lost = WeightedCost::default();
        }
        self.last = now;
        self.lost.0 += served.0.saturating_sub(ideal.0);
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
