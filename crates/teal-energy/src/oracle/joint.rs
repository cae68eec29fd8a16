//! The exact optimum of the [problem](super), by dynamic programming over all devices at once.
//!
//! # Guarantees
//! 1. A way is dropped only if another one, with the same states, has written no less, whose bucket
//!    is full no later, which is done no later and costs no more: whatever can follow the one can
//!    follow the other at no greater cost.

use super::problem::{Kind, Problem, Unsolvable};
use super::subproblem::{CandidateStep, Cost, DeviceState, StopLimit};
use std::collections::BTreeMap;
use teal_types::Energy;

/// Most devices.
pub(super) const DEVICES: usize = 3;
/// Most ways to tell apart at one point.
const WAYS: usize = 400_000;

pub(super) type DeviceStates = [DeviceState; DEVICES];
/// By device its own point that is the last one.
pub(super) type PointIndices = [usize; DEVICES];
/// Cheapest cost by where the devices are.
type Front = BTreeMap<DeviceStates, Cost>;

/// The least energy of a problem: exact, for up to three devices and some hundred events.
///
/// # Errors
/// [`Unsolvable`].
pub fn least(problem: &Problem<'_>) -> Result<Energy, Unsolvable> {
    exact(problem).map(energy)
}

/// The same, not rounded.
pub(super) fn exact(problem: &Problem<'_>) -> Result<Cost, Unsolvable> {
    let count = problem.sides.len();
    if count > DEVICES {
        return Err(Unsolvable::Devices(count));
    }
    let mut start = DeviceStates::default();
    problem
        .sides
        .iter()
        .zip(&mut start)
        .for_each(|(side, spot)| *spot = side.start());
    let mut front = Front::from([(start, 0)]);
    for point in 0..problem.points.len() {
        front = step(problem, point, front);
        if front.len() > WAYS {
            return Err(Unsolvable::Large(front.len()));
        }
    }
    let rest = |(spots, cost): (DeviceStates, Cost)| {
        let sides = problem.sides.iter().zip(spots);
        cost + sides
            .map(|(side, spot)| side.rest(side.own.len() - 1, spot))
            .sum::<Cost>()
    };
    front
        .into_iter()
        .map(rest)
        .min()
        .ok_or(Unsolvable::Infeasible)
}

/// Rounded down: it stays a bound.
pub(super) fn energy(cost: Cost) -> Energy {
    Energy::microjoules(u64::try_from(cost.div_euclid(1_000_000_000).max(0)).unwrap_or(u64::MAX))
}

fn step(problem: &Problem<'_>, point: usize, mut front: Front) -> Front {
    // Whose point it is not does nothing there.
    let sides = || {
        problem
            .sides
            .iter()
            .enumerate()
            .filter_map(|(at, side)| Some((at, side, side.place(point)?)))
    };
    for (at, side, own) in sides() {
        front = expand(&front, at, |spot| [side.come(own, spot)]);
    }
    front = prune(problem, point, front);
    if problem.points[point].kind == Kind::Read {
        let mut served = Front::new();
        for (at, side, own) in sides() {
            for (spots, cost) in
                expand(&front, at, |spot| side.reads(own, spot, StopLimit::Counted))
            {
                keep(&mut served, spots, cost);
            }
        }
        front = served;
    }
    for (at, side, own) in sides() {
        let stay = |spot| [CandidateStep::none(spot)];
        let write = |spot| side.writes(own, spot, StopLimit::Counted).chain(stay(spot));
        front = prune(problem, point, expand(&front, at, write));
        front = expand(&front, at, |spot| {
            side.stops(own, spot, StopLimit::Counted).chain(stay(spot))
        });
        front = prune(problem, point, front);
    }
    let is_late =
        |spots: &DeviceStates| sides().any(|(at, side, own)| side.is_late(own, spots[at], false));
    front.retain(|spots, _| !is_late(spots));
    front
}

/// One device's next step.
fn expand<W: IntoIterator<Item = CandidateStep>>(
    front: &Front,
    at: usize,
    ways: impl Fn(DeviceState) -> W,
) -> Front {
    let mut next = Front::new();
    for (spots, cost) in front {
        for way in ways(spots[at]) {
            let mut spots = *spots;
            spots[at] = way.spot;
            keep(&mut next, spots, cost + way.cost);
        }
    }
    next
}

fn keep(front: &mut Front, spots: DeviceStates, cost: Cost) {
    let known = front.entry(spots).or_insert(cost);
    *known = cost.min(*known);
}

/// Returns where each device is known to have come to at a point.
pub(super) fn places(problem: &Problem<'_>, point: usize) -> PointIndices {
    let mut places = PointIndices::default();
    problem
        .sides
        .iter()
        .zip(&mut places)
        .for_each(|(side, place)| *place = side.latest(point));
    places
}

/// Returns whether one way is as good as another one of the same name, whatever follows.
pub(super) fn is_as_good(
    problem: &Problem<'_>,
    places: &PointIndices,
    (one, its): (&DeviceStates, Cost),
    (two, cost): (&DeviceStates, Cost),
) -> bool {
    let sides = problem.sides.iter().zip(places).zip(one.iter().zip(two));
    let more: Option<Cost> = sides
        .map(|((side, own), (one, two))| side.handicap(*own, one, two))
        .sum();
    more.is_some_and(|more| its + more <= cost)
}

/// Drops what is no better than another way.
fn prune(problem: &Problem<'_>, point: usize, front: Front) -> Front {
    let mut by_states: BTreeMap<[u8; DEVICES], Vec<(DeviceStates, Cost)>> = BTreeMap::new();
    for (spots, cost) in front {
        by_states
            .entry(spots.map(|spot| spot.state))
            .or_default()
            .push((spots, cost));
    }
    let places = places(problem, point);
    let mut kept = Front::new();
    for mut ways in by_states.into_values() {
        ways.sort_by_key(|(spots, cost)| {
            (
                *cost,
                std::cmp::Reverse(spots.map(|spot| spot.written)),
                *spots,
            )
        });
        let mut best: Vec<(DeviceStates, Cost)> = Vec::new();
        for (spots, cost) in ways {
            let beats = |(other, its): &(DeviceStates, Cost)| {
                is_as_good(problem, &places, (other, *its), (&spots, cost))
            };
            if !best.iter().any(beats) {
                best.push((spots, cost));
                kept.insert(spots, cost);
            }
        }
    }
    kept
}
