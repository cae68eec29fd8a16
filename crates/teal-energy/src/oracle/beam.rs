//! A schedule near the [optimum](super::joint) of a long trace: the same search over all devices at
//! once, with few ways of each name.
//!
//! # Guarantees
//! 1. What is found can be done: ways are dropped, never made one.
//! 2. Of ways of one name few stay: the cheaper of two that have written the same, or much the
//!    same, and are done at much the same time.

use super::action_history::{ActionHistory, NO_ACTION};
use super::device_search::{DeviceSchedule, ScheduledAction};
use super::joint::{DeviceStates, JOINT_DEVICES_MAX, PointIndices, does_dominate, latest_points};
use super::plan::ClairvoyantPlan;
use super::problem::{PointKind, SchedulingProblem};
use super::subproblem::{CandidateStep, Cost, DeviceSubproblem, StopLimit};
use teal_types::Time;

/// Ways of one name, the states of all devices, that are kept apart.
const BEAM_WIDTH: usize = 24;

#[derive(Debug, Clone, Copy)]
struct JointCandidate {
    states: DeviceStates,
    cost: Cost,
    /// The last deed, in a list that shares its beginning with others.
    last: u32,
}

impl JointCandidate {
    fn power_states(&self) -> [u8; JOINT_DEVICES_MAX] {
        self.states.map(|spot| spot.power_state)
    }

    fn written_counts(&self) -> [u32; JOINT_DEVICES_MAX] {
        self.states.map(|spot| spot.written)
    }
}

struct BeamSearch<'p, 'a> {
    problem: &'p SchedulingProblem<'a>,
    /// By device and own point what a stop is worth to keep.
    stop_prices: &'p [Vec<Cost>],
    front: Vec<JointCandidate>,
    next: Vec<JointCandidate>,
    history: ActionHistory<(u8, Time, ScheduledAction)>,
}

/// A schedule for up to three devices; `None` for more, or if none was found. Tokens are counted,
/// and `stops` says what they are worth.
pub(super) fn beam_search(
    problem: &SchedulingProblem<'_>,
    stops: &[Vec<Cost>],
) -> Option<ClairvoyantPlan> {
    if problem.subproblems.len() > JOINT_DEVICES_MAX {
        return None;
    }
    let mut spots = DeviceStates::default();
    problem
        .subproblems
        .iter()
        .zip(&mut spots)
        .for_each(|(side, spot)| *spot = side.start_state());
    let front = vec![JointCandidate {
        states: spots,
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
        let sides = problem.subproblems.iter().zip(reached.states);
        reached.cost
            + sides
                .map(|(side, spot)| side.closing_cost(side.points.len() - 1, spot))
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
        let sides = || {
            (0..)
                .zip(&problem.subproblems)
                .filter_map(|(at, side): (usize, _)| Some((at, side, side.point_index(point)?)))
        };
        let known = latest_points(problem, point);
        for (at, side, own) in sides() {
            for reached in &mut self.front {
                let way = side.advance_to(own, reached.states[at]);
                (reached.states[at], reached.cost) = (way.state, reached.cost + way.cost);
            }
        }
        self.prune_dominated(&known);
        if problem.points[point].kind == PointKind::Read {
            self.next.clear();
            for (at, side, own) in sides() {
                let (tokens, when) = (self.stop_limit(at), side.time_at(own));
                self.expand_candidates(at, |spot| {
                    side.read_steps(own, spot, tokens)
                        .map(move |way| (way, Some((when, ScheduledAction::Read(point)))))
                });
            }
            self.front.clear();
            self.take_next(&known);
        }
        for (at, side, own) in sides() {
            self.write_and_stop(at, side, own, &known);
        }
        self.front.retain(|reached| {
            !sides().any(|(at, side, own)| side.is_late(own, reached.states[at], true))
        });
        self.history
            .forget_unused(self.front.iter_mut().map(|reached| &mut reached.last));
    }

    /// One device writes, or not, and goes down, or not.
    fn write_and_stop(
        &mut self,
        at: usize,
        side: &DeviceSubproblem<'_>,
        own: usize,
        known: &PointIndices,
    ) {
        let (tokens, when) = (self.stop_limit(at), side.time_at(own));
        self.next.clear();
        self.expand_candidates(at, |spot| {
            side.write_steps(own, spot, tokens)
                .map(move |way| (way, Some((when, ScheduledAction::Write))))
        });
        self.take_next(known);
        self.expand_candidates(at, |spot| {
            side.stop_steps(own, spot, tokens).map(|way| (way, None))
        });
        self.take_next(known);
    }

    /// Adds ways on.
    fn expand_candidates<I: Iterator<Item = (CandidateStep, Option<(Time, ScheduledAction)>)>>(
        &mut self,
        at: usize,
        ways: impl Fn(super::subproblem::DeviceState) -> I,
    ) {
        for reached in &self.front {
            for (way, deed) in ways(reached.states[at]) {
                let (mut last, mut spots) = (reached.last, reached.states);
                for (when, deed) in way.transition.into_iter().chain(deed) {
                    last = self.history.push(last, (at as u8, when, deed));
                }
                spots[at] = way.state;
                self.next.push(JointCandidate {
                    states: spots,
                    cost: reached.cost + way.cost,
                    last,
                });
            }
        }
    }

    /// Takes the ways on besides those that are there.
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
        for way in self.front.drain(..) {
            if self
                .next
                .get(first)
                .is_some_and(|one| one.power_states() != way.power_states())
            {
                first = self.next.len();
            }
            let beats = |one: &JointCandidate| {
                does_dominate(
                    problem,
                    known,
                    (&one.states, one.cost),
                    (&way.states, way.cost),
                )
            };
            if self.next[first..].iter().any(beats) {
                continue;
            }
            self.next.push(way);
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
        let mut bests = vec![
            DeviceSchedule {
                cost: 0,
                actions: Vec::new()
            };
            self.problem.subproblems.len()
        ];
        for (at, when, deed) in self.history.actions_until(last) {
            if let ScheduledAction::Read(point) = deed {
                owners[point] = Some(at);
            }
            bests[usize::from(at)].actions.push((when, deed));
        }
        ClairvoyantPlan::new(self.problem, &owners, bests)
    }
}

/// The cheaper of neighbours; of those that have written the same first.
fn keep_fewer(mut many: Vec<JointCandidate>) -> Vec<JointCandidate> {
    many.sort_unstable_by_key(|one| {
        (
            one.written_counts(),
            one.states.map(|spot| spot.free_at),
            one.cost,
        )
    });
    let mut is_strict = true;
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
