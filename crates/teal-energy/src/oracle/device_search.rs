//! The solution of one device's subproblem: dynamic programming over the device's own points.
//!
//! # Guarantees
//! 1. A candidate is dropped only if another one is as good whatever follows.
//! 2. Where there are too many candidates, two are merged into one that is as good as both: the
//!    cost that is found is then at most the optimum. For a plan, which is to be carried out, the
//!    better of the two is kept as it is: the cost that is found is then at least the optimum.

use super::action_history::{ActionHistory, NO_ACTION};
use super::subproblem::{CandidateStep, Cost, DeviceState, DeviceSubproblem, StopLimit};
use teal_types::Time;

/// The demand of a subproblem on its device for one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadDemand {
    /// Another device serves the read.
    No,
    /// The device may serve the read, and earns its dual price for it.
    May(Cost),
    /// The device has to serve the read.
    Must,
}

impl ReadDemand {
    /// Returns the earning of a read that the device may serve. One that it must serve earns
    /// nothing: it costs the same in every schedule.
    fn gain(self) -> Option<Cost> {
        match self {
            Self::No => None,
            Self::Must => Some(0),
            Self::May(price) => Some(price),
        }
    }
}

/// One action of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScheduledAction {
    /// Serves the read of this point.
    Read(usize),
    /// Writes everything that is queued.
    Write,
    /// Begins to go up to this state.
    Wake(u8),
    /// Begins to go down to this state.
    Rest(u8),
}

/// The terms of one subproblem.
#[derive(Debug, Clone, Copy)]
pub(super) struct SubproblemTask<'t> {
    /// The demand for the read of each point.
    pub(super) demands: &'t [ReadDemand],
    /// The limit on the device's stops.
    pub(super) stop_limit: StopLimit<'t>,
    /// Says whether the schedule is to be carried out: changes are written within their age, not
    /// later by as much as a run was late.
    pub(super) is_plan: bool,
}

/// A device's schedule: its cost less what it earns, and its actions in order.
#[derive(Debug, Clone)]
pub(super) struct DeviceSchedule {
    pub(super) cost: Cost,
    pub(super) actions: Vec<(Time, ScheduledAction)>,
}

impl DeviceSchedule {
    /// Returns the points at which the schedule serves the read.
    pub(super) fn served_points(&self) -> impl Iterator<Item = usize> {
        self.actions.iter().filter_map(|(_, action)| {
            if let ScheduledAction::Read(point) = action {
                Some(*point)
            } else {
                None
            }
        })
    }
}

/// A partial schedule that the search still follows.
#[derive(Debug, Clone, Copy)]
struct DeviceCandidate {
    state: DeviceState,
    cost: Cost,
    /// The last action, in a list that shares its beginning with other lists.
    last: u32,
    /// Is true if it took an action at this point.
    is_new: bool,
}

/// The number of candidates in one power state that are kept apart. Only candidates that have
/// written the same changes are merged: writing the rest costs a start.
const STATE_CANDIDATES: usize = 24;
/// The same number for a plan in which tokens are counted: its candidates differ in more than their
/// cost.
const SPARED_CANDIDATES: usize = 96;

/// The candidates so far, room for those of the next step, and the actions of all of them.
struct DeviceSearch<'s, 'a> {
    subproblem: &'s DeviceSubproblem<'a>,
    task: SubproblemTask<'s>,
    front: Vec<DeviceCandidate>,
    next: Vec<DeviceCandidate>,
    history: ActionHistory<(Time, ScheduledAction)>,
}

/// Returns the best schedule of one device; `None` if no schedule keeps the limits.
pub(super) fn solve_subproblem(
    subproblem: &DeviceSubproblem<'_>,
    task: SubproblemTask<'_>,
) -> Option<DeviceSchedule> {
    let front = vec![DeviceCandidate {
        state: subproblem.start_state(),
        cost: 0,
        last: NO_ACTION,
        is_new: true,
    }];
    let mut search = DeviceSearch {
        subproblem,
        task,
        front,
        next: Vec::new(),
        history: ActionHistory::new(),
    };
    for own_point in 0..subproblem.points.len() {
        search.step_point(own_point);
    }
    let end = subproblem.points.len() - 1;
    let whole =
        |reached: &DeviceCandidate| reached.cost + subproblem.closing_cost(end, reached.state);
    let best = *search.front.iter().min_by_key(|reached| whole(reached))?;
    Some(DeviceSchedule {
        cost: whole(&best),
        actions: search.history.actions_until(best.last),
    })
}

impl DeviceSearch<'_, '_> {
    fn step_point(&mut self, own_point: usize) {
        self.advance_front(own_point);
        self.serve_read(own_point);
        self.write_or_stop(own_point);
        self.drop_late(own_point);
        self.prune_dominated(own_point);
        self.history
            .forget_unused(self.front.iter_mut().map(|reached| &mut reached.last));
    }

    /// Drops the candidates that miss a deadline.
    fn drop_late(&mut self, own_point: usize) {
        let (subproblem, is_plan) = (self.subproblem, self.task.is_plan);
        self.front
            .retain(|reached| !subproblem.is_late(own_point, reached.state, is_plan));
    }

    /// Returns whether a candidate that has done nothing since the point before may stop at this
    /// one: that pays only if there was no token there, or a dearer one.
    fn may_stop_later(&self, own_point: usize) -> bool {
        match self.task.stop_limit {
            StopLimit::Priced(prices) if own_point > 0 => prices[own_point - 1] > prices[own_point],
            _ => true,
        }
    }

    /// Lets time pass until a point.
    fn advance_front(&mut self, own_point: usize) {
        let may_have_waited = self.may_stop_later(own_point);
        for reached in &mut self.front {
            let step = self.subproblem.advance_to(own_point, reached.state);
            reached.state = step.state;
            reached.cost += step.cost;
            reached.is_new = may_have_waited;
        }
    }

    /// Serves the read of a point, where that is demanded or earns something.
    fn serve_read(&mut self, own_point: usize) {
        let (subproblem, tokens) = (self.subproblem, self.task.stop_limit);
        let own = &subproblem.points[own_point];
        if own.reads.is_empty() {
            return;
        }
        let demand = self.task.demands[own.point];
        let Some(gain) = demand.gain() else {
            return;
        };
        let action = (
            subproblem.time_at(own_point),
            ScheduledAction::Read(own.point),
        );
        self.expand_candidates(demand != ReadDemand::Must, |reached| {
            subproblem
                .read_steps(own_point, reached.state, tokens)
                .map(move |step| {
                    let cost = step.cost - gain;
                    (CandidateStep { cost, ..step }, Some(action))
                })
        });
        self.prune_dominated(own_point);
    }

    /// Adds the candidates that write here, and those that go down.
    fn write_or_stop(&mut self, own_point: usize) {
        let (subproblem, tokens) = (self.subproblem, self.task.stop_limit);
        let at = subproblem.time_at(own_point);
        self.expand_candidates(true, |reached| {
            subproblem
                .write_steps(own_point, reached.state, tokens)
                .map(move |step| (step, Some((at, ScheduledAction::Write))))
        });
        self.expand_candidates(true, |reached| {
            let may = reached.is_new || reached.state.free_at > at;
            let stops = may.then(|| subproblem.stop_steps(own_point, reached.state, tokens));
            stops.into_iter().flatten().map(|step| (step, None))
        });
    }

    /// Adds the candidates that `steps` lead to, beside those that are there (`keeps`) or in place
    /// of them.
    fn expand_candidates<I: Iterator<Item = (CandidateStep, Option<(Time, ScheduledAction)>)>>(
        &mut self,
        keeps: bool,
        steps: impl Fn(&DeviceCandidate) -> I,
    ) {
        self.next.clear();
        for reached in &self.front {
            for (step, action) in steps(reached) {
                let mut last = reached.last;
                for action in step.transition.into_iter().chain(action) {
                    last = self.history.push(last, action);
                }
                self.next.push(DeviceCandidate {
                    state: step.state,
                    cost: reached.cost + step.cost,
                    last,
                    is_new: true,
                });
            }
        }
        if !keeps {
            self.front.clear();
        }
        self.front.append(&mut self.next);
    }

    /// Drops the candidates that another one dominates, and merges some of the rest if there are
    /// too many.
    fn prune_dominated(&mut self, own_point: usize) {
        let subproblem = self.subproblem;
        let limit = match self.task.stop_limit {
            StopLimit::Spared(_) => SPARED_CANDIDATES,
            StopLimit::Counted | StopLimit::Priced(_) => STATE_CANDIDATES,
        };
        // Candidates of one power state stand together, the cheapest first.
        self.front.sort_unstable_by_key(|one| {
            let written = std::cmp::Reverse(one.state.written);
            (one.state.power_state, one.cost, written, one.state)
        });
        self.next.clear();
        let (mut first, mut room) = (0, STATE_CANDIDATES);
        let mut front = std::mem::take(&mut self.front);
        for candidate in front.drain(..) {
            let group = self.next.get(first).map(|one| one.state.power_state);
            if group.is_some_and(|power_state| power_state != candidate.state.power_state) {
                // The next power state begins.
                (first, room) = (self.next.len(), limit);
            }
            let is_as_good = |one: &DeviceCandidate| {
                let more = subproblem.dominance_cost(own_point, &one.state, &candidate.state);
                more.is_some_and(|more| one.cost + more <= candidate.cost)
            };
            if self.next[first..].iter().any(is_as_good) {
                continue;
            }
            self.next.push(candidate);
            if self.next.len() - first > room {
                self.merge_group(own_point, first);
                // The room grows if merging did not help, so that the work stays proportional.
                room = limit.max(2 * (self.next.len() - first));
            }
        }
        // The emptied buffer becomes the room for the next step.
        self.front = std::mem::replace(&mut self.next, front);
    }

    /// Merges the candidates from `first` on in pairs that have written the same changes.
    fn merge_group(&mut self, own_point: usize, first: usize) {
        let mut many = self.next.split_off(first);
        many.sort_unstable_by_key(|one| (one.state.written, one.state.free_at, one.cost));
        let mut many = many.into_iter().peekable();
        while let Some(one) = many.next() {
            let other = many.next_if(|other| other.state.written == one.state.written);
            let merged = match other {
                Some(other) => {
                    let is_plan = self.task.is_plan;
                    merge_candidates(self.subproblem, own_point, is_plan, &one, &other)
                }
                None => one,
            };
            self.next.push(merged);
        }
    }
}

/// Merges two candidates in one power state into one that is as good as both whatever follows. For
/// a plan it returns the better one, as far as can be told.
fn merge_candidates(
    subproblem: &DeviceSubproblem<'_>,
    own_point: usize,
    is_plan: bool,
    one: &DeviceCandidate,
    other: &DeviceCandidate,
) -> DeviceCandidate {
    let device_state = DeviceSubproblem::merge_states(&one.state, &other.state);
    // The merged state is better than either candidate; its cost is lowered by that advantage, so
    // that the result stays a bound.
    let as_good = |one: &DeviceCandidate| {
        one.cost
            - subproblem
                .dominance_cost(own_point, &device_state, &one.state)
                .unwrap_or(0)
    };
    let cheaper = if as_good(one) <= as_good(other) {
        one
    } else {
        other
    };
    if is_plan {
        return *cheaper;
    }
    DeviceCandidate {
        state: device_state,
        cost: as_good(cheaper),
        last: cheaper.last,
        is_new: true,
    }
}
