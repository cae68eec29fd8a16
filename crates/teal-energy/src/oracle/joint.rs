//! The exact optimum of the [problem](super), by dynamic programming over all devices at once.
//!
//! # Guarantees
//! 1. A way is dropped only if another one, with the same states, has written no less, whose bucket
//!    is full no later, which is done no later and costs no more: whatever can follow the one can
//!    follow the other at no greater cost.

use super::problem::{PointKind, SchedulingProblem, Unsolvable};
use super::subproblem::{CandidateStep, Cost, DeviceState, StopLimit};
use std::collections::BTreeMap;
use teal_types::Energy;

/// Most devices.
pub(super) const JOINT_DEVICES_MAX: usize = 3;
/// Most ways to tell apart at one point.
const CANDIDATES_MAX: usize = 400_000;

pub(super) type DeviceStates = [DeviceState; JOINT_DEVICES_MAX];
/// By device its own point that is the last one.
pub(super) type PointIndices = [usize; JOINT_DEVICES_MAX];
/// Cheapest cost by where the devices are.
type Front = BTreeMap<DeviceStates, Cost>;

/// The least energy of a problem: exact, for up to three devices and some hundred events.
///
/// # Errors
/// [`Unsolvable`].
pub fn exact_optimum(problem: &SchedulingProblem<'_>) -> Result<Energy, Unsolvable> {
    optimum_cost(problem).map(rounded_down)
}

/// The same, not rounded.
pub(super) fn optimum_cost(problem: &SchedulingProblem<'_>) -> Result<Cost, Unsolvable> {
    let count = problem.subproblems.len();
    if count > JOINT_DEVICES_MAX {
        return Err(Unsolvable::Devices(count));
    }
    let mut start = DeviceStates::default();
    problem
        .subproblems
        .iter()
        .zip(&mut start)
        .for_each(|(side, spot)| *spot = side.start_state());
    let mut front = Front::from([(start, 0)]);
    for point in 0..problem.points.len() {
        front = step_point(problem, point, front);
        if front.len() > CANDIDATES_MAX {
            return Err(Unsolvable::Large(front.len()));
        }
    }
    let rest = |(spots, cost): (DeviceStates, Cost)| {
        let sides = problem.subproblems.iter().zip(spots);
        cost + sides
            .map(|(side, spot)| side.closing_cost(side.points.len() - 1, spot))
            .sum::<Cost>()
    };
    front
        .into_iter()
        .map(rest)
        .min()
        .ok_or(Unsolvable::Infeasible)
}

/// Rounded down: it stays a bound.
pub(super) fn rounded_down(cost: Cost) -> Energy {
    Energy::microjoules(u64::try_from(cost.div_euclid(1_000_000_000).max(0)).unwrap_or(u64::MAX))
}

fn step_point(problem: &SchedulingProblem<'_>, point: usize, mut front: Front) -> Front {
    // Whose point it is not does nothing there.
    let sides = || {
        problem
            .subproblems
            .iter()
            .enumerate()
            .filter_map(|(at, side)| Some((at, side, side.point_index(point)?)))
    };
    for (at, side, own) in sides() {
        front = expand_front(&front, at, |spot| [side.advance_to(own, spot)]);
    }
    front = prune_dominated(problem, point, front);
    if problem.points[point].kind == PointKind::Read {
        let mut served = Front::new();
        for (at, side, own) in sides() {
            for (spots, cost) in expand_front(&front, at, |spot| {
                side.read_steps(own, spot, StopLimit::Counted)
            }) {
                keep_cheapest(&mut served, spots, cost);
            }
        }
        front = served;
    }
    for (at, side, own) in sides() {
        let stay = |spot| [CandidateStep::no_action(spot)];
        let write = |spot| {
            side.write_steps(own, spot, StopLimit::Counted)
                .chain(stay(spot))
        };
        front = prune_dominated(problem, point, expand_front(&front, at, write));
        front = expand_front(&front, at, |spot| {
            side.stop_steps(own, spot, StopLimit::Counted)
                .chain(stay(spot))
        });
        front = prune_dominated(problem, point, front);
    }
    let is_late =
        |spots: &DeviceStates| sides().any(|(at, side, own)| side.is_late(own, spots[at], false));
    front.retain(|spots, _| !is_late(spots));
    front
}

/// One device's next step.
fn expand_front<W: IntoIterator<Item = CandidateStep>>(
    front: &Front,
    at: usize,
    ways: impl Fn(DeviceState) -> W,
) -> Front {
    let mut next = Front::new();
    for (spots, cost) in front {
        for way in ways(spots[at]) {
            let mut spots = *spots;
            spots[at] = way.state;
            keep_cheapest(&mut next, spots, cost + way.cost);
        }
    }
    next
}

fn keep_cheapest(front: &mut Front, spots: DeviceStates, cost: Cost) {
    let known = front.entry(spots).or_insert(cost);
    *known = cost.min(*known);
}

/// Returns where each device is known to have come to at a point.
pub(super) fn latest_points(problem: &SchedulingProblem<'_>, point: usize) -> PointIndices {
    let mut places = PointIndices::default();
    problem
        .subproblems
        .iter()
        .zip(&mut places)
        .for_each(|(side, place)| *place = side.latest_point(point));
    places
}

/// Returns whether one way is as good as another one of the same name, whatever follows.
pub(super) fn does_dominate(
    problem: &SchedulingProblem<'_>,
    places: &PointIndices,
    (one, its): (&DeviceStates, Cost),
    (two, cost): (&DeviceStates, Cost),
) -> bool {
    let sides = problem
        .subproblems
        .iter()
        .zip(places)
        .zip(one.iter().zip(two));
    let more: Option<Cost> = sides
        .map(|((side, own), (one, two))| side.dominance_cost(*own, one, two))
        .sum();
    more.is_some_and(|more| its + more <= cost)
}

/// Drops what is no better than another way.
fn prune_dominated(problem: &SchedulingProblem<'_>, point: usize, front: Front) -> Front {
    let mut by_states: BTreeMap<[u8; JOINT_DEVICES_MAX], Vec<(DeviceStates, Cost)>> =
        BTreeMap::new();
    for (spots, cost) in front {
        by_states
            .entry(spots.map(|spot| spot.power_state))
            .or_default()
            .push((spots, cost));
    }
    let places = latest_points(problem, point);
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
                does_dominate(problem, &places, (other, *its), (&spots, cost))
            };
            if !best.iter().any(beats) {
                best.push((spots, cost));
                kept.insert(spots, cost);
            }
        }
    }
    kept
}
