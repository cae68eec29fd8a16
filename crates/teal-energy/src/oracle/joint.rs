//! The exact optimum of the [problem](super), by dynamic programming over all devices at once.
//!
//! # Guarantees
//! 1. A candidate is dropped only if another one with the same power states *dominates* it: it has
//!    written no less, its bucket is full no later, it is done no later and costs no more. Then
//!    every continuation of the one can follow the other at no greater cost.

use super::problem::{PointKind, SchedulingProblem, Unsolvable};
use super::subproblem::{CandidateStep, Cost, DeviceState, StopLimit};
use std::collections::BTreeMap;
use teal_types::Energy;

/// The greatest number of devices.
pub(super) const JOINT_DEVICES_MAX: usize = 3;
/// The greatest number of candidates at one point.
const CANDIDATES_MAX: usize = 400_000;

pub(super) type DeviceStates = [DeviceState; JOINT_DEVICES_MAX];
/// By device, its own point that is the last one so far.
pub(super) type PointIndices = [usize; JOINT_DEVICES_MAX];
/// The least cost for each combination of device states.
type Front = BTreeMap<DeviceStates, Cost>;

/// Returns the least energy of a problem: exact, for up to three devices and some hundred events.
///
/// # Errors
/// [`Unsolvable`].
pub fn exact_optimum(problem: &SchedulingProblem<'_>) -> Result<Energy, Unsolvable> {
    optimum_cost(problem).map(rounded_down)
}

/// Returns the least cost of a problem in femtojoules, not rounded.
pub(super) fn optimum_cost(problem: &SchedulingProblem<'_>) -> Result<Cost, Unsolvable> {
    let count = problem.subproblems.len();
    // The number of candidates grows with the product of the devices' states.
    if count > JOINT_DEVICES_MAX {
        return Err(Unsolvable::Devices(count));
    }
    let mut start = DeviceStates::default();
    problem
        .subproblems
        .iter()
        .zip(&mut start)
        .for_each(|(subproblem, device_state)| *device_state = subproblem.start_state());
    let mut front = Front::from([(start, 0)]);
    for point in 0..problem.points.len() {
        front = step_point(problem, point, front);
        if front.len() > CANDIDATES_MAX {
            return Err(Unsolvable::Large(front.len()));
        }
    }
    let rest = |(device_states, cost): (DeviceStates, Cost)| {
        let subproblems = problem.subproblems.iter().zip(device_states);
        cost + subproblems
            .map(|(subproblem, device_state)| {
                subproblem.closing_cost(subproblem.points.len() - 1, device_state)
            })
            .sum::<Cost>()
    };
    front
        .into_iter()
        .map(rest)
        .min()
        .ok_or(Unsolvable::Infeasible)
}

/// Returns a cost rounded down, so that it stays a bound.
pub(super) fn rounded_down(cost: Cost) -> Energy {
    Energy::from_microjoules(
        u64::try_from(cost.div_euclid(1_000_000_000).max(0)).unwrap_or(u64::MAX),
    )
}

fn step_point(problem: &SchedulingProblem<'_>, point: usize, mut front: Front) -> Front {
    // A device does nothing at points that are not its own.
    let subproblems = || {
        problem
            .subproblems
            .iter()
            .enumerate()
            .filter_map(|(at, subproblem)| Some((at, subproblem, subproblem.point_index(point)?)))
    };
    for (at, subproblem, own_point) in subproblems() {
        front = expand_front(&front, at, |device_state| {
            [subproblem.advance_to(own_point, device_state)]
        });
    }
    front = prune_dominated(problem, point, front);
    // A read is served by exactly one device: candidates in which none serves it are dropped.
    if problem.points[point].kind == PointKind::Read {
        let mut served = Front::new();
        for (at, subproblem, own_point) in subproblems() {
            for (device_states, cost) in expand_front(&front, at, |device_state| {
                subproblem.read_steps(own_point, device_state, StopLimit::Counted)
            }) {
                keep_cheapest(&mut served, device_states, cost);
            }
        }
        front = served;
    }
    for (at, subproblem, own_point) in subproblems() {
        let stay = |device_state| [CandidateStep::no_action(device_state)];
        let write = |device_state| {
            subproblem
                .write_steps(own_point, device_state, StopLimit::Counted)
                .chain(stay(device_state))
        };
        front = prune_dominated(problem, point, expand_front(&front, at, write));
        front = expand_front(&front, at, |device_state| {
            subproblem
                .stop_steps(own_point, device_state, StopLimit::Counted)
                .chain(stay(device_state))
        });
        front = prune_dominated(problem, point, front);
    }
    let is_late = |device_states: &DeviceStates| {
        subproblems().any(|(at, subproblem, own_point)| {
            subproblem.is_late(own_point, device_states[at], false)
        })
    };
    // A schedule that misses a deadline is no schedule.
    front.retain(|device_states, _| !is_late(device_states));
    front
}

/// Extends every candidate by the steps of one device.
fn expand_front<W: IntoIterator<Item = CandidateStep>>(
    front: &Front,
    at: usize,
    steps: impl Fn(DeviceState) -> W,
) -> Front {
    let mut next = Front::new();
    for (device_states, cost) in front {
        for step in steps(device_states[at]) {
            let mut device_states = *device_states;
            device_states[at] = step.state;
            keep_cheapest(&mut next, device_states, cost + step.cost);
        }
    }
    next
}

fn keep_cheapest(front: &mut Front, device_states: DeviceStates, cost: Cost) {
    let known = front.entry(device_states).or_insert(cost);
    *known = cost.min(*known);
}

/// Returns each device's own point that is the last one until `point`.
pub(super) fn latest_points(problem: &SchedulingProblem<'_>, point: usize) -> PointIndices {
    let mut places = PointIndices::default();
    problem
        .subproblems
        .iter()
        .zip(&mut places)
        .for_each(|(subproblem, place)| *place = subproblem.latest_point(point));
    places
}

/// Returns whether one candidate is as good as another one in the same power states, whatever
/// follows.
pub(super) fn does_dominate(
    problem: &SchedulingProblem<'_>,
    places: &PointIndices,
    (one, its): (&DeviceStates, Cost),
    (two, cost): (&DeviceStates, Cost),
) -> bool {
    let subproblems = problem
        .subproblems
        .iter()
        .zip(places)
        .zip(one.iter().zip(two));
    let more: Option<Cost> = subproblems
        .map(|((subproblem, own_point), (one, two))| {
            subproblem.dominance_cost(*own_point, one, two)
        })
        .sum();
    more.is_some_and(|more| its + more <= cost)
}

/// Drops the candidates that another one dominates.
fn prune_dominated(problem: &SchedulingProblem<'_>, point: usize, front: Front) -> Front {
    // Only candidates in the same power states can be compared.
    let mut by_states: BTreeMap<[u8; JOINT_DEVICES_MAX], Vec<(DeviceStates, Cost)>> =
        BTreeMap::new();
    for (device_states, cost) in front {
        by_states
            .entry(device_states.map(|device_state| device_state.power_state))
            .or_default()
            .push((device_states, cost));
    }
    let places = latest_points(problem, point);
    let mut kept = Front::new();
    for mut candidates in by_states.into_values() {
        // The cheapest come first: a candidate can only be dominated by one that costs no more.
        candidates.sort_by_key(|(device_states, cost)| {
            (
                *cost,
                std::cmp::Reverse(device_states.map(|device_state| device_state.written)),
                *device_states,
            )
        });
        let mut best: Vec<(DeviceStates, Cost)> = Vec::new();
        for (device_states, cost) in candidates {
            let beats = |(other, its): &(DeviceStates, Cost)| {
                does_dominate(problem, &places, (other, *its), (&device_states, cost))
            };
            if !best.iter().any(beats) {
                best.push((device_states, cost));
                kept.insert(device_states, cost);
            }
        }
    }
    kept
}
