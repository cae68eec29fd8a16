//! The exact optimum of the [problem](super), by dynamic programming over all devices at once.
//!
//! # Guarantees
//! 1. A way is dropped only if another one, with the same states, has written no less, stopped no more often and cost no
//!    more: whatever can follow the one can follow the other at no greater cost.

use super::problem::{Kind, Problem, Unsolvable};
use super::side::{Cost, Spot, Way};
use std::collections::BTreeMap;
use teal_types::{Energy, Span};

/// Most devices.
pub(super) const DEVICES: usize = 3;
/// Most ways to tell apart at one point.
const WAYS: usize = 400_000;

type Spots = [Spot; DEVICES];
/// Cheapest cost by where the devices are, and the work that stands in place of resting.
type Front = BTreeMap<(Spots, [Span; DEVICES]), Cost>;

/// The least energy of a problem: exact, for up to three devices and some hundred events.
///
/// # Errors
/// [`Unsolvable`].
pub fn least(problem: &Problem<'_>) -> Result<Energy, Unsolvable> {
    let count = problem.sides.len();
    if count > DEVICES {
        return Err(Unsolvable::Devices(count));
    }
    let mut start = Spots::default();
    problem.sides.iter().zip(&mut start).for_each(|(side, spot)| *spot = side.start());
    let mut front = Front::from([((start, [Span::ZERO; DEVICES]), 0)]);
    for point in 0..problem.points.len() {
        front = step(problem, point, &front);
        if front.len() > WAYS {
            return Err(Unsolvable::Large(front.len()));
        }
    }
    let least = front.into_values().min().ok_or(Unsolvable::Infeasible)?;
    Ok(energy(least))
}

/// Rounded down: it stays a bound.
pub(super) fn energy(cost: Cost) -> Energy {
    Energy::microjoules(u64::try_from(cost.div_euclid(1_000_000_000).max(0)).unwrap_or(u64::MAX))
}

fn step(problem: &Problem<'_>, point: usize, front: &Front) -> Front {
    let gap = problem.gap(point);
    let mut front: Front = front
        .iter()
        .map(|((spots, busy), cost)| {
            let resting: Cost = problem.sides.iter().zip(spots).map(|(side, spot)| side.resting(*spot, gap)).sum();
            ((*spots, *busy), cost + resting)
        })
        .collect();
    for (at, side) in problem.sides.iter().enumerate() {
        front = expand(&front, at, |spot, busy| on(busy, side.writes(point, spot, true)));
    }
    if problem.points[point].kind == Kind::Read {
        let mut served = Front::new();
        for (at, side) in problem.sides.iter().enumerate() {
            for (key, cost) in expand(&front, at, |spot, busy| on(busy, side.reads(point, spot))) {
                keep(&mut served, key, cost);
            }
        }
        front = served;
    }
    for (at, side) in problem.sides.iter().enumerate() {
        front = expand(&front, at, |spot, busy| on(busy, side.writes(point, spot, false)));
    }
    for (at, side) in problem.sides.iter().enumerate() {
        front = expand(&front, at, |spot, busy| side.rests(spot, busy).collect());
    }
    let is_late = |spots: &Spots| problem.sides.iter().zip(spots).any(|(side, spot)| side.is_late(point, *spot));
    front.retain(|(spots, _), _| !is_late(spots));
    prune(front)
}

/// More work for a device that has some.
fn on(busy: Span, ways: impl IntoIterator<Item = Way>) -> Vec<Way> {
    ways.into_iter().map(|way| Way { busy: busy + way.busy, ..way }).collect()
}

/// One device's next step.
fn expand(front: &Front, at: usize, ways: impl Fn(Spot, Span) -> Vec<Way>) -> Front {
    let mut next = Front::new();
    for ((spots, busy), cost) in front {
        for way in ways(spots[at], busy[at]) {
            let (mut spots, mut busy) = (*spots, *busy);
            (spots[at], busy[at]) = (way.spot, way.busy);
            keep(&mut next, (spots, busy), cost + way.cost);
        }
    }
    next
}

fn keep(front: &mut Front, key: (Spots, [Span; DEVICES]), cost: Cost) {
    let known = front.entry(key).or_insert(cost);
    *known = cost.min(*known);
}

/// Drops what is no better than another way.
fn prune(front: Front) -> Front {
    let mut by_states: BTreeMap<[u8; DEVICES], Vec<(Spots, Cost)>> = BTreeMap::new();
    for ((spots, _), cost) in front {
        by_states.entry(spots.map(|spot| spot.state)).or_default().push((spots, cost));
    }
    let mut kept = Front::new();
    for mut ways in by_states.into_values() {
        ways.sort_by_key(|(spots, cost)| (*cost, std::cmp::Reverse(spots.map(|spot| spot.written)), *spots));
        let mut best: Vec<Spots> = Vec::new();
        for (spots, cost) in ways {
            let beats =
                |other: &Spots| other.iter().zip(&spots).all(|(a, b)| a.written >= b.written && a.stops <= b.stops);
            if !best.iter().any(beats) {
                best.push(spots);
                kept.insert((spots, [Span::ZERO; DEVICES]), cost);
            }
        }
    }
    kept
}
