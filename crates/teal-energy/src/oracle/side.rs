//! One device's part of the problem: what it may do at each point, and what that costs.
//!
//! # Guarantees
//! 1. Costs are exact, in femtojoules; they may be negative where time is given back that was counted before.
//! 2. Every schedule of the simulator is, for this device, one of these ways at no greater cost.
//! 3. What a device does takes its time: work and transitions follow each other, and whoever comes meanwhile waits.

use super::alone::Deed;
use super::problem::{Kind, Point};
use crate::device::{Device, DeviceId};
use crate::ledger::Femtojoules;
use crate::profile::StateId;
use crate::service::Job;
use crate::sim::{Trace, What, World};
use std::collections::{BTreeMap, BTreeSet};
use teal_types::{Power, Span, Time};

/// Femtojoules that may be less than nothing.
pub(super) type Cost = i128;

/// Where a device is at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Spot {
    pub(super) state: u8,
    /// How many of its changes are written.
    pub(super) written: u32,
    /// Stops that counted; zero where there is no budget, or where they are paid for.
    pub(super) stops: u32,
    /// When its transition or its work is done. Zero when that is too long ago to matter.
    pub(super) ready: Time,
    /// What is not written yet: bytes and objects, of each the last change. Follows from `written`.
    pub(super) bytes: u64,
    pub(super) objects: u64,
}

/// A way on: where to and at what cost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    pub(super) spot: Spot,
    pub(super) cost: Cost,
}

/// What is paid besides energy, in femtojoules.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Terms {
    /// For a stop that counts; `None`: stops are counted and limited.
    pub(super) stop: Option<Cost>,
}

#[derive(Debug, Clone, Copy)]
struct Change {
    bytes: u64,
    /// The last moment at which it is written.
    last: Time,
    /// The change of the same object before it: its place and bytes.
    before: Option<(u32, u64)>,
}

/// The way from one state to another.
#[derive(Debug, Clone, Copy)]
struct Route {
    time: Span,
    energy: Cost,
    cycles: u32,
}

/// What a point is to a device.
#[derive(Debug, Clone, Default)]
struct Here {
    at: Time,
    /// Its changes so far, this point's included.
    arrived: u32,
    /// How to serve its read: state, cost with the machine's while it works, time.
    reads: Vec<(u8, Cost, Span)>,
}

#[derive(Debug, Clone)]
pub(super) struct Side<'a> {
    device: &'a Device,
    base: Power,
    powers: Vec<Power>,
    serving: Vec<u8>,
    /// By from and to.
    routes: Vec<Vec<Option<Route>>>,
    /// The shortest way into each state from one that serves, and the longest out of it.
    into: Vec<Span>,
    out: Span,
    /// Whether waking late can be cheaper than just in time: the machine draws little, the device much.
    is_lazy: bool,
    start: u8,
    most_stops: Option<u32>,
    changes: Vec<Change>,
    points: Vec<Here>,
    /// The points at which this device has something to do or to be told.
    pub(super) mine: Vec<usize>,
}

fn cost_of(job: &Job) -> Cost {
    let exact: Femtojoules = job.parts().iter().map(crate::service::Part::femtojoules).sum();
    Cost::try_from(exact).unwrap_or(Cost::MAX)
}

fn over(power: Power, span: Span) -> Cost {
    Cost::from(power.get()) * Cost::from(span.get())
}

impl<'a> Side<'a> {
    pub(super) fn new(world: &'a World, trace: &Trace, points: &[Point], id: DeviceId, late: Span) -> Self {
        let device = &world.devices[id.index()];
        let power = &device.power;
        let powers: Vec<_> = power.ids().map(|state| power.power(state)).collect();
        let route = |from, to| {
            let route = power.route(from, to)?;
            let cycles = if device.budget.is_some() { route.cycles } else { 0 };
            Some(Route { time: route.time, energy: Cost::from(route.energy.get()) * 1_000_000_000, cycles })
        };
        let routes: Vec<Vec<_>> = power.ids().map(|a| power.ids().map(|b| route(a, b)).collect()).collect();
        let serving: Vec<u8> = power.ids().filter(|s| power.serves(*s)).map(|s| s.index() as u8).collect();
        let ways =
            |to: usize| serving.iter().filter_map(move |from| Some((*from, to)).filter(|(a, b)| usize::from(*a) != *b));
        let time = |from: usize, to: usize| routes[from][to].map(|route: Route| route.time);
        let into = (0..powers.len()).map(|to| ways(to).filter_map(|(from, to)| time(from.into(), to)).min());
        let out =
            (0..powers.len()).flat_map(|from| serving.iter().filter_map(move |to| time(from, (*to).into()))).max();
        let most = serving.iter().map(|state| powers[usize::from(*state)]).max().unwrap_or_default();
        let mut side = Self {
            device,
            base: world.base,
            is_lazy: powers.iter().any(|power| *power + world.base < most),
            into: into.map(Option::unwrap_or_default).collect(),
            out: out.unwrap_or_default(),
            powers,
            serving,
            routes,
            start: world.start[id.index()].index() as u8,
            most_stops: device.budget.map(|limits| {
                let more = (trace.end() + late).get() / limits.each.get().max(1);
                limits.burst.saturating_add(u32::try_from(more).unwrap_or(u32::MAX))
            }),
            changes: Vec::new(),
            points: Vec::new(),
            mine: Vec::new(),
        };
        side.fill(trace, points, id, late);
        side
    }

    fn fill(&mut self, trace: &Trace, points: &[Point], id: DeviceId, late: Span) {
        let mut ends = BTreeSet::new();
        let mut newest: BTreeMap<u64, (u32, u64)> = BTreeMap::new();
        for point in points {
            let mut here = Here { at: point.at, ..Here::default() };
            match (point.kind, trace.events().get(point.event).map(|event| event.what)) {
                (Kind::Read, Some(What::Read { object, offset, bytes, copies })) => {
                    let follows = ends.contains(&(object, offset));
                    ends.insert((object, offset.saturating_add(bytes)));
                    if copies.has(id) {
                        here.reads = self.serve(bytes, follows);
                    }
                }
                (Kind::Write, Some(What::Write { object, bytes, sinks })) => {
                    if let Some(limits) = self.device.queue.filter(|_| sinks.has(id)) {
                        let before = newest.insert(object, (self.changes.len() as u32, bytes));
                        self.changes.push(Change { bytes, last: point.at + limits.age + late, before });
                    }
                }
                _ => {}
            }
            here.arrived = self.changes.len() as u32;
            self.points.push(here);
        }
        let deadlines: BTreeSet<Time> = self.changes.iter().map(|change| change.last).collect();
        let is_mine = |at: usize| {
            let here = &self.points[at];
            let is_told = at.checked_sub(1).is_none_or(|before| self.points[before].arrived < here.arrived);
            let is_due = points[at].kind == Kind::Nothing && deadlines.contains(&here.at);
            is_told || is_due || !here.reads.is_empty() || at + 1 == points.len()
        };
        self.mine = (0..points.len()).filter(|at| is_mine(*at)).collect();
    }

    fn serve(&self, bytes: u64, follows: bool) -> Vec<(u8, Cost, Span)> {
        let ways = self.serving.iter().filter_map(|state| {
            let job = self.device.read(StateId(*state), bytes, follows)?;
            Some((*state, cost_of(&job) + over(self.base, job.time()), job.time()))
        });
        ways.collect()
    }

    pub(super) fn start(&self) -> Spot {
        Spot { state: self.start, ..Spot::default() }
    }

    pub(super) fn most_stops(&self) -> Option<u32> {
        self.most_stops
    }

    /// How many stops that count there are in what it does.
    pub(super) fn stops(&self, deeds: &[(usize, Deed, u8)]) -> u32 {
        let states = std::iter::once(self.start).chain(deeds.iter().map(|(_, _, state)| *state)).map(usize::from);
        let pairs = states.clone().zip(states.skip(1));
        pairs.filter_map(|(from, to)| self.routes[from][to]).map(|route| route.cycles).sum()
    }

    /// How long the way from one state to another takes.
    pub(super) fn time(&self, from: u8, to: u8) -> Span {
        self.routes[usize::from(from)][usize::from(to)].map_or(Span::ZERO, |route| route.time)
    }

    /// Whether the device can serve a point's read, and what it costs where that is least, once it is awake.
    pub(super) fn serves(&self, point: usize) -> Option<Cost> {
        self.points[point].reads.iter().map(|(_, cost, _)| *cost).min()
    }

    /// From a point of its own to the next: it rests, or finishes, and what changes there comes to its queue.
    pub(super) fn arrive(&self, before: usize, point: usize, spot: Spot) -> Way {
        let (from, here) = (self.points[before].at, &self.points[point]);
        let rested = here.at.since(from.max(spot.ready));
        let mut spot = spot;
        if spot.ready + self.out <= here.at {
            spot.ready = Time::ZERO;
        }
        for at in self.points[before].arrived..here.arrived {
            let change = self.changes[at as usize];
            match change.before.filter(|(before, _)| *before >= spot.written) {
                Some((_, bytes)) => spot.bytes = spot.bytes - bytes + change.bytes,
                None => (spot.bytes, spot.objects) = (spot.bytes + change.bytes, spot.objects + 1),
            }
        }
        Way { spot, cost: over(self.powers[usize::from(spot.state)], rested) }
    }

    /// To a state that serves, just in time or, where that may be cheaper, only when it is wanted.
    fn wake(&self, now: Time, spot: Spot, to: u8, is_late: bool, terms: Terms) -> Option<Way> {
        if spot.state == to {
            return (!is_late).then_some(Way { spot: Spot { ready: spot.ready.max(now), ..spot }, cost: 0 });
        }
        let (route, stops) = self.moved(spot, to, terms)?;
        let begin = if is_late { now.max(spot.ready) } else { spot.ready };
        let ready = now.max(begin + route.time);
        // It was counted as resting until now.
        let back = now.since(Time::after_start(Span::nanos(ready.get()).less(route.time)));
        let cost = route.energy + stops.1 - over(self.powers[usize::from(spot.state)], back);
        Some(Way { spot: Spot { state: to, ready, stops: stops.0, ..spot }, cost })
    }

    fn moved(&self, spot: Spot, to: u8, terms: Terms) -> Option<(Route, (u32, Cost))> {
        let route = self.routes[usize::from(spot.state)][usize::from(to)]?;
        if let Some(price) = terms.stop {
            return Some((route, (0, price * Cost::from(route.cycles))));
        }
        let stops = spot.stops + route.cycles;
        self.most_stops.is_none_or(|most| stops <= most).then_some((route, (stops, 0)))
    }

    /// The ways to serve a point's read. None if it has none, or is not here.
    pub(super) fn reads(&self, point: usize, spot: Spot, terms: Terms) -> impl Iterator<Item = Way> {
        let here = &self.points[point];
        let now = here.at;
        // Whoever waited for the work before has been counted.
        let free = Time::after_start(Span::nanos(spot.ready.get()).less(self.into[usize::from(spot.state)]));
        here.reads.iter().flat_map(move |&(state, cost, busy)| {
            let late = [false, true].into_iter().take(1 + usize::from(self.is_lazy));
            late.filter_map(move |is_late| {
                let woken = self.wake(now, spot, state, is_late, terms)?;
                let waited = if spot.state == state { Span::ZERO } else { woken.spot.ready.since(now.max(free)) };
                let spot = Spot { ready: woken.spot.ready + busy, ..woken.spot };
                Some(Way { spot, cost: cost + woken.cost + over(self.base, waited) })
            })
        })
    }

    /// The ways to write everything at a point.
    pub(super) fn writes(&self, point: usize, spot: Spot, terms: Terms) -> impl Iterator<Item = Way> {
        let here = &self.points[point];
        let states = self.serving.iter().filter(move |_| spot.written < here.arrived);
        states.filter_map(move |&state| {
            let job = self.device.flush(StateId(state), spot.bytes, spot.objects)?;
            let woken = self.wake(here.at, spot, state, false, terms)?;
            let ready = woken.spot.ready + job.time();
            let spot = Spot { written: here.arrived, bytes: 0, objects: 0, ready, ..woken.spot };
            Some(Way { spot, cost: woken.cost + cost_of(&job) })
        })
    }

    /// The ways to rest after a point.
    pub(super) fn rests(&self, point: usize, spot: Spot, terms: Terms) -> impl Iterator<Item = Way> {
        let now = self.points[point].at;
        let here = self.powers[usize::from(spot.state)];
        let lower = (0_u8..).zip(&self.powers).filter(move |(_, power)| **power < here);
        let gone = lower.filter_map(move |(state, _)| {
            let (route, (stops, price)) = self.moved(spot, state, terms)?;
            let ready = now.max(spot.ready) + route.time;
            Some(Way { spot: Spot { state, stops, ready, ..spot }, cost: route.energy + price })
        });
        std::iter::once(Way { spot, cost: 0 }).chain(gone)
    }

    /// Whether some change should have been written by now.
    pub(super) fn is_late(&self, point: usize, spot: Spot) -> bool {
        let (here, is_end) = (&self.points[point], point + 1 == self.points.len());
        let first = self.changes.get(spot.written as usize).filter(|_| spot.written < here.arrived);
        first.is_some_and(|change| is_end || change.last <= here.at)
    }

    /// What the one needs to be as good as the other whatever follows, if it can be: both are in the same state. A device that is
    /// done earlier can rest until the other is.
    pub(super) fn handicap(&self, point: usize, one: &Spot, other: &Spot) -> Option<Cost> {
        let now = self.points[point].at;
        let is_no_worse = one.written >= other.written && one.stops <= other.stops && one.ready <= other.ready;
        let rest = other.ready.max(now).since(one.ready.max(now));
        is_no_worse.then(|| over(self.powers[usize::from(one.state)], rest))
    }
}
