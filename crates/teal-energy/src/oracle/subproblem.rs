//! One device's subproblem: the steps it may take at each of its points, and their cost.
//!
//! # How a schedule is written down
//! A device is in one *named state* at a time. The named state changes when a transition *begins*:
//! from then on the device is charged the rest power of the state it goes to, and the transition is
//! charged the difference between its energy and that. Work is charged its energy above resting. So
//! the cost is the rest power of the named state over time, plus a sum for each transition and each
//! piece of work; nothing else depends on times but the wait of programs.
//!
//! # Guarantees
//! 1. Costs are exact, in femtojoules; they may be negative where time is given back that was
//!    counted before.
//! 2. Every schedule of the simulator is, for this device, one of the schedules here at no greater
//!    cost. The cost of every choice of a time is linear in it between two bounds, so that one of
//!    them is best; where the choice also moves the time at which the device is free, the step has
//!    the lower cost of both bounds *and* the earlier of both times:
//!    - resting is charged as [`rest`] says;
//!    - a way down begins as soon as all requests are done: the rest power falls with it;
//!    - a way up for a read ends when the read comes, or begins then; a wanted device is never left
//!      asleep;
//!    - a burst begins at a point: one that lies between two points can be moved to one of them;
//!    - work takes its turn, in the order in which it comes; so no device is done earlier than
//!      [`DeviceState::free_at`];
//!    - a change that a burst must hold is paid for when it comes to the queue.
//! 3. A read that waits behind another waits for the time of that one's work, and behind a
//!    transition for its time. No read waits behind a burst.

mod points;
mod rest;
mod transitions;
mod work;

use super::device_search::ScheduledAction;
use super::problem::TracePoint;
use crate::device::{BurstTime, DeviceId, DeviceModel};
use crate::ledger::Femtojoules;
use crate::profile::StateId;
use crate::service::Job;
use crate::sim::{MachineTrace, SimulatedMachine};
use teal_types::{Power, Time, TimeSpan};

/// Femtojoules, which may be negative.
pub(super) type Cost = i128;

/// The state of a device just after a point, as the dynamic programming tells states apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct DeviceState {
    /// The power state that the device is in by name.
    pub(super) power_state: u8,
    /// The time at which the device is there and has done what was asked for. Zero when that is
    /// past.
    pub(super) free_at: Time,
    /// The number of the device's changes that are written.
    pub(super) written: u32,
    /// The time at which the bucket of stops is full again. Zero where it is, and where stops are
    /// not counted.
    pub(super) bucket_full_at: Time,
}

/// A step of a candidate: the state it leads to, its cost, and the action in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct CandidateStep {
    pub(super) state: DeviceState,
    pub(super) cost: Cost,
    /// The transition that it begins, if any, and the time.
    pub(super) transition: Option<(Time, ScheduledAction)>,
}

impl CandidateStep {
    /// Returns the step in which nothing is done.
    pub(super) fn no_action(device_state: DeviceState) -> Self {
        Self {
            state: device_state,
            cost: 0,
            transition: None,
        }
    }
}

/// The limit on a device's stops.
#[derive(Debug, Clone, Copy)]
pub(super) enum StopLimit<'t> {
    /// Counted by a bucket.
    Counted,
    /// Each has a price, by the device's own points.
    Priced(&'t [Cost]),
    /// By a bucket, and the prices tell the worth of keeping a token: for a plan, which cannot keep
    /// all candidates apart.
    Spared(&'t [Cost]),
}

/// A change in the device's queue.
#[derive(Debug, Clone, Copy)]
struct QueuedChange {
    /// The time at which it is of age, and the last moment at which a burst that holds it may
    /// begin.
    due: Time,
    latest: Time,
    /// The cost that is paid for it when it comes.
    prepaid: Cost,
    /// The load of those changes before this one that must be written.
    needed: WriteLoad,
}

/// The number of bytes and objects that a burst writes.
#[derive(Debug, Clone, Copy, Default)]
struct WriteLoad {
    bytes: u64,
    objects: u64,
}

/// The transition from one power state to another.
#[derive(Debug, Clone, Copy)]
struct TransitionRoute {
    time: TimeSpan,
    /// Its energy less the cost of resting in the state it leads to meanwhile.
    more: Cost,
    takes_token: bool,
}

/// A way to serve a read: the state, the cost beyond resting with the machine's while it works, and
/// the time.
pub(super) type ServingChoice = (u8, Cost, TimeSpan);

/// A point at which the device has something to do or to be told.
#[derive(Debug, Clone, Default)]
pub(super) struct DevicePoint {
    /// The number of the point among all points.
    pub(super) point: usize,
    at: Time,
    /// The time of the next one.
    next: Time,
    /// The number of changes so far.
    arrived: u32,
    is_end: bool,
    /// The ways to serve the read of this point.
    pub(super) reads: Vec<ServingChoice>,
}

/// One device's part of the relaxed problem.
#[derive(Debug, Clone)]
pub(super) struct DeviceSubproblem<'a> {
    device: &'a DeviceModel,
    base: Power,
    rest_powers: Vec<Power>,
    serving: Vec<u8>,
    /// For each state that serves: the time of bursts, and the cost of their first place beyond
    /// resting.
    bursts: Vec<(u8, BurstTime, Cost)>,
    /// By state: the longest time that it works at once for a waiting program, if it can go up from
    /// there meanwhile.
    longest: Vec<TimeSpan>,
    /// By from and to.
    routes: Vec<Vec<Option<TransitionRoute>>>,
    /// The greatest power it is charged at rest in a state that serves.
    top_rest_power: Power,
    start_power_state: u8,
    changes: Vec<QueuedChange>,
    /// The load of all changes that must be written.
    total_load: WriteLoad,
    /// The points at which this device has something to do or to be told, in order.
    pub(super) points: Vec<DevicePoint>,
}

fn cost_of(job: &Job) -> Cost {
    let exact: Femtojoules = job
        .parts()
        .iter()
        .map(crate::service::JobPart::exact_energy)
        .sum();
    Cost::try_from(exact).unwrap_or(Cost::MAX)
}

fn energy_over(power: Power, span: TimeSpan) -> Cost {
    Cost::from(power.get()) * Cost::from(span.get())
}

/// Returns the nanoseconds from one time to another, negative if that is back.
fn time_between(from: Time, to: Time) -> Cost {
    Cost::from(to.since(from).get()) - Cost::from(from.since(to).get())
}

/// Returns a time that much earlier, at the earliest the beginning.
fn time_before(time: Time, span: TimeSpan) -> Time {
    Time::after_start(time.since(Time::ZERO).saturating_sub(span))
}

impl<'a> DeviceSubproblem<'a> {
    pub(super) fn new(
        world: &'a SimulatedMachine,
        trace: &MachineTrace,
        points: &[TracePoint],
        id: DeviceId,
        late: TimeSpan,
    ) -> Self {
        let device = &world.devices[id.index()];
        let power = &device.power;
        let rest::RestCharges { powers, longest } =
            rest::rest_charges(device, id, world.base, trace);
        let route = |from, to: StateId| {
            let route = power.route(from, to)?;
            let takes_token = device.budget.is_some() && power.time_to_cycle(from, to).is_some();
            // From its beginning the device is charged the rest power of the state it goes to; the
            // transition costs the rest.
            let more = Cost::from(route.energy.get()) * 1_000_000_000
                - energy_over(powers[to.index()], route.time);
            Some(TransitionRoute {
                time: route.time,
                more,
                takes_token,
            })
        };
        let routes: Vec<Vec<_>> = power
            .state_ids()
            .map(|a| power.state_ids().map(|b| route(a, b)).collect())
            .collect();
        let serving: Vec<u8> = power
            .state_ids()
            .filter(|s| power.serves(*s))
            .map(|s| s.index() as u8)
            .collect();
        let mut subproblem = Self {
            device,
            base: world.base,
            top_rest_power: serving
                .iter()
                .map(|state| powers[usize::from(*state)])
                .max()
                .unwrap_or_default(),
            rest_powers: powers,
            serving,
            bursts: Vec::new(),
            longest,
            routes,
            start_power_state: world.start_states[id.index()].index() as u8,
            changes: Vec::new(),
            total_load: Default::default(),
            points: Vec::new(),
        };
        let burst = |state: &u8| {
            let first =
                subproblem.cost_beyond_rest(*state, &device.flush_job(StateId(*state), 0, 1)?);
            Some((*state, device.burst_time(StateId(*state))?, first))
        };
        subproblem.bursts = subproblem.serving.iter().filter_map(burst).collect();
        subproblem.fill_points(trace, points, id, late);
        subproblem
    }

    /// Returns the place of a point among the device's own; `None` if it is not one of them.
    pub(super) fn point_index(&self, point: usize) -> Option<usize> {
        self.points
            .binary_search_by_key(&point, |own_point| own_point.point)
            .ok()
    }

    /// Returns the device's own point that is the last one until a point.
    pub(super) fn latest_point(&self, point: usize) -> usize {
        self.points
            .partition_point(|own_point| own_point.point <= point)
            .saturating_sub(1)
    }

    /// Returns the time of one of its own points.
    pub(super) fn time_at(&self, own_point: usize) -> Time {
        self.points[own_point].at
    }

    /// Returns the time of the point after it.
    pub(super) fn next_time(&self, own_point: usize) -> Time {
        self.points[own_point].next
    }

    fn rest_power(&self, state: u8) -> Power {
        self.rest_powers[usize::from(state)]
    }

    /// Returns the cost of work in a state beyond resting there.
    fn cost_beyond_rest(&self, state: u8, job: &Job) -> Cost {
        cost_of(job) - energy_over(self.rest_power(state), job.total_time())
    }

    fn serving_choices(&self, bytes: u64, follows: bool) -> Vec<ServingChoice> {
        let steps = self.serving.iter().filter_map(|state| {
            let job = self.device.read_job(StateId(*state), bytes, follows)?;
            Some((
                *state,
                self.cost_beyond_rest(*state, &job) + energy_over(self.base, job.total_time()),
                job.total_time(),
            ))
        });
        steps.collect()
    }

    /// Returns the least cost of a change that must be written.
    fn least_write_cost(&self, bytes: u64) -> Cost {
        let of = |state: &u8| {
            let beyond =
                |bytes| {
                    Some(self.cost_beyond_rest(
                        *state,
                        &self.device.flush_job(StateId(*state), bytes, 1)?,
                    ))
                };
            // Scattered objects cost an access each, those of a log one for all of a burst.
            let access = if self.device.is_scattered {
                beyond(0)?
            } else {
                0
            };
            // A byte less: many spans rounded up are longer than one.
            Some(access + (beyond(bytes)? - beyond(1)?).max(0))
        };
        self.serving.iter().filter_map(of).min().unwrap_or(0)
    }

    pub(super) fn start_state(&self) -> DeviceState {
        DeviceState {
            power_state: self.start_power_state,
            ..DeviceState::default()
        }
    }

    /// Returns the number of tokens that there are until a time; `None` if no stop takes one.
    pub(super) fn tokens_until(&self, until: Time) -> Option<u64> {
        let limits = self.device.budget?;
        let more = until.since(Time::ZERO).get() / limits.each.get().max(1);
        self.routes
            .iter()
            .flatten()
            .flatten()
            .any(|route| route.takes_token)
            .then_some(match limits.burst {
                0 => 0,
                burst => u64::from(burst) + more,
            })
    }

    /// Returns whether the way to another state takes a token.
    pub(super) fn takes_token(&self, from: u8, to: u8) -> bool {
        self.routes[usize::from(from)][usize::from(to)].is_some_and(|route| route.takes_token)
    }

    /// Returns the least cost beyond resting at which the device serves the read of a point.
    pub(super) fn least_read_cost(&self, point: usize) -> Option<Cost> {
        self.points[self.point_index(point)?]
            .reads
            .iter()
            .map(|(_, cost, _)| *cost)
            .min()
    }

    /// Advances from the point before to one of its own points: the named state stays, and the
    /// changes of that point come to the queue.
    pub(super) fn advance_to(&self, own_point: usize, device_state: DeviceState) -> CandidateStep {
        let here = &self.points[own_point];
        let (since, new) = match own_point.checked_sub(1).map(|before| &self.points[before]) {
            Some(before) => (before.at, before.arrived..here.arrived),
            None => (Time::ZERO, 0..here.arrived),
        };
        let paid: Cost = self.changes[new.start as usize..new.end as usize]
            .iter()
            .map(|change| change.prepaid)
            .sum();
        let cost = energy_over(
            self.rest_power(device_state.power_state),
            here.at.since(since),
        ) + paid;
        // Times in the past are all alike: they become zero, so that equal states compare equal.
        let kept = |time: Time| if time <= here.at { Time::ZERO } else { time };
        let device_state = DeviceState {
            free_at: kept(device_state.free_at),
            bucket_full_at: kept(device_state.bucket_full_at),
            ..device_state
        };
        CandidateStep {
            state: device_state,
            cost,
            transition: None,
        }
    }

    /// Returns whether a change should have been written by now: within its age, or as late as in
    /// any run that is compared.
    pub(super) fn is_late(
        &self,
        own_point: usize,
        device_state: DeviceState,
        is_punctual: bool,
    ) -> bool {
        let here = &self.points[own_point];
        let first = self
            .changes
            .get(device_state.written as usize)
            .filter(|_| device_state.written < here.arrived);
        let last = |change: &QueuedChange| {
            if is_punctual {
                change.due
            } else {
                change.latest
            }
        };
        first.is_some_and(|change| here.is_end || last(change) <= here.at)
    }

    /// Returns the cost of the work that is left at the end.
    pub(super) fn closing_cost(&self, own_point: usize, device_state: DeviceState) -> Cost {
        if self.points[own_point].is_end {
            energy_over(
                self.rest_power(device_state.power_state),
                device_state.free_at.since(self.points[own_point].at),
            )
        } else {
            0
        }
    }

    /// Returns the cost that `one` needs beside its own to be as good as `other` whatever follows;
    /// `None` if it cannot be. Both are in the same power state. A device that is done earlier may
    /// have to go up earlier.
    pub(super) fn dominance_cost(
        &self,
        own_point: usize,
        one: &DeviceState,
        other: &DeviceState,
    ) -> Option<Cost> {
        let now = self.points[own_point].at;
        if one.written < other.written
            || one.bucket_full_at > other.bucket_full_at
            || one.free_at > other.free_at
        {
            return None;
        }
        // Being free earlier may force it up earlier: that costs the rise over the difference.
        let later = other
            .free_at
            .max(now)
            .since(one.free_at.max(now))
            .min(self.longest[usize::from(one.power_state)]);
        Some(energy_over(self.delay_gain(one.power_state), later))
    }

    /// Returns a state that is no worse than either of two in the same power state.
    pub(super) fn merge_states(one: &DeviceState, other: &DeviceState) -> DeviceState {
        DeviceState {
            power_state: one.power_state,
            free_at: one.free_at.min(other.free_at),
            written: one.written.max(other.written),
            bucket_full_at: one.bucket_full_at.min(other.bucket_full_at),
        }
    }
}
