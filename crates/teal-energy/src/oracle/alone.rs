//! The best that one device can do with claims on reads: dynamic programming over its own points.
//!
//! # Guarantees
//! 1. A way is dropped only if another one is as good whatever follows.
//! 2. The deeds it answers with cost what it says.

use super::side::{Cost, Side, Spot, Terms};

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

/// What a device does at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    /// Serves the read.
    Read,
    /// Writes everything.
    Write,
    /// Goes to rest in this state.
    Rest(u8),
}

/// A device's best: its cost less what it earns, and what it does at which point, in order.
#[derive(Debug, Clone)]
pub(super) struct Best {
    pub(super) cost: Cost,
    /// Each with the state it is done in.
    pub(super) deeds: Vec<(usize, Deed, u8)>,
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
pub(super) fn alone(side: &Side<'_>, claims: &[Claim]) -> Option<Best> {
    // Stops are counted only where they turn out to be too many.
    let free = within(side, claims, Terms { stop: Some(0) })?;
    let stops: u32 = side.most_stops().map_or(0, |_| side.stops(&free.deeds));
    if side.most_stops().is_none_or(|most| stops <= most) {
        return Some(free);
    }
    within(side, claims, Terms::default())
}

fn within(side: &Side<'_>, claims: &[Claim], terms: Terms) -> Option<Best> {
    let mut deeds = Deeds(Vec::new());
    let mut front = vec![Reached { spot: side.start(), cost: 0, last: NONE }];
    let (mut next, mut before) = (Vec::new(), 0);
    for &point in &side.mine {
        for reached in &mut front {
            let way = side.arrive(before, point, reached.spot);
            (reached.spot, reached.cost) = (way.spot, reached.cost + way.cost);
        }
        before = point;
        let claim = claims[point];
        next.clear();
        if claim != Claim::No {
            let earned = if let Claim::May(price) = claim { price } else { 0 };
            for reached in &front {
                next.extend(side.reads(point, reached.spot, terms).map(|way| {
                    let last = deeds.add(reached.last, point, Deed::Read, way.spot.state);
                    Reached { spot: way.spot, cost: reached.cost + way.cost - earned, last }
                }));
            }
        }
        if claim != Claim::Must {
            next.append(&mut front);
        }
        prune(side, point, &mut next, &mut front);
        next.clear();
        for reached in &front {
            next.extend(side.writes(point, reached.spot, terms).map(|way| {
                let last = deeds.add(reached.last, point, Deed::Write, way.spot.state);
                Reached { spot: way.spot, cost: reached.cost + way.cost, last }
            }));
        }
        next.append(&mut front);
        prune(side, point, &mut next, &mut front);
        next.clear();
        for reached in &front {
            next.extend(side.rests(point, reached.spot, terms).map(|way| {
                let is_same = way.spot.state == reached.spot.state;
                let rest =
                    |deeds: &mut Deeds| deeds.add(reached.last, point, Deed::Rest(way.spot.state), way.spot.state);
                let last = if is_same { reached.last } else { rest(&mut deeds) };
                Reached { spot: way.spot, cost: reached.cost + way.cost, last }
            }));
        }
        next.retain(|reached| !side.is_late(point, reached.spot));
        prune(side, point, &mut next, &mut front);
    }
    let best = front.into_iter().min_by_key(|reached| reached.cost)?;
    Some(Best { cost: best.cost, deeds: deeds.list(best.last) })
}

/// Keeps what no other way is as good as.
fn prune(side: &Side<'_>, point: usize, ways: &mut [Reached], kept: &mut Vec<Reached>) {
    ways.sort_unstable_by_key(|one| (one.spot.state, one.cost, std::cmp::Reverse(one.spot.written), one.spot));
    kept.clear();
    let mut first = 0;
    for way in ways {
        if kept.get(first).is_some_and(|one| one.spot.state != way.spot.state) {
            first = kept.len();
        }
        let is_as_good =
            |one: &Reached| side.handicap(point, &one.spot, &way.spot).is_some_and(|more| one.cost + more <= way.cost);
        if !kept[first..].iter().any(is_as_good) {
            kept.push(*way);
        }
    }
}
