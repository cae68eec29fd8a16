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
    /// Begins the way to another state at a time. The cost is as seen from a point.
    pub(super) fn begin_transition(
        &self,
        own_point: usize,
        device_state: DeviceState,
        to: u8,
        begin: Time,
        tokens: StopLimit<'_>,
    ) -> Option<CandidateStep> {
        let here = &self.points[own_point];
        let route = self.routes[usize::from(device_state.power_state)][usize::from(to)]?;
        let power = |state| Cost::from(self.rest_power(state).get());
        let mut cost = route.more
            + (power(to) - power(device_state.power_state)) * time_between(begin, here.at);
        let mut full = device_state.bucket_full_at;
        // A stop pays with a token, with its price, or with both.
        match tokens {
            _ if !route.takes_token => {}
            StopLimit::Priced(prices) => cost += prices[own_point],
            StopLimit::Counted | StopLimit::Spared(_) => {
                let bucket = StopBucket::new(self.device.budget?);
                // Some time until the next point.
                if bucket.token_at(full)? > here.next.max(begin) {
                    return None;
                }
                full = bucket.take_token(full, begin);
                if let StopLimit::Spared(prices) = tokens {
                    cost += prices[own_point];
                }
            }
        }
        let free = begin + route.time;
        Some(CandidateStep {
            state: DeviceState {
                power_state: to,
                free_at: free,
                bucket_full_at: full,
                ..device_state
            },
            cost,
            transition: None,
        })
    }

    /// Returns the most that is saved by going up later from a state. A program that waits for a
    /// sleeping device is charged for, but behind other reads only once.
    pub(super) fn delay_gain(&self, state: u8) -> Power {
        let rise = self.power_rise(state);
        if self.serving.contains(&state) {
            rise
        } else {
            rise.saturating_sub(self.base)
        }
    }

    /// Returns how much more it may draw in another state that serves.
    pub(super) fn power_rise(&self, state: u8) -> Power {
        self.top_rest_power.saturating_sub(self.rest_power(state))
    }

    /// Returns the two times at which it may begin to go to a state that serves and draws no less,
    /// for the event of a point: so that it is there then, or at the point.
    pub(super) fn begin_bounds(
        &self,
        own_point: usize,
        device_state: DeviceState,
        to: u8,
    ) -> Option<(Time, Time)> {
        let now = self.points[own_point].at;
        let route = self.routes[usize::from(device_state.power_state)][usize::from(to)]?;
        // At the earliest when the device is free, at best so that it arrives in time.
        let just_in_time = device_state.free_at.max(time_before(now, route.time));
        // More than one read that waits for a slow state is better served in a faster one.
        // A queue in a slow state is never better (`rest`), so that it is not looked at.
        let is_backed_up =
            device_state.free_at.since(now) > self.longest[usize::from(device_state.power_state)];
        let may = self.rest_power(to) >= self.rest_power(device_state.power_state) && !is_backed_up;
        may.then_some((just_in_time, device_state.free_at.max(now)))
    }

    /// Returns the step to a state that serves, for a read at a point: it has the lower cost of
    /// both bounds, and is done as early as at the earlier one.
    pub(super) fn wake_for_read(
        &self,
        own_point: usize,
        device_state: DeviceState,
        to: u8,
        tokens: StopLimit<'_>,
    ) -> Option<CandidateStep> {
        if device_state.power_state == to {
            return Some(CandidateStep::no_action(device_state));
        }
        let now = self.points[own_point].at;
        let (first, last) = self.begin_bounds(own_point, device_state, to)?;
        let does_serve = self.serving.contains(&device_state.power_state);
        let step_at = |begin: Time| {
            let step = self.begin_transition(own_point, device_state, to, begin, tokens)?;
            let wait = step.state.free_at.since(now);
            // The wait behind work is charged with that work already.
            let wait = if does_serve {
                wait.min(step.state.free_at.since(begin))
            } else {
                wait
            };
            Some(CandidateStep {
                cost: step.cost + energy_over(self.base, wait),
                transition: Some((begin, ScheduledAction::Wake(to))),
                ..step
            })
        };
        let (early, late) = (step_at(first)?, step_at(last)?);
        // The later bound saves at most the rise over the difference, since the device may go
        // further up only when it is there.
        let late_cost = late.cost - energy_over(self.power_rise(to), last.since(first));
        Some(if late_cost < early.cost {
            CandidateStep {
                cost: late_cost,
                transition: late.transition,
                ..early
            }
        } else {
            early
        })
    }

    /// Returns the steps to a state that serves, for a burst that begins at a point, or as soon as
    /// it can then.
    pub(super) fn wake_for_burst(
        &self,
        own_point: usize,
        device_state: DeviceState,
        to: u8,
        tokens: StopLimit<'_>,
    ) -> impl Iterator<Item = CandidateStep> {
        let stays =
            (device_state.power_state == to).then_some(CandidateStep::no_action(device_state));
        let begins = self
            .begin_bounds(own_point, device_state, to)
            .filter(|_| device_state.power_state != to);
        let both = begins
            .into_iter()
            .flat_map(|(first, last)| [Some(first), (first < last).then_some(last)]);
        let steps = both.flatten().filter_map(move |begin| {
            let step = self.begin_transition(own_point, device_state, to, begin, tokens)?;
            Some(CandidateStep {
                transition: Some((begin, ScheduledAction::Wake(to))),
                ..step
            })
        });
        stays.into_iter().chain(steps)
    }
}
