//! One device's subproblem: the steps it may take at each of its points, and their cost.
//!
//! # How a schedule is written down
//! A device carries the name of one state at a time. Its name changes when a transition *begins*:
//! from then on it is charged the rest power of the state it goes to, and the transition is charged
//! what it needs more or less than that. Work is charged what it needs more than resting. So cost
//! is rest power by name over time, plus a sum for each transition and each piece of work, and
//! nothing else depends on when things happen but somebody's wait.
//!
//! # Guarantees
//! 1. Costs are exact, in femtojoules; they may be negative where time is given back that was
//!    counted before.
//! 2. Every schedule of the simulator is, for this device, one of these ways at no greater cost.
//!    Every choice of a time has cost that is linear in it between two bounds, so that one of them
//!    is best; where the choice also moves when the device is free, the way has the lower cost of
//!    both bounds *and* the earlier of both times:
//!    - resting is charged as [`rest`] says;
//!    - a way down begins as soon as what was asked for is done: the rest power falls with it;
//!    - a way up for a read ends when the read comes, or begins then; a wanted device is never left
//!      asleep;
//!    - a burst begins at a point: what lies between two points can be moved to one of them;
//!    - work takes its turn, in the order in which it comes; so no device is done earlier than
//!      [`DeviceState::free`];
//!    - what a burst must at least hold is paid for when it comes to the queue.
//! 3. What reads wait behind each other is their work's own time; behind a transition, its time.
//!    Behind a burst nothing.

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
use teal_types::{Power, Span, Time};

/// Femtojoules that may be less than nothing.
pub(super) type Cost = i128;

/// The state of a device just after a point, as the dynamic programming tells states apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct DeviceState {
    /// The power state whose name the device has.
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
    /// The transition that it begins, if it does, and when.
    pub(super) transition: Option<(Time, ScheduledAction)>,
}

impl CandidateStep {
    /// Returns the step in which nothing is done.
    pub(super) fn no_action(spot: DeviceState) -> Self {
        Self {
            state: spot,
            cost: 0,
            transition: None,
        }
    }
}

/// The limit on a device's stops.
#[derive(Debug, Clone, Copy)]
pub(super) enum StopLimit<'t> {
    /// By a bucket.
    Counted,
    /// Each has a price, by the device's own points.
    Priced(&'t [Cost]),
    /// By a bucket, and the prices tell what it is worth to keep one: of a plan, which cannot keep
    /// all ways apart.
    Spared(&'t [Cost]),
}

/// A change in the device's queue.
#[derive(Debug, Clone, Copy)]
struct QueuedChange {
    /// When it is of age, and the last moment at which a burst may begin that holds it.
    due: Time,
    latest: Time,
    /// What is paid for it when it comes.
    prepaid: Cost,
    /// What must be written of the changes before this one.
    needed: WriteLoad,
}

/// What a burst writes.
#[derive(Debug, Clone, Copy, Default)]
struct WriteLoad {
    bytes: u64,
    objects: u64,
}

/// The transition from one power state to another.
#[derive(Debug, Clone, Copy)]
struct TransitionRoute {
    time: Span,
    /// Its energy less what resting where it leads costs meanwhile.
    more: Cost,
    takes_token: bool,
}

/// How to serve a read: state, cost beyond resting with the machine's while it works, time.
pub(super) type ServingChoice = (u8, Cost, Span);

/// A point at which the device has something to do or to be told.
#[derive(Debug, Clone, Default)]
pub(super) struct DevicePoint {
    /// Its place among all points.
    pub(super) point: usize,
    at: Time,
    /// When the next one is.
    next: Time,
    /// Changes so far.
    arrived: u32,
    is_end: bool,
    /// Ways to serve what is read there.
    pub(super) reads: Vec<ServingChoice>,
}

/// One device's part of the relaxed problem.
#[derive(Debug, Clone)]
pub(super) struct DeviceSubproblem<'a> {
    device: &'a DeviceModel,
    base: Power,
    rest_powers: Vec<Power>,
    serving: Vec<u8>,
    /// Of each state that serves: how long bursts take, and what their first place needs beyond
    /// resting.
    bursts: Vec<(u8, BurstTime, Cost)>,
    /// By state: the longest that it works at once for somebody who waits, if it can go up from
    /// there meanwhile.
    longest: Vec<Span>,
    /// By from and to.
    routes: Vec<Vec<Option<TransitionRoute>>>,
    /// The most that it draws while it rests where it serves.
    top_rest_power: Power,
    start_power_state: u8,
    changes: Vec<QueuedChange>,
    /// What must be written of all changes.
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

fn energy_over(power: Power, span: Span) -> Cost {
    Cost::from(power.get()) * Cost::from(span.get())
}

/// From one time to another: less than nothing if that is back.
fn time_between(from: Time, to: Time) -> Cost {
    Cost::from(to.since(from).get()) - Cost::from(from.since(to).get())
}

/// A time that much earlier, at the earliest the beginning.
fn time_before(time: Time, span: Span) -> Time {
    Time::after_start(time.since(Time::ZERO).less(span))
}

impl<'a> DeviceSubproblem<'a> {
    pub(super) fn new(
        world: &'a SimulatedMachine,
        trace: &MachineTrace,
        points: &[TracePoint],
        id: DeviceId,
        late: Span,
    ) -> Self {
        let device = &world.devices[id.index()];
        let power = &device.power;
        let rest::RestCharges { powers, longest } =
            rest::rest_charges(device, id, world.base, trace);
        let route = |from, to: StateId| {
            let route = power.route(from, to)?;
            let takes_token = device.budget.is_some() && power.time_to_cycle(from, to).is_some();
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
        let mut side = Self {
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
            let first = side.cost_beyond_rest(*state, &device.flush_job(StateId(*state), 0, 1)?);
            Some((*state, device.burst_time(StateId(*state))?, first))
        };
        side.bursts = side.serving.iter().filter_map(burst).collect();
        side.fill_points(trace, points, id, late);
        side
    }

    /// The place of a point among the device's own; `None` if it is none of them.
    pub(super) fn point_index(&self, point: usize) -> Option<usize> {
        self.points
            .binary_search_by_key(&point, |own| own.point)
            .ok()
    }

    /// The device's own point that is the last one until a point.
    pub(super) fn latest_point(&self, point: usize) -> usize {
        self.points
            .partition_point(|own| own.point <= point)
            .saturating_sub(1)
    }

    /// When one of its own points is.
    pub(super) fn time_at(&self, own: usize) -> Time {
        self.points[own].at
    }

    /// When the one after it is.
    pub(super) fn next_time(&self, own: usize) -> Time {
        self.points[own].next
    }

    fn rest_power(&self, state: u8) -> Power {
        self.rest_powers[usize::from(state)]
    }

    /// Returns what is charged beyond resting for work in a state.
    fn cost_beyond_rest(&self, state: u8, job: &Job) -> Cost {
        cost_of(job) - energy_over(self.rest_power(state), job.total_time())
    }

    fn serving_choices(&self, bytes: u64, follows: bool) -> Vec<ServingChoice> {
        let ways = self.serving.iter().filter_map(|state| {
            let job = self.device.read_job(StateId(*state), bytes, follows)?;
            Some((
                *state,
                self.cost_beyond_rest(*state, &job) + energy_over(self.base, job.total_time()),
                job.total_time(),
            ))
        });
        ways.collect()
    }

    /// Returns what a change costs at least that must be written.
    fn least_write_cost(&self, bytes: u64) -> Cost {
        let of = |state: &u8| {
            let beyond =
                |bytes| {
                    Some(self.cost_beyond_rest(
                        *state,
                        &self.device.flush_job(StateId(*state), bytes, 1)?,
                    ))
                };
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

    /// Returns whether a stop may take a token, and how many of those there are until a time.
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

    /// The tokens that the way to another state takes.
    pub(super) fn takes_token(&self, from: u8, to: u8) -> bool {
        self.routes[usize::from(from)][usize::from(to)].is_some_and(|route| route.takes_token)
    }

    /// Returns what the device needs beyond resting for the read of a point where that is least.
    pub(super) fn least_read_cost(&self, point: usize) -> Option<Cost> {
        self.points[self.point_index(point)?]
            .reads
            .iter()
            .map(|(_, cost, _)| *cost)
            .min()
    }

    /// From the point before to one of its own: it keeps its name, and what changes there comes to
    /// its queue.
    pub(super) fn advance_to(&self, own: usize, spot: DeviceState) -> CandidateStep {
        let here = &self.points[own];
        let (since, new) = match own.checked_sub(1).map(|before| &self.points[before]) {
            Some(before) => (before.at, before.arrived..here.arrived),
            None => (Time::ZERO, 0..here.arrived),
        };
        let paid: Cost = self.changes[new.start as usize..new.end as usize]
            .iter()
            .map(|change| change.prepaid)
            .sum();
        let cost = energy_over(self.rest_power(spot.power_state), here.at.since(since)) + paid;
        let kept = |time: Time| if time <= here.at { Time::ZERO } else { time };
        let spot = DeviceState {
            free_at: kept(spot.free_at),
            bucket_full_at: kept(spot.bucket_full_at),
            ..spot
        };
        CandidateStep {
            state: spot,
            cost,
            transition: None,
        }
    }

    /// Returns whether some change should have been written by now: within its age, or as late as
    /// any run that is compared.
    pub(super) fn is_late(&self, own: usize, spot: DeviceState, is_punctual: bool) -> bool {
        let here = &self.points[own];
        let first = self
            .changes
            .get(spot.written as usize)
            .filter(|_| spot.written < here.arrived);
        let last = |change: &QueuedChange| {
            if is_punctual {
                change.due
            } else {
                change.latest
            }
        };
        first.is_some_and(|change| here.is_end || last(change) <= here.at)
    }

    /// At the end: what it still has to do.
    pub(super) fn closing_cost(&self, own: usize, spot: DeviceState) -> Cost {
        if self.points[own].is_end {
            energy_over(
                self.rest_power(spot.power_state),
                spot.free_at.since(self.points[own].at),
            )
        } else {
            0
        }
    }

    /// Returns what the one needs to be as good as the other whatever follows, if it can be: both
    /// have the same name. A device that is done earlier may have to go up earlier.
    pub(super) fn dominance_cost(
        &self,
        own: usize,
        one: &DeviceState,
        other: &DeviceState,
    ) -> Option<Cost> {
        let now = self.points[own].at;
        if one.written < other.written
            || one.bucket_full_at > other.bucket_full_at
            || one.free_at > other.free_at
        {
            return None;
        }
        let later = other
            .free_at
            .max(now)
            .since(one.free_at.max(now))
            .min(self.longest[usize::from(one.power_state)]);
        Some(energy_over(self.delay_gain(one.power_state), later))
    }

    /// Returns where a device is that is no worse off than two of the same name.
    pub(super) fn merge_states(one: &DeviceState, other: &DeviceState) -> DeviceState {
        DeviceState {
            power_state: one.power_state,
            free_at: one.free_at.min(other.free_at),
            written: one.written.max(other.written),
            bucket_full_at: one.bucket_full_at.min(other.bucket_full_at),
        }
    }
}
