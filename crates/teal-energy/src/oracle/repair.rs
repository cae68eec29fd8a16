//! The repair of a relaxed solution: gives every read to one device, then tries moves that make the
//! schedule cheaper.
//!
//! # Guarantees
//! 1. Every read is served by exactly one device that holds it; each device does its best with its
//!    share.

use super::device_search::{DeviceSchedule, ReadDemand, SubproblemTask, solve_subproblem};
use super::dual_prices::DualIterate;
use super::plan::ClairvoyantPlan;
use super::problem::SchedulingProblem;
use super::subproblem::{Cost, StopLimit};
use teal_types::{Time, TimeSpan};

/// The greatest number of moves that are tried.
const MOVES_MAX: usize = 160;
/// Reads that lie closer together move together, and alone.
const BURST_GAP: TimeSpan = TimeSpan::from_secs(2);

struct ReadAssignment<'p, 'a> {
    problem: &'p SchedulingProblem<'a>,
    /// By device and own point.
    stop_prices: &'p [Vec<Cost>],
    /// By point, the device that serves its read.
    owners: Vec<Option<u8>>,
    schedules: Vec<DeviceSchedule>,
}

impl ReadAssignment<'_, '_> {
    fn solve_device(&self, at: u8, tokens: StopLimit<'_>) -> Option<DeviceSchedule> {
        let demands: Vec<ReadDemand> = self
            .owners
            .iter()
            .map(|o| {
                if *o == Some(at) {
                    ReadDemand::Must
                } else {
                    ReadDemand::No
                }
            })
            .collect();
        solve_subproblem(
            &self.problem.subproblems[usize::from(at)],
            SubproblemTask {
                demands: &demands,
                stop_limit: tokens,
                is_plan: true,
            },
        )
    }

    fn solve_priced(&self, at: u8) -> Option<DeviceSchedule> {
        self.solve_device(at, StopLimit::Priced(&self.stop_prices[usize::from(at)]))
    }

    fn total_cost(&self) -> Cost {
        self.schedules.iter().map(|best| best.cost).sum()
    }

    /// Moves these reads to one device if that is cheaper.
    fn try_move(&mut self, points: &[usize], to: u8) {
        // The owners before the move, to take it back.
        let before: Vec<_> = points.iter().map(|point| self.owners[*point]).collect();
        // Only devices that lose or gain reads have to be solved again.
        let mut changed: Vec<u8> = before
            .iter()
            .flatten()
            .copied()
            .filter(|owner| *owner != to)
            .collect();
        if changed.is_empty() {
            return;
        }
        changed.push(to);
        changed.sort_unstable();
        changed.dedup();
        points
            .iter()
            .for_each(|point| self.owners[*point] = Some(to));
        let solved: Option<Vec<DeviceSchedule>> =
            changed.iter().map(|at| self.solve_priced(*at)).collect();
        let old: Cost = changed
            .iter()
            .map(|at| self.schedules[usize::from(*at)].cost)
            .sum();
        // The move is taken back unless it makes the sum of the changed devices cheaper.
        match solved.filter(|schedules| schedules.iter().map(|best| best.cost).sum::<Cost>() < old)
        {
            Some(schedules) => changed
                .iter()
                .zip(schedules)
                .for_each(|(at, best)| self.schedules[usize::from(*at)] = best),
            None => points
                .iter()
                .zip(before)
                .for_each(|(point, owner)| self.owners[*point] = owner),
        }
    }
}

/// Returns a schedule near to the relaxed solution at these prices of stops. One that costs no more
/// than `enough` is not improved further.
pub(super) fn repair_schedules(
    problem: &SchedulingProblem<'_>,
    servers: &[Vec<u8>],
    stops: &[Vec<Cost>],
    round: &DualIterate,
    enough: Cost,
) -> Option<ClairvoyantPlan> {
    let mut assignment = ReadAssignment {
        problem,
        stop_prices: stops,
        owners: cheapest_owners(problem, servers, round),
        schedules: Vec::new(),
    };
    let devices = problem.subproblems.len() as u8;
    for device in 0..devices {
        let schedule = assignment.solve_priced(device)?;
        assignment.schedules.push(schedule);
    }
    for points in possible_moves(problem, servers, round) {
        if assignment.total_cost() <= enough {
            break;
        }
        for to in 0..devices {
            if points.iter().all(|point| servers[*point].contains(&to)) {
                assignment.try_move(&points, to);
            }
        }
    }
    // Tokens are counted only now: it is slow, and seldom changes the device of a read.
    let mut counted = Vec::new();
    for device in 0..devices {
        let limit = StopLimit::Spared(&assignment.stop_prices[usize::from(device)]);
        counted.push(assignment.solve_device(device, limit)?);
    }
    Some(ClairvoyantPlan::new(problem, &assignment.owners, counted))
}

/// Returns one device for each read: of several that took it the cheapest keeps it, and if none
/// took it the cheapest of all gets it.
fn cheapest_owners(
    problem: &SchedulingProblem<'_>,
    servers: &[Vec<u8>],
    round: &DualIterate,
) -> Vec<Option<u8>> {
    let mut owners = Vec::new();
    for (point, takers) in round.takers.iter().enumerate() {
        let holders = if takers.is_empty() {
            &servers[point]
        } else {
            takers
        };
        let cost = |device: &u8| problem.subproblems[usize::from(*device)].least_read_cost(point);
        owners.push(holders.iter().copied().min_by_key(cost));
    }
    owners
}

/// Returns the groups of reads that may move to another device: bursts around undecided reads as a
/// whole, and then each of these reads alone. A read is undecided unless exactly one device took it
/// at the prices.
fn possible_moves(
    problem: &SchedulingProblem<'_>,
    servers: &[Vec<u8>],
    round: &DualIterate,
) -> Vec<Vec<usize>> {
    let (mut undecided, mut bursts) = (Vec::new(), Vec::<Vec<usize>>::new());
    for (point, holders) in servers.iter().enumerate() {
        if holders.len() < 2 {
            continue;
        }
        if round.takers[point].len() != 1 {
            undecided.push(point);
        }
        let at = problem.points[point].at;
        match bursts.last_mut() {
            Some(burst) if at.since(last_time(problem, burst)) < BURST_GAP => burst.push(point),
            _ => bursts.push(vec![point]),
        }
    }
    let is_undecided = |point: &usize| undecided.binary_search(point).is_ok();
    bursts.retain(|burst| burst.iter().any(is_undecided));
    let mut moves = bursts;
    moves.extend(undecided.iter().map(|point| vec![*point]));
    moves.truncate(MOVES_MAX);
    moves
}

/// Returns the time of a burst's last read.
fn last_time(problem: &SchedulingProblem<'_>, burst: &[usize]) -> Time {
    let last = burst.last().copied().unwrap_or(0);
    problem.points[last].at
}
