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
use teal_types::TimeSpan;

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
    // Of several devices that took a read the cheapest keeps it; of none the cheapest of all gets
    // it.
    let cheapest = |point: usize| {
        let holders = if round.takers[point].is_empty() {
            &servers[point]
        } else {
            &round.takers[point]
        };
        holders
            .iter()
            .copied()
            .min_by_key(|at| problem.subproblems[usize::from(*at)].least_read_cost(point))
    };
    let owners = (0..problem.points.len()).map(cheapest).collect();
    let mut assignment = ReadAssignment {
        problem,
        stop_prices: stops,
        owners,
        schedules: Vec::new(),
    };
    assignment.schedules = (0..problem.subproblems.len())
        .map(|at| assignment.solve_priced(at as u8))
        .collect::<Option<_>>()?;
    // Reads that exactly one device took are left alone: the prices have decided them.
    let unsettled: Vec<usize> = (0..servers.len())
        .filter(|point| servers[*point].len() > 1 && round.takers[*point].len() != 1)
        .collect();
    // Bursts of reads that lie close together move as a whole.
    let mut bursts: Vec<Vec<usize>> = Vec::new();
    let several: Vec<usize> = (0..servers.len())
        .filter(|point| servers[*point].len() > 1)
        .collect();
    for point in several {
        let at = problem.points[point].at;
        match bursts.last_mut() {
            Some(burst) if at.since(problem.points[*burst.last().unwrap_or(&0)].at) < BURST_GAP => {
                burst.push(point)
            }
            _ => bursts.push(vec![point]),
        }
    }
    bursts.retain(|burst| {
        burst
            .iter()
            .any(|point| unsettled.binary_search(point).is_ok())
    });
    let each = bursts
        .into_iter()
        .chain(unsettled.into_iter().map(|point| vec![point]))
        .take(MOVES_MAX);
    for points in each {
        if assignment.total_cost() <= enough {
            break;
        }
        for to in 0..problem.subproblems.len() as u8 {
            if points.iter().all(|point| servers[*point].contains(&to)) {
                assignment.try_move(&points, to);
            }
        }
    }
    // Tokens are counted only now: it is slow, and seldom changes the device of a read.
    let counted = (0..problem.subproblems.len())
        .map(|at| assignment.solve_device(at as u8, StopLimit::Spared(&assignment.stop_prices[at])))
        .collect::<Option<_>>()?;
    Some(ClairvoyantPlan::new(problem, &assignment.owners, counted))
}
