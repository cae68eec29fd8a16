//! The best that one device can do with claims on reads: dynamic programming over its own points.
//!
//! # Guarantees
//! 1. A way is dropped only if another one is as good whatever follows.
//! 2. What it says is no more than its deeds cost: it blurs ([`Terms::is_blurred`]).

use super::side::{Cost, Moment, Serving, Side, Spot, Step};
use super::terms::Terms;
use teal_types::Span;

/// What a device may do with a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// It is served elsewhere.
    No,
    /// It earns so much for serving it.
    May(Cost),
    /// It has to serve it.
    Must,
}

/// What a device does at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    /// Serves reads.
    Read,
    /// Writes everything.
    Write,
    /// Goes to rest in this state.
    Rest(u8),
}

/// A device's best: its cost less what it earns, and what it does at which step, in order.
#[derive(Debug, Clone)]
pub(super) struct Best {
    pub(super) cost: Cost,
    /// Steps of the device, each deed with the state it is done in.
    pub(super) deeds: Vec<(usize, Deed, u8)>,
    /// The points whose reads it serves.
    pub(super) taken: Vec<usize>,
}

#[derive(Debug, Clone, Copy)]
struct Reached {
    spot: Spot,
    cost: Cost,
    /// The last deed, in a list that shares its beginning with others.
    last: u32,
}

const NONE: u32 = u32::MAX;

struct Deeds(Vec<(u32, u32, Deed, u8)>);

impl Deeds {
    fn add(&mut self, before: u32, point: usize, deed: Deed, state: u8) -> u32 {
        self.0.push((before, point as u32, deed, state));
        self.0.len() as u32 - 1
    }

    fn add_if(&mut self, is_done: bool, before: u32, (point, deed, state): (usize, Deed, u8)) -> u32 {
        if is_done { self.add(before, point, deed, state) } else { before }
    }

    fn list(&self, mut last: u32) -> Vec<(usize, Deed, u8)> {
        let mut deeds = Vec::new();
        while last != NONE {
            let (before, point, deed, state) = self.0[last as usize];
            deeds.push((point as usize, deed, state));
            last = before;
        }
        deeds.reverse();
        deeds
    }
}

/// The best that one device can do with claims on each point's read; `None` if it cannot keep the limits.
pub(super) fn alone(side: &Side<'_>, claims: &[Claim], terms: Terms) -> Option<Best> {
    let best = within(side, claims, terms.unlimited())?;
    if terms.budget.is_some() && side.is_tight(&best.deeds) { within(side, claims, terms) } else { Some(best) }
}

fn within(side: &Side<'_>, claims: &[Claim], terms: Terms) -> Option<Best> {
    let mut deeds = Deeds(Vec::new());
    let mut front = vec![Reached { spot: side.start(), cost: 0, last: NONE }];
    let mut next: Vec<Reached> = Vec::new();
    let mut before = *side.moment(0);
    for (at, step) in side.steps.iter().enumerate() {
        let here = &step.moment;
        next.clear();
        for reached in &front {
            next.extend(side.comes(&before, here, reached.spot, terms).map(|way| {
                let last = deeds.add_if(
                    way.spot.written > reached.spot.written,
                    reached.last,
                    (at, Deed::Write, way.spot.state),
                );
                Reached { spot: way.spot, cost: reached.cost + way.cost, last }
            }));
        }
        prune((side, terms), here, &mut next, &mut front);
        // Of points taken as one a change may come before a read.
        if here.has_come_since(&before) && !step.reads.is_empty() {
            write(side, at, &mut deeds, (&mut front, &mut next), terms);
        }
        before = *here;
        next.clear();
        for serving in side.serving().filter_map(|state| take(side, step, claims, state)) {
            for reached in &front {
                next.extend(side.served(here, serving, reached.spot, terms).map(|way| {
                    let last = deeds.add(reached.last, at, Deed::Read, way.spot.state);
                    Reached { spot: way.spot, cost: reached.cost + way.cost, last }
                }));
            }
        }
        if step.reads.iter().all(|(point, _)| claims[*point] != Claim::Must) {
            next.append(&mut front);
        }
        prune((side, terms), here, &mut next, &mut front);
        write(side, at, &mut deeds, (&mut front, &mut next), terms);
        next.clear();
        for reached in &front {
            next.extend(side.rests(here, reached.spot, terms).map(|way| side.blurred(here, way)).map(|way| {
                let is_same = way.spot.state == reached.spot.state;
                let rest = |deeds: &mut Deeds| deeds.add(reached.last, at, Deed::Rest(way.spot.state), way.spot.state);
                let last = if is_same { reached.last } else { rest(&mut deeds) };
                Reached { spot: way.spot, cost: reached.cost + way.cost, last }
            }));
        }
        next.retain(|reached| !side.is_late(here, reached.spot, terms));
        prune((side, terms), here, &mut next, &mut front);
    }
    let best = front.into_iter().min_by_key(|reached| reached.cost)?;
    let deeds = deeds.list(best.last);
    let reads = deeds.iter().filter(|(_, deed, _)| *deed == Deed::Read);
    let taken = reads.flat_map(|(at, _, state)| taken(side, &side.steps[*at], claims, *state)).collect();
    Some(Best { cost: best.cost, deeds, taken })
}

/// Ways so far, and room for those to come.
type Fronts<'f> = (&'f mut Vec<Reached>, &'f mut Vec<Reached>);

/// Adds the ways that write everything at a step.
fn write(side: &Side<'_>, at: usize, deeds: &mut Deeds, (front, next): Fronts<'_>, terms: Terms) {
    let here = &side.steps[at].moment;
    next.clear();
    for reached in front.iter() {
        next.extend(side.writes(here, reached.spot, terms).map(|way| {
            let last = deeds.add(reached.last, at, Deed::Write, way.spot.state);
            Reached { spot: way.spot, cost: reached.cost + way.cost, last }
        }));
    }
    next.append(front);
    prune((side, terms), here, next, front);
}

/// What a read gains in a state, if it may be served there and pays, and the time it takes: none, since the device is taken to rest in that
/// state anyway, so that each read pays or not whatever the others do.
fn gain(side: &Side<'_>, ways: &[Serving], claim: Claim, state: u8) -> Option<(Cost, Span)> {
    let (Claim::May(price), Some(&(_, cost, busy))) = (claim, ways.iter().find(|(at, ..)| *at == state)) else {
        return None;
    };
    let gain = price - cost + side.rest(state, busy);
    (gain > 0).then_some((gain, Span::ZERO))
}

/// The reads of a step that pay in a state, and those that must be served there.
fn taken<'s>(side: &'s Side<'_>, step: &'s Step, claims: &'s [Claim], state: u8) -> impl Iterator<Item = usize> + 's {
    let pays = move |(point, ways): &&(usize, Vec<Serving>)| {
        claims[*point] == Claim::Must || gain(side, ways, claims[*point], state).is_some()
    };
    step.reads.iter().filter(pays).map(|(point, _)| *point)
}

/// What it serves of a step in a state: cost less what it earns, and time. `None` if that is nothing, or not all it must.
fn take(side: &Side<'_>, step: &Step, claims: &[Claim], state: u8) -> Option<Serving> {
    let (mut serving, mut is_empty) = ((state, 0, Span::ZERO), true);
    for (point, ways) in &step.reads {
        if claims[*point] == Claim::Must {
            let (_, cost, busy) = ways.iter().find(|(at, ..)| *at == state)?;
            (serving.1, serving.2, is_empty) = (serving.1 + cost, serving.2 + *busy, false);
        } else if let Some((gain, busy)) = gain(side, ways, claims[*point], state) {
            (serving.1, serving.2, is_empty) = (serving.1 - gain, serving.2 + busy, false);
        }
    }
    (!is_empty).then_some(serving)
}

/// Keeps what no other way is as good as.
fn prune((side, terms): (&Side<'_>, Terms), here: &Moment, ways: &mut [Reached], kept: &mut Vec<Reached>) {
    ways.sort_unstable_by_key(|one| (one.spot.state, one.cost, std::cmp::Reverse(one.spot.written), one.spot));
    kept.clear();
    let mut first = 0;
    for way in ways {
        if kept.get(first).is_some_and(|one| one.spot.state != way.spot.state) {
            first = kept.len();
        }
        let is_as_good = |one: &Reached| {
            side.handicap(here, &one.spot, &way.spot, terms).is_some_and(|more| one.cost + more <= way.cost)
        };
        if !kept[first..].iter().any(is_as_good) {
            kept.push(*way);
        }
    }
}
