//! Beam search for a schedule near the [optimum](super::joint) of a long trace: the search over all
//! devices at once, with few candidates for each combination of power states.
//!
//! # Guarantees
//! 1. Every schedule that is found can be carried out: candidates are dropped, never merged.
//! 2. Few candidates of one combination stay: the cheaper of two that have written the same, or
//!    much the same, and are done at much the same time.

use super::action_history::{ActionHistory, NO_ACTION};
use super::device_search::{DeviceSchedule, ScheduledAction};
use super::joint::{DeviceStates, JOINT_DEVICES_MAX, PointIndices, does_dominate, latest_points};
use super::plan::ClairvoyantPlan;
use super::problem::{PointKind, SchedulingProblem};
use super::subproblem::{CandidateStep, Cost, DeviceSubproblem, StopLimit};
use teal_types::Time;

/// The number of candidates that are kept apart for each combination of power states.
const BEAM_WIDTH: usize = 24;

#[derive(Debug, Clone, Copy)]
struct JointCandidate {
    states: DeviceStates,
    cost: Cost,
    /// The last action, in a list that shares its beginning with other lists.
    last: u32,
}

impl JointCandidate {
    fn power_states(&self) -> [u8; JOINT_DEVICES_MAX] {
        self.states.map(|device_state| device_state.power_state)
    }

    fn written_counts(&self) -> [u32; JOINT_DEVICES_MAX] {
        self.states.map(|device_state| device_state.written)
    }
}

struct BeamSearch<'p, 'a> {
    problem: &'p SchedulingProblem<'a>,
    /// By device and own point, the price of a stop.
    stop_prices: &'p [Vec<Cost>],
    front: Vec<JointCandidate>,
    next: Vec<JointCandidate>,
    history: ActionHistory<(u8, Time, ScheduledAction)>,
}

/// Returns a schedule for up to three devices; `None` for more, or if none was found. Tokens are
/// counted, and `stop_prices` says their worth.
pub(super) fn beam_search(
    problem: &SchedulingProblem<'_>,
    stops: &[Vec<Cost>],
) -> Option<ClairvoyantPlan> {
    if problem.subproblems.len() > JOINT_DEVICES_MAX {
        return None;
    }
    let mut device_states = DeviceStates::default();
    problem
        .subproblems
        .iter()
        .zip(&mut device_states)
        .for_each(|(subproblem, device_state)| *device_state = subproblem.start_state());
    let front = vec![JointCandidate {
        states: device_states,
        cost: 0,
        last: NO_ACTION,
    }];
    let mut search = BeamSearch {
        problem,
        stop_prices: stops,
        front,
        next: Vec::new(),
        history: ActionHistory::new(),
    };
    (0..problem.points.len()).for_each(|point| search.step_point(point));
    let whole = |reached: &&JointCandidate| {
        let subproblems = problem.subproblems.iter().zip(reached.states);
        reached.cost
            + subproblems
                .map(|(subproblem, device_state)| {
                    subproblem.closing_cost(subproblem.points.len() - 1, device_state)
                })
                .sum::<Cost>()
    };
    let best = *search.front.iter().min_by_key(whole)?;
    Some(search.build_plan(best.last))
}

impl<'p, 'a> BeamSearch<'p, 'a> {
    fn stop_limit(&self, at: usize) -> StopLimit<'p> {
        StopLimit::Spared(&self.stop_prices[at])
    }

    fn step_point(&mut self, point: usize) {
        let problem = self.problem;
        let subproblems = || {
            (0..)
                .zip(&problem.subproblems)
                .filter_map(|(at, subproblem): (usize, _)| {
                    Some((at, subproblem, subproblem.point_index(point)?))
                })
        };
        let known = latest_points(problem, point);
        for (at, subproblem, own_point) in subproblems() {
            for reached in &mut self.front {
                let step = subproblem.advance_to(own_point, reached.states[at]);
                (reached.states[at], reached.cost) = (step.state, reached.cost + step.cost);
            }
        }
        self.prune_dominated(&known);
        if problem.points[point].kind == PointKind::Read {
            self.next.clear();
            for (at, subproblem, own_point) in subproblems() {
                let (tokens, when) = (self.stop_limit(at), subproblem.time_at(own_point));
                self.expand_candidates(at, |device_state| {
                    subproblem
                        .read_steps(own_point, device_state, tokens)
                        .map(move |step| (step, Some((when, ScheduledAction::Read(point)))))
                });
            }
            self.front.clear();
            self.take_next(&known);
        }
        for (at, subproblem, own_point) in subproblems() {
            self.write_and_stop(at, subproblem, own_point, &known);
        }
        self.front.retain(|reached| {
            !subproblems().any(|(at, subproblem, own_point)| {
                subproblem.is_late(own_point, reached.states[at], true)
            })
        });
        self.history
            .forget_unused(self.front.iter_mut().map(|reached| &mut reached.last));
    }

    /// Lets one device write or not, and then go down or not.
    fn write_and_stop(
        &mut self,
        at: usize,
        subproblem: &DeviceSubproblem<'_>,
        own_point: usize,
        known: &PointIndices,
    ) {
        let (tokens, when) = (self.stop_limit(at), subproblem.time_at(own_point));
        self.next.clear();
        self.expand_candidates(at, |device_state| {
            subproblem
                .write_steps(own_point, device_state, tokens)
                .map(move |step| (step, Some((when, ScheduledAction::Write))))
        });
        self.take_next(known);
        self.expand_candidates(at, |device_state| {
            subproblem
                .stop_steps(own_point, device_state, tokens)
                .map(|step| (step, None))
        });
        self.take_next(known);
    }

    /// Adds the candidates that the steps of one device lead to.
    fn expand_candidates<I: Iterator<Item = (CandidateStep, Option<(Time, ScheduledAction)>)>>(
        &mut self,
        at: usize,
        steps: impl Fn(super::subproblem::DeviceState) -> I,
    ) {
        for reached in &self.front {
            for (step, action) in steps(reached.states[at]) {
                let (mut last, mut device_states) = (reached.last, reached.states);
                for (when, action) in step.transition.into_iter().chain(action) {
                    last = self.history.push(last, (at as u8, when, action));
                }
                device_states[at] = step.state;
                self.next.push(JointCandidate {
                    states: device_states,
                    cost: reached.cost + step.cost,
                    last,
                });
            }
        }
    }

    /// Puts the new candidates beside those that are there.
    fn take_next(&mut self, known: &PointIndices) {
        if !self.next.is_empty() {
            self.front.append(&mut self.next);
            self.prune_dominated(known);
        }
    }

    fn prune_dominated(&mut self, known: &PointIndices) {
        let problem = self.problem;
        self.front.sort_unstable_by_key(|one| {
            (
                one.power_states(),
                one.cost,
                std::cmp::Reverse(one.written_counts()),
                one.states,
            )
        });
        self.next.clear();
        let mut first = 0;
        for candidate in self.front.drain(..) {
            if self
                .next
                .get(first)
                .is_some_and(|one| one.power_states() != candidate.power_states())
            {
                first = self.next.len();
            }
            let beats = |one: &JointCandidate| {
                does_dominate(
                    problem,
                    known,
                    (&one.states, one.cost),
                    (&candidate.states, candidate.cost),
                )
            };
            if self.next[first..].iter().any(beats) {
                continue;
            }
            self.next.push(candidate);
            if self.next.len() - first > 2 * BEAM_WIDTH {
                let many = self.next.split_off(first);
                self.next.extend(keep_fewer(many));
            }
        }
        std::mem::swap(&mut self.front, &mut self.next);
        self.next.clear();
    }

    fn build_plan(&self, last: u32) -> ClairvoyantPlan {
        let mut owners = vec![None; self.problem.points.len()];
        let mut schedules = vec![
            DeviceSchedule {
                cost: 0,
                actions: Vec::new()
            };
            self.problem.subproblems.len()
        ];
        for (at, when, action) in self.history.actions_until(last) {
            if let ScheduledAction::Read(point) = action {
                owners[point] = Some(at);
            }
            schedules[usize::from(at)].actions.push((when, action));
        }
        ClairvoyantPlan::new(self.problem, &owners, schedules)
    }
}

/// Keeps the cheaper of two neighbours until few are left, first only among those that have written
/// the same.
fn keep_fewer(mut many: Vec<JointCandidate>) -> Vec<JointCandidate> {
    many.sort_unstable_by_key(|one| {
        (
            one.written_counts(),
            one.states.map(|device_state| device_state.free_at),
            one.cost,
        )
    });
    let mut is_strict = true;
    // Neighbours in time are alike; each round keeps the cheaper of two.
    while many.len() > BEAM_WIDTH {
        let mut kept = Vec::new();
        let mut all = many.into_iter().peekable();
        while let Some(one) = all.next() {
            let other =
                all.next_if(|other| !is_strict || other.written_counts() == one.written_counts());
            kept.push(other.filter(|other| other.cost < one.cost).unwrap_or(one));
        }
        (many, is_strict) = (kept, false);
    }
    many
}
