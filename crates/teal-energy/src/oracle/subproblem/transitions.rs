//! The steps that change a device's power state: when a transition begins, and its cost.
//!
//! # Guarantees
//! 1. Of a choice of times with linear cost, one of the two bounds is taken.

use super::{
    CandidateStep, Cost, DeviceState, DeviceSubproblem, StopLimit, between, earlier, over,
};
use crate::oracle::device_search::ScheduledAction;
use crate::oracle::stop_bucket::StopBucket;
use teal_types::{Power, Time};

impl DeviceSubproblem<'_> {
    /// Begins the way to another state at a time: where it is then, and what that costs as seen
    /// from a point.
    pub(super) fn change(
        &self,
        own: usize,
        spot: DeviceState,
        to: u8,
        begin: Time,
        tokens: StopLimit<'_>,
    ) -> Option<CandidateStep> {
        let here = &self.own[own];
        let route = self.routes[usize::from(spot.state)][usize::from(to)]?;
        let power = |state| Cost::from(self.power(state).get());
        let mut cost = route.more + (power(to) - power(spot.state)) * between(begin, here.at);
        let mut full = spot.full;
        match tokens {
            _ if !route.takes_token => {}
            StopLimit::Priced(prices) => cost += prices[own],
            StopLimit::Counted | StopLimit::Spared(_) => {
                let bucket = StopBucket::new(self.device.budget?);
                // Some time until the next point.
                if bucket.opens(full)? > here.next.max(begin) {
                    return None;
                }
                full = bucket.take(full, begin);
                if let StopLimit::Spared(prices) = tokens {
                    cost += prices[own];
                }
            }
        }
        let free = begin + route.time;
        Some(CandidateStep {
            spot: DeviceState {
                state: to,
                free,
                full,
                ..spot
            },
            cost,
            deed: None,
        })
    }

    /// Returns what going up later from a state saves at most. Who waits for a device that sleeps
    /// is charged for, behind reads only once.
    pub(super) fn gains(&self, state: u8) -> Power {
        let rise = self.rise(state);
        if self.serving.contains(&state) {
            rise
        } else {
            rise.less(self.base)
        }
    }

    /// How much more it may draw in another state that serves.
    pub(super) fn rise(&self, state: u8) -> Power {
        self.top.less(self.power(state))
    }

    /// When it may begin to go to a state that serves and draws no less, for what comes at a point:
    /// so that it is there then, or then.
    pub(super) fn begins(&self, own: usize, spot: DeviceState, to: u8) -> Option<(Time, Time)> {
        let now = self.own[own].at;
        let route = self.routes[usize::from(spot.state)][usize::from(to)]?;
        let just_in_time = spot.free.max(earlier(now, route.time));
        // More than one read that waits for a slow state is better served in a faster one.
        let is_backed_up = spot.free.since(now) > self.longest[usize::from(spot.state)];
        let may = self.power(to) >= self.power(spot.state) && !is_backed_up;
        may.then_some((just_in_time, spot.free.max(now)))
    }

    /// The way to a state that serves for a read at a point: the cheaper of both bounds, done as
    /// early as in the other.
    pub(super) fn wake(
        &self,
        own: usize,
        spot: DeviceState,
        to: u8,
        tokens: StopLimit<'_>,
    ) -> Option<CandidateStep> {
        if spot.state == to {
            return Some(CandidateStep::none(spot));
        }
        let now = self.own[own].at;
        let (first, last) = self.begins(own, spot, to)?;
        let does_serve = self.serving.contains(&spot.state);
        let way = |begin: Time| {
            let way = self.change(own, spot, to, begin, tokens)?;
            let wait = way.spot.free.since(now);
            // Who works while somebody waits is charged for that already.
            let wait = if does_serve {
                wait.min(way.spot.free.since(begin))
            } else {
                wait
            };
            Some(CandidateStep {
                cost: way.cost + over(self.base, wait),
                deed: Some((begin, ScheduledAction::Wake(to))),
                ..way
            })
        };
        let (early, late) = (way(first)?, way(last)?);
        // It may go on up from there only when it is done.
        let kind = late.cost - over(self.rise(to), last.since(first));
        Some(if kind < early.cost {
            CandidateStep {
                cost: kind,
                deed: late.deed,
                ..early
            }
        } else {
            early
        })
    }

    /// The ways to a state that serves for a burst that begins at a point, or as soon as it can
    /// then.
    pub(super) fn wakes(
        &self,
        own: usize,
        spot: DeviceState,
        to: u8,
        tokens: StopLimit<'_>,
    ) -> impl Iterator<Item = CandidateStep> {
        let stays = (spot.state == to).then_some(CandidateStep::none(spot));
        let begins = self.begins(own, spot, to).filter(|_| spot.state != to);
        let both = begins
            .into_iter()
            .flat_map(|(first, last)| [Some(first), (first < last).then_some(last)]);
        let ways = both.flatten().filter_map(move |begin| {
            let way = self.change(own, spot, to, begin, tokens)?;
            Some(CandidateStep {
                deed: Some((begin, ScheduledAction::Wake(to))),
                ..way
            })
        });
        stays.into_iter().chain(ways)
    }
}
