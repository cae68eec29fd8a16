//! One device's part of the problem: what it may do at each point, and what that costs.
//!
//! # Guarantees
//! 1. Costs are exact, in femtojoules; they may be negative where time is given back that was counted before.
//! 2. Every schedule of the simulator is, for this device, one of these ways at no greater cost, at whatever times it does something: what
//!    lies between two points can be moved until it meets one of them, or the moment at which there is a token, and what that changes
//!    in cost grows evenly with how far it is moved, so that one of the two directions costs nothing.
//! 3. What a device does takes its time: work and transitions follow each other, and whoever comes meanwhile waits.

mod points;

use super::alone::Deed;
use super::bucket::Bucket;
use super::problem::Point;
use super::terms::Terms;
use crate::device::{Device, DeviceId};
use crate::ledger::Femtojoules;
use crate::profile::StateId;
use crate::service::Job;
use crate::sim::{Trace, World};
use teal_types::{Power, Span, Time};

/// Work shorter than this takes no time from other work where times are rounded, in nanoseconds.
const AWAKE: u64 = 50_000_000;

/// Femtojoules that may be less than nothing.
pub(super) type Cost = i128;

/// Where a device is at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Spot {
    pub(super) state: u8,
    /// How many of its changes are written.
    pub(super) written: u32,
    /// When the bucket of stops is full again. Zero where it is, and where stops are not counted.
    pub(super) full: Time,
    /// When its transition or its work is done. Zero when that is too long ago to matter.
    pub(super) ready: Time,
    /// Until when it has work at least, where reads take no time from what comes later: who sends it to another state before that pays
    /// for the rest. Zero when that is past.
    pub(super) owed: Time,
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

#[derive(Debug, Clone, Copy)]
struct Change {
    bytes: u64,
    /// When it is of age, and the last moment at which it is written.
    due: Time,
    last: Time,
    /// The change of the same object before it: its place and bytes.
    before: Option<(u32, u64)>,
    /// What its bytes cost at least, if they must be written: nothing if another change may take its place in time.
    least: Cost,
    is_needed: bool,
    /// The bytes that must be written, of all changes before this one.
    before_bytes: u64,
}

/// The way from one state to another.
#[derive(Debug, Clone, Copy)]
struct Route {
    time: Span,
    energy: Cost,
    /// How long after its beginning it takes a token, if it does.
    takes: Option<Span>,
}

/// A point, or some that lie close together and are taken as one, to a device.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moment {
    /// The first.
    pub(super) at: Time,
    /// The last.
    pub(super) until: Time,
    /// When the device can do something before it, and after it.
    since: Time,
    next: Time,
    /// Its changes so far, those of these points included.
    arrived: u32,
    is_end: bool,
}

impl Moment {
    /// Whether changes came after an earlier moment.
    pub(super) fn has_come_since(&self, earlier: &Self) -> bool {
        self.arrived > earlier.arrived || self.at == earlier.at
    }
}

/// How to serve a read: state, cost with the machine's while it works, time.
pub(super) type Serving = (u8, Cost, Span);

/// What a point is to a device.
#[derive(Debug, Clone, Default)]
struct Here {
    moment: Moment,
    reads: Vec<Serving>,
}

/// Points of a device that lie close together.
#[derive(Debug, Clone, Default)]
pub(super) struct Step {
    pub(super) moment: Moment,
    /// Their reads that it could serve.
    pub(super) reads: Vec<(usize, Vec<Serving>)>,
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
    /// The most that it draws while it rests where it serves.
    highest: Power,
    /// Whether waking late can be cheaper than just in time: the machine draws little, the device much.
    is_lazy: bool,
    start: u8,
    changes: Vec<Change>,
    all_bytes: u64,
    points: Vec<Here>,
    /// The points at which this device has something to do or to be told.
    pub(super) mine: Vec<usize>,
    /// The same, taken together.
    pub(super) steps: Vec<Step>,
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
            let takes = device.budget.and_then(|_| power.time_to_cycle(from, to));
            Some(Route { time: route.time, energy: Cost::from(route.energy.get()) * 1_000_000_000, takes })
        };
        let routes: Vec<Vec<_>> = power.ids().map(|a| power.ids().map(|b| route(a, b)).collect()).collect();
        let serving: Vec<u8> = power.ids().filter(|s| power.serves(*s)).map(|s| s.index() as u8).collect();
        let ways =
            |to: usize| serving.iter().filter_map(move |from| Some((*from, to)).filter(|(a, b)| usize::from(*a) != *b));
        let time = |from: usize, to: usize| routes[from][to].map(|route: Route| route.time);
        let into = (0..powers.len()).map(|to| ways(to).filter_map(|(from, to)| time(from.into(), to)).min());
        let out =
            (0..powers.len()).flat_map(|from| serving.iter().filter_map(move |to| time(from, (*to).into()))).max();
        let highest = serving.iter().map(|state| powers[usize::from(*state)]).max().unwrap_or_default();
        let mut side = Self {
            device,
            base: world.base,
            is_lazy: powers.iter().any(|power| *power + world.base < highest),
            highest,
            into: into.map(Option::unwrap_or_default).collect(),
            out: out.unwrap_or_default(),
            powers,
            serving,
            routes,
            start: world.start[id.index()].index() as u8,
            changes: Vec::new(),
            all_bytes: 0,
            points: Vec::new(),
            mine: Vec::new(),
            steps: Vec::new(),
        };
        side.fill(trace, points, id, late);
        side
    }

    /// What a point is by itself.
    pub(super) fn moment(&self, point: usize) -> &Moment {
        &self.points[point].moment
    }

    /// The device's own point before one of its own; `None` if that is none of its own.
    pub(super) fn before(&self, point: usize) -> Option<&Moment> {
        let at = self.mine.binary_search(&point).ok()?;
        Some(self.moment(self.mine[at.saturating_sub(1)]))
    }

    /// The device's own point that is the last one until a point.
    pub(super) fn latest(&self, point: usize) -> &Moment {
        let count = self.mine.partition_point(|mine| *mine <= point);
        self.moment(self.mine[count.saturating_sub(1)])
    }

    /// What more bytes of a burst cost, and the time they take.
    fn transfer(&self, state: u8, bytes: u64) -> Option<(Cost, Span)> {
        let job = |bytes| self.device.flush(StateId(state), bytes, 1);
        let (all, first) = (job(bytes)?, job(0)?);
        Some((cost_of(&all) - cost_of(&first), all.time().less(first.time())))
    }

    /// The same where it is least.
    fn least(&self, bytes: u64) -> Cost {
        self.serving.iter().filter_map(|state| Some(self.transfer(*state, bytes)?.0)).min().unwrap_or(0)
    }

    /// The most that resting costs while these bytes, which have been paid for, are written.
    fn rested(&self, bytes: u64) -> Cost {
        let of = |state: &u8| Some(self.rest(*state, self.transfer(*state, bytes)?.1));
        if bytes == 0 { 0 } else { self.serving.iter().filter_map(of).max().unwrap_or(0) }
    }

    /// The bytes that must be written, of the changes from the one to before the other.
    fn needed(&self, first: u32, until: u32) -> u64 {
        let before = |at: u32| self.changes.get(at as usize).map_or(self.all_bytes, |change| change.before_bytes);
        before(until) - before(first)
    }

    /// The same a little earlier and no dearer, so that many become one.
    pub(super) fn blurred(&self, here: &Moment, way: Way) -> Way {
        let (now, spot) = (here.at, way.spot);
        let is_awake = self.serving.contains(&spot.state);
        let grain = if is_awake { AWAKE } else { (self.into[usize::from(spot.state)] + self.out).get() / 8 };
        let ready = Time::after_start(Span::nanos(spot.ready.get() / grain.max(1) * grain.max(1)));
        let earlier = spot.ready.max(now).since(ready.max(now));
        // Where a device can go up from, what it owes is let off: it could not be told how much of it is done there.
        let is_highest = self.powers[usize::from(spot.state)] >= self.highest;
        let owed = if is_highest { spot.owed - spot.ready.since(ready) } else { Time::ZERO };
        // What could go up later is done earlier, and draws the most so much longer.
        Way { spot: Spot { ready, owed, ..spot }, cost: way.cost - over(self.highest, earlier) }
    }

    fn serve(&self, bytes: u64, follows: bool) -> Vec<Serving> {
        let ways = self.serving.iter().filter_map(|state| {
            let job = self.device.read(StateId(*state), bytes, follows)?;
            Some((*state, cost_of(&job) + over(self.base, job.time()), job.time()))
        });
        ways.collect()
    }

    pub(super) fn start(&self) -> Spot {
        Spot { state: self.start, ..Spot::default() }
    }

    /// What resting in a state costs.
    pub(super) fn rest(&self, state: u8, span: Span) -> Cost {
        over(self.powers[usize::from(state)], span)
    }

    /// The states that serve.
    pub(super) fn serving(&self) -> impl Iterator<Item = u8> {
        self.serving.iter().copied()
    }

    /// Whether what it does may take more tokens than are there at the beginning.
    pub(super) fn is_tight(&self, deeds: &[(usize, Deed, u8)]) -> bool {
        let states = std::iter::once(self.start).chain(deeds.iter().map(|(_, _, state)| *state)).map(usize::from);
        let pairs = states.clone().zip(states.skip(1));
        let taken =
            pairs.filter(|(from, to)| self.routes[*from][*to].is_some_and(|route| route.takes.is_some())).count();
        self.device.budget.is_some_and(|limits| taken > limits.burst as usize)
    }

    /// Whether the one state draws less than the other.
    pub(super) fn is_lower(&self, one: u8, other: u8) -> bool {
        self.powers[usize::from(one)] < self.powers[usize::from(other)]
    }

    /// How long the way from one state to another takes.
    pub(super) fn time(&self, from: u8, to: u8) -> Span {
        self.routes[usize::from(from)][usize::from(to)].map_or(Span::ZERO, |route| route.time)
    }

    /// Whether the device can serve a point's read, and what it costs where that is least, once it is awake.
    pub(super) fn serves(&self, point: usize) -> Option<Cost> {
        self.points[point].reads.iter().map(|(_, cost, _)| *cost).min()
    }

    /// From a point of its own to the next: it rests or finishes, or writes what it has so that it is done there; and what changes
    /// there comes to its queue.
    pub(super) fn comes(&self, before: &Moment, here: &Moment, spot: Spot, terms: Terms) -> impl Iterator<Item = Way> {
        let (before, here) = (*before, *here);
        let early =
            terms.is_between.then(|| self.burst(before, spot, terms, move |time| here.at.since(Time::ZERO).less(time)));
        let ways = early.into_iter().flatten().chain([Way { spot, cost: 0 }]);
        ways.map(move |way| {
            let arrived = self.arrive(&before, &here, way.spot, terms);
            Way { cost: way.cost + arrived.cost, ..arrived }
        })
    }

    fn arrive(&self, before: &Moment, here: &Moment, spot: Spot, terms: Terms) -> Way {
        let rested = here.at.since(before.at.max(spot.ready));
        let mut spot = spot;
        if spot.ready + self.out <= here.at {
            spot.ready = Time::ZERO;
        }
        for past in [&mut spot.full, &mut spot.owed].into_iter().filter(|time| **time <= here.at) {
            *past = Time::ZERO;
        }
        let cost = over(self.powers[usize::from(spot.state)], rested);
        if terms.is_blurred {
            let new = before.arrived as usize..here.arrived as usize;
            return Way { spot, cost: cost + self.changes[new].iter().map(|change| change.least).sum::<Cost>() };
        }
        for at in before.arrived..here.arrived {
            let change = self.changes[at as usize];
            match change.before.filter(|(before, _)| *before >= spot.written) {
                Some((_, bytes)) => spot.bytes = spot.bytes - bytes + change.bytes,
                None => (spot.bytes, spot.objects) = (spot.bytes + change.bytes, spot.objects + 1),
            }
        }
        Way { spot, cost }
    }

    /// To a state that serves, just in time or, where that may be cheaper, only when it is wanted.
    fn wake(&self, here: &Moment, spot: Spot, to: u8, is_late: bool, terms: Terms) -> Option<Way> {
        let now = here.at;
        if spot.state == to {
            return (!is_late).then_some(Way { spot: Spot { ready: spot.ready.max(now), ..spot }, cost: 0 });
        }
        let earliest = if is_late { now.max(spot.ready) } else { spot.ready };
        let (route, begin, full) = self.moved(here, spot, earliest, to, terms)?;
        let ready = now.max(begin + route.time);
        // It was counted as resting until now.
        let back = now.since(Time::after_start(Span::nanos(ready.get()).less(route.time)));
        let more = self.shifted(spot, to, now.max(begin));
        let mut cost = route.energy + more - self.rest(spot.state, back);
        if terms.is_blurred {
            // Just in time for the last of what is taken together.
            let spread = here.until.since(now);
            cost -= (self.rest(to, spread) - self.rest(spot.state, spread)).max(0);
        }
        Some(Way { spot: Spot { state: to, ready, full, owed: Time::ZERO, ..spot }, cost })
    }

    /// What it costs more that the device goes from its state to another one only when it has done what it owes, not at `begin`.
    fn shifted(&self, spot: Spot, to: u8, begin: Time) -> Cost {
        let owed = spot.owed.since(begin);
        (self.rest(spot.state, owed) - self.rest(to, owed)).max(0)
    }

    /// The way to another state, when it begins if there is to be a token for it, and when the bucket is full after it. Sooner is
    /// better: what is awake longer costs more, and no token comes of waiting.
    fn moved(&self, here: &Moment, spot: Spot, earliest: Time, to: u8, terms: Terms) -> Option<(Route, Time, Time)> {
        let route = self.routes[usize::from(spot.state)][usize::from(to)]?;
        let (Some(takes), Some(limits), Some(rounding)) = (route.takes, self.device.budget, terms.budget) else {
            return Some((route, earliest, spot.full));
        };
        let bucket = Bucket::new(limits, rounding);
        let taken = bucket.opens(spot.full, earliest + takes)?;
        // A burst between points may have been earlier than here.
        let counted = if terms.is_between { here.since.min(taken) } else { taken };
        Some((route, taken - takes, bucket.take(spot.full, counted)))
    }

    /// The ways to serve a point's read. None if it has none, or is not here.
    pub(super) fn reads(&self, point: usize, spot: Spot, terms: Terms) -> impl Iterator<Item = Way> {
        let here = &self.points[point];
        here.reads.iter().flat_map(move |serving| self.served(&here.moment, *serving, spot, terms))
    }

    /// The ways to do such work for somebody who waits.
    pub(super) fn served(
        &self,
        here: &Moment,
        (state, cost, busy): Serving,
        spot: Spot,
        terms: Terms,
    ) -> impl Iterator<Item = Way> {
        let (now, here) = (here.at, *here);
        // Whoever waited for the work before has been counted.
        let free = Time::after_start(Span::nanos(spot.ready.get()).less(self.into[usize::from(spot.state)]));
        let late = [false, true].into_iter().take(1 + usize::from(self.is_lazy));
        late.filter_map(move |is_late| {
            let woken = self.wake(&here, spot, state, is_late, terms)?;
            let is_moved = spot.state != state;
            let waited = if is_moved { woken.spot.ready.since(here.until.max(free)) } else { Span::ZERO };
            let ready = woken.spot.ready + busy;
            let cost = cost + woken.cost + over(self.base, waited);
            if !terms.is_blurred {
                return Some(Way { spot: Spot { ready, ..woken.spot }, cost });
            }
            // Reads take no time from what comes later.
            let cost = cost - self.rest(state, ready.since(now));
            let owed = woken.spot.owed.max(woken.spot.ready) + busy;
            Some(Way { spot: Spot { ready: now, owed, ..woken.spot }, cost })
        })
    }

    /// The ways to write everything at a point, or later, just before there is a token for going down again.
    pub(super) fn writes(&self, here: &Moment, spot: Spot, terms: Terms) -> impl Iterator<Item = Way> {
        let (here, at) = (*here, here.at.since(Time::ZERO));
        let bucket = self.device.budget.zip(terms.budget).filter(|_| terms.is_between);
        let opens = bucket.and_then(|(limits, rounding)| Bucket::new(limits, rounding).opens(spot.full, here.at));
        let opens = opens.filter(|opens| *opens > here.at && *opens < here.next).map(|opens| opens.since(Time::ZERO));
        let later = opens.map(|opens| self.burst(here, spot, terms, move |time| opens.less(time)));
        self.burst(here, spot, terms, move |_| at).chain(later.into_iter().flatten())
    }

    /// The ways to write everything that has come until a point, from then on or later: from when on is said by how long it takes.
    fn burst(&self, here: Moment, spot: Spot, terms: Terms, from: impl Fn(Span) -> Span) -> impl Iterator<Item = Way> {
        let states = self.serving.iter().filter(move |_| spot.written < here.arrived);
        states.filter_map(move |&state| {
            let mut job = self.device.flush(StateId(state), spot.bytes, spot.objects)?;
            let mut time = job.time();
            if terms.is_blurred {
                let bytes = self.needed(spot.written, here.arrived);
                time = self.device.flush(StateId(state), bytes, 1)?.time();
                job = self.device.flush(StateId(state), 0, 1)?;
            }
            let at = here.at.max(Time::after_start(from(time)));
            let until = at + here.until.since(here.at);
            // It rests until then.
            let rested = self.rest(spot.state, at.since(here.at.max(spot.ready)));
            let woken = self.wake(&Moment { at, until, ..here }, spot, state, false, terms)?;
            let ready = woken.spot.ready + time;
            let owed = if terms.is_blurred { woken.spot.owed.max(woken.spot.ready) + time } else { Time::ZERO };
            let spot = Spot { written: here.arrived, bytes: 0, objects: 0, ready, owed, ..woken.spot };
            Some(Way { spot, cost: rested + woken.cost + cost_of(&job) })
        })
    }

    /// The ways to rest after a point.
    pub(super) fn rests(&self, here: &Moment, spot: Spot, terms: Terms) -> impl Iterator<Item = Way> {
        let (now, here) = (here.at, *here);
        let power = self.powers[usize::from(spot.state)];
        let lower = (0_u8..).zip(&self.powers).filter(move |(_, lower)| **lower < power);
        let gone = lower.filter_map(move |(state, _)| {
            let earliest = now.max(spot.ready);
            let (route, begin, full) = self.moved(&here, spot, earliest, state, terms)?;
            let more = self.shifted(spot, state, begin);
            let cost = route.energy + over(power, begin.since(earliest)) + more;
            Some(Way { spot: Spot { state, full, ready: begin + route.time, owed: Time::ZERO, ..spot }, cost })
        });
        std::iter::once(Way { spot, cost: 0 }).chain(gone)
    }

    /// Whether some change should have been written by now.
    pub(super) fn is_late(&self, here: &Moment, spot: Spot, terms: Terms) -> bool {
        let first = self.changes.get(spot.written as usize).filter(|_| spot.written < here.arrived);
        let last = |change: &Change| if terms.is_punctual { change.due } else { change.last };
        first.is_some_and(|change| here.is_end || last(change) <= here.until)
    }

    /// What the one needs to be as good as the other whatever follows, if it can be: both are in the same state. A device that is
    /// done earlier may go up earlier, and draw the most until the other does. Where bytes are paid for as they come, the other may still
    /// write them in a pause and rest so much less.
    pub(super) fn handicap(&self, here: &Moment, one: &Spot, other: &Spot, terms: Terms) -> Option<Cost> {
        let now = here.at;
        if one.written < other.written || one.full > other.full || one.ready > other.ready {
            return None;
        }
        let rest = other.ready.max(now).since(one.ready.max(now));
        let owed = self.rest(one.state, one.owed.max(now).since(other.owed.max(now)));
        let bytes = if terms.is_blurred { self.needed(other.written, one.written) } else { 0 };
        Some(over(self.highest, rest) + owed + self.rested(bytes))
    }
}
