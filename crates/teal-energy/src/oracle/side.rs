//! One device's part of the problem: what it may do at each point, and what that costs.
//!
//! # Guarantees
//! 1. Costs are exact, in femtojoules; they may be negative where time is given back that was counted before.
//! 2. Every schedule of the simulator is, for this device, one of these ways at no greater cost.
//! 3. Writing earlier never gains anything by itself: work needs no less than resting in the state it is done in.

use super::problem::{Kind, Point, relief};
use crate::device::{Device, DeviceId};
use crate::ledger::Femtojoules;
use crate::profile::StateId;
use crate::service::Job;
use crate::sim::{Trace, What, World};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use teal_types::{Power, Span, Time};

/// Femtojoules that may be less than nothing.
pub(super) type Cost = i128;

/// Where a device is between two points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Spot {
    pub(super) state: u8,
    /// How many of its changes are written.
    pub(super) written: u32,
    /// Stops that counted; zero where there is no budget.
    pub(super) stops: u32,
}

/// A way on: where to, at what cost, with how much work that stands in place of resting.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    pub(super) spot: Spot,
    pub(super) cost: Cost,
    pub(super) busy: Span,
}

#[derive(Debug, Clone, Copy)]
struct Change {
    object: u64,
    bytes: u64,
    /// The last moment at which it is written.
    last: Time,
}

#[derive(Debug, Clone)]
pub(super) struct Side<'a> {
    device: &'a Device,
    powers: Vec<Power>,
    /// Cost and stops by from and to: to work, and to rest.
    to_work: Vec<Vec<Option<(Cost, u32)>>>,
    to_rest: Vec<Vec<Option<(Cost, u32)>>>,
    start: u8,
    most_stops: Option<u32>,
    changes: Vec<Change>,
    /// By point: changes there after its event, and how many of them a burst may not leave out.
    arrived: Vec<(u32, u32)>,
    /// By point: ways to serve its read.
    reads: Vec<Vec<(u8, Cost, Span)>>,
    /// Bursts that were asked for, by their first change.
    bursts: RefCell<BTreeMap<u32, Bursts>>,
    points: Vec<Time>,
}

/// Bursts that begin with one change: bytes and objects, by how many changes they hold.
#[derive(Debug, Clone, Default)]
struct Bursts {
    sums: Vec<(u64, u64)>,
    objects: BTreeMap<u64, u64>,
    bytes: u64,
}

fn cost_of(job: &Job) -> Cost {
    let exact: Femtojoules = job.parts().iter().map(crate::service::Part::femtojoules).sum();
    Cost::try_from(exact).unwrap_or(Cost::MAX)
}

fn over(power: Power, span: Span) -> Cost {
    Cost::from(power.get()) * Cost::from(span.get())
}

impl<'a> Side<'a> {
    pub(super) fn new(world: &'a World, trace: &Trace, points: &[Point], id: DeviceId, slack: Span) -> Self {
        let device = &world.devices[id.index()];
        let power = &device.power;
        let powers: Vec<_> = power.ids().map(|state| power.power(state)).collect();
        let most = power.ids().filter(|state| power.serves(*state)).map(|state| power.power(state)).max();
        let least = relief(most.unwrap_or_default(), world.base);
        // The power that stands in for a transition's time: the state's that it shortens.
        let table = |shortened: fn(StateId, StateId) -> StateId| {
            let each = |from| {
                let to = |to| {
                    let route = power.route(from, to)?;
                    let given_back = power.power(shortened(from, to)).max(least);
                    let energy = Cost::from(route.energy.get()) * 1_000_000_000;
                    let stops = if device.budget.is_some() { route.cycles } else { 0 };
                    Some((energy - over(given_back, route.time), stops))
                };
                power.ids().map(to).collect()
            };
            power.ids().map(each).collect::<Vec<Vec<_>>>()
        };
        let mut side = Self {
            device,
            powers,
            to_work: table(|from, _| from),
            to_rest: table(|_, to| to),
            start: world.start[id.index()].index() as u8,
            most_stops: device.budget.map(|limits| {
                let more = (trace.end() + slack).get() / limits.each.get().max(1) + 1;
                limits.burst.saturating_add(u32::try_from(more).unwrap_or(u32::MAX))
            }),
            changes: Vec::new(),
            arrived: Vec::new(),
            reads: Vec::new(),
            bursts: RefCell::default(),
            points: points.iter().map(|point| point.at).collect(),
        };
        side.fill(world, trace, points, id, slack);
        side
    }

    fn fill(&mut self, world: &World, trace: &Trace, points: &[Point], id: DeviceId, slack: Span) {
        let mut ends = BTreeSet::new();
        let (mut came, mut settled) = (Vec::new(), 0);
        for (at, point) in points.iter().enumerate() {
            let mut ways = Vec::new();
            match (point.kind, trace.events().get(point.event).map(|event| event.what)) {
                (Kind::Read, Some(What::Read { object, offset, bytes, copies })) => {
                    let follows = ends.contains(&(object, offset));
                    ends.insert((object, offset.saturating_add(bytes)));
                    if copies.has(id) {
                        ways = self.serve(bytes, follows, world.base);
                    }
                }
                (Kind::Write, Some(What::Write { object, bytes, sinks })) => {
                    if let Some(limits) = self.device.queue.filter(|_| sinks.has(id)) {
                        self.changes.push(Change { object, bytes, last: point.at + limits.age + slack });
                        came.push(point.at);
                    }
                }
                _ => {}
            }
            // A burst begun after the point before was ordered so long before that, at most.
            let before = points[at.saturating_sub(1)].at - slack;
            settled += came[settled..].iter().take_while(|time| **time <= before && before > Time::ZERO).count();
            let count = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
            self.arrived.push((count(came.len()), count(settled)));
            self.reads.push(ways);
        }
    }

    fn serve(&self, bytes: u64, follows: bool, base: Power) -> Vec<(u8, Cost, Span)> {
        let ways = self.device.power.ids().filter_map(|state| {
            let job = self.device.read(state, bytes, follows)?;
            Some((state.index() as u8, cost_of(&job) + over(base, job.time()), job.time()))
        });
        ways.collect()
    }

    pub(super) fn start(&self) -> Spot {
        Spot { state: self.start, ..Spot::default() }
    }

    /// What resting costs.
    pub(super) fn resting(&self, spot: Spot, gap: Span) -> Cost {
        over(self.powers[usize::from(spot.state)], gap)
    }

    fn moved(&self, spot: Spot, state: u8, table: &[Vec<Option<(Cost, u32)>>]) -> Option<(Spot, Cost)> {
        let (cost, stops) = table[usize::from(spot.state)][usize::from(state)]?;
        let stops = spot.stops + stops;
        let is_allowed = self.most_stops.is_none_or(|most| stops <= most);
        is_allowed.then_some((Spot { state, stops, ..spot }, cost))
    }

    /// The ways to serve a point's read. None if it has none, or is not here.
    pub(super) fn reads(&self, point: usize, spot: Spot) -> impl Iterator<Item = Way> {
        self.reads[point].iter().filter_map(move |&(state, cost, busy)| {
            let (spot, way) = self.moved(spot, state, &self.to_work)?;
            Some(Way { spot, cost: cost + way, busy })
        })
    }

    /// The ways to write a burst before or after a point's event, not writing one among them. A device may also wake for nothing: where
    /// what a transition gives back is more than what it takes, having something to write would be an advantage otherwise, and a way
    /// that has written more would not be as good.
    pub(super) fn writes(&self, point: usize, spot: Spot, is_before: bool) -> Vec<Way> {
        let mut ways = vec![Way { spot, cost: 0, busy: Span::ZERO }];
        let serving = (0_u8..).zip(self.device.power.ids()).filter(|(_, state)| self.device.power.serves(*state));
        let woken = serving
            .filter(|(state, _)| *state != spot.state)
            .filter_map(|(state, _)| self.moved(spot, state, &self.to_work));
        ways.extend(woken.map(|(spot, cost)| Way { spot, cost, busy: Span::ZERO }));
        let known = if is_before { point.saturating_sub(1) } else { point };
        let (there, settled) = (self.arrived[known].0, self.arrived[point].1);
        let first = settled.min(there).max(spot.written + 1);
        for until in first..=there {
            let (bytes, objects) = self.burst(spot.written, until);
            for (state, _) in self.device.power.ids().enumerate().filter(|(_, state)| self.device.power.serves(*state))
            {
                let (Some((moved, way)), Some(job)) = (
                    self.moved(spot, state as u8, &self.to_work),
                    self.device.flush(StateId(state as u8), bytes, objects),
                ) else {
                    continue;
                };
                let (mut cost, mut busy) = (cost_of(&job) + way, job.time());
                if is_before {
                    // In the state before, or in the one in which it works if that needs less: it could have rested there.
                    cost -= self.resting(spot, busy).min(self.resting(moved, busy));
                    busy = Span::ZERO;
                }
                ways.push(Way { spot: Spot { written: until, ..moved }, cost, busy });
            }
        }
        ways
    }

    /// The ways to rest after a point.
    pub(super) fn rests(&self, spot: Spot, busy: Span) -> impl Iterator<Item = Way> {
        let here = self.powers[usize::from(spot.state)];
        let lower = (0_u8..).zip(&self.powers).filter(move |(state, power)| *state == spot.state || **power <= here);
        lower.filter_map(move |(state, power)| {
            let (spot, way) = self.moved(spot, state, &self.to_rest)?;
            Some(Way { spot, cost: way - over(*power, busy), busy: Span::ZERO })
        })
    }

    /// Whether some change should have been written by now.
    pub(super) fn is_late(&self, point: usize, spot: Spot) -> bool {
        let is_end = point + 1 == self.points.len();
        let first = self.changes.get(spot.written as usize);
        first
            .is_some_and(|change| spot.written < self.arrived[point].0 && (is_end || change.last <= self.points[point]))
    }

    /// Bytes and objects of a burst of the changes from the one to before the other; of each object the last change.
    fn burst(&self, first: u32, until: u32) -> (u64, u64) {
        let mut bursts = self.bursts.borrow_mut();
        let known = bursts.entry(first).or_default();
        let counted = first as usize + known.sums.len();
        for change in self.changes.iter().take(until as usize).skip(counted) {
            let before = known.objects.insert(change.object, change.bytes).unwrap_or(0);
            known.bytes = known.bytes - before + change.bytes;
            known.sums.push((known.bytes, known.objects.len() as u64));
        }
        known.sums[(until - first - 1) as usize]
    }
}
