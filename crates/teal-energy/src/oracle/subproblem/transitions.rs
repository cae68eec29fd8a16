//! The steps that change a device's power state: when a transition begins, and its cost.
//!
//! # Guarantees
//! 1. Of a choice of times with linear cost, one of the two bounds is taken.

use super::{
    CandidateStep, Cost, DeviceState, DeviceSubproblem, StopLimit, energy_over, time_before,
    time_between,
};
use crate::oracle::device_search::ScheduledAction;
use crate::oracle::stop_bucket::StopBucket;
use teal_types::{Power, Time};

impl DeviceSubproblem<'_> {
    /// Begins the way to another state at a time: where it is then, and what that costs as seen
    /// from a point.
    pub(super) fn begin_transition(
        &self,
        own: usize,
        spot: DeviceState,
        to: u8,
        begin: Time,
        tokens: StopLimit<'_>,
    ) -> Option<CandidateStep> {
        let here = &self.points[own];
        let route = self.routes[usize::from(spot.power_state)][usize::from(to)]?;
        let power = |state| Cost::from(self.rest_power(state).get());
        let mut cost =
            route.more + (power(to) - power(spot.power_state)) * time_between(begin, here.at);
        let mut full = spot.bucket_full_at;
        match tokens {
            _ if !route.takes_token => {}
            StopLimit::Priced(prices) => cost += prices[own],
            StopLimit::Counted | StopLimit::Spared(_) => {
                let bucket = StopBucket::new(self.device.budget?);
                // Some time until the next point.
                if bucket.token_at(full)? > here.next.max(begin) {
                    return None;
                }
                full = bucket.take_token(full, begin);
                if let StopLimit::Spared(prices) = tokens {
                    cost += prices[own];
                }
            }
        }
        let free = begin + route.time;
        Some(CandidateStep {
            state: DeviceState {
                power_state: to,
                free_at: free,
                bucket_full_at: full,
                ..spot
            },
            cost,
            transition: None,
        })
    }

    /// Returns what going up later from a state saves at most. Who waits for a device that sleeps
    /// is charged for, behind reads only once.
    pub(super) fn delay_gain(&self, state: u8) -> Power {
        let rise = self.power_rise(state);
        if self.serving.contains(&state) {
            rise
        } else {
            rise.less(self.base)
        }
    }

    /// How much more it may draw in another state that serves.
    pub(super) fn power_rise(&self, state: u8) -> Power {
        self.top_rest_power.less(self.rest_power(state))
    }

    /// When it may begin to go to a state that serves and draws no less, for what comes at a point:
    /// so that it is there then, or then.
    pub(super) fn begin_bounds(
        &self,
        own: usize,
        spot: DeviceState,
        to: u8,
    ) -> Option<(Time, Time)> {
        let now = self.points[own].at;
        let route = self.routes[usize::from(spot.power_state)][usize::from(to)]?;
        let just_in_time = spot.free_at.max(time_before(now, route.time));
        // More than one read that waits for a slow state is better served in a faster one.
        let is_backed_up = spot.free_at.since(now) > self.longest[usize::from(spot.power_state)];
        let may = self.rest_power(to) >= self.rest_power(spot.power_state) && !is_backed_up;
        may.then_some((just_in_time, spot.free_at.max(now)))
    }

    /// The way to a state that serves for a read at a point: the cheaper of both bounds, done as
    /// early as in the other.
    pub(super) fn wake_for_read(
        &self,
        own: usize,
        spot: DeviceState,
        to: u8,
        tokens: StopLimit<'_>,
    ) -> Option<CandidateStep> {
        if spot.power_state == to {
            return Some(CandidateStep::no_action(spot));
        }
        let now = self.points[own].at;
        let (first, last) = self.begin_bounds(own, spot, to)?;
        let does_serve = self.serving.contains(&spot.power_state);
        let way = |begin: Time| {
            let way = self.begin_transition(own, spot, to, begin, tokens)?;
            let wait = way.state.free_at.since(now);
            // Who works while somebody waits is charged for that already.
            let wait = if does_serve {
                wait.min(way.state.free_at.since(begin))
            } else {
                wait
            };
            Some(CandidateStep {
                cost: way.cost + energy_over(self.base, wait),
                transition: Some((begin, ScheduledAction::Wake(to))),
                ..way
            })
        };
        let (early, late) = (way(first)?, way(last)?);
        // It may go on up from there only when it is done.
        let kind = late.cost - energy_over(self.power_rise(to), last.since(first));
        Some(if kind < early.cost {
            CandidateStep {
                cost: kind,
                transition: late.transition,
                ..early
            }
        } else {
            early
        })
    }

    /// The ways to a state that serves for a burst that begins at a point, or as soon as it can
    /// then.
    pub(super) fn wake_for_burst(
        &self,
        own: usize,
        spot: DeviceState,
        to: u8,
        tokens: StopLimit<'_>,
    ) -> impl Iterator<Item = CandidateStep> {
        let stays = (spot.power_state == to).then_some(CandidateStep::no_action(spot));
        let begins = self
            .begin_bounds(own, spot, to)
            .filter(|_| spot.power_state != to);
        let both = begins
            .into_iter()
            .flat_map(|(first, last)| [Some(first), (first < last).then_some(last)]);
        let ways = both.flatten().filter_map(move |begin| {
            let way = self.begin_transition(own, spot, to, begin, tokens)?;
            Some(CandidateStep {
                transition: Some((begin, ScheduledAction::Wake(to))),
                ..way
            })
        });
        stays.into_iter().chain(ways)
    }
}
