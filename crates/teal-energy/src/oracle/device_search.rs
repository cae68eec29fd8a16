//! The solution of one device's subproblem: dynamic programming over the device's own points.
//!
//! # Guarantees
//! 1. A way is dropped only if another one is as good whatever follows.
//! 2. Where there are too many, two become one that is as good as both: what is found is no more
//!    than the best costs. Of a plan, which is to be done, the better of two is kept as it is: what
//!    is found is no less than the best costs.

use super::action_history::{ActionHistory, NO_ACTION};
use super::subproblem::{CandidateStep, Cost, DeviceState, DeviceSubproblem, StopLimit};
use teal_types::Time;

/// What a subproblem asks of its device for one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadDemand {
    /// Another device serves the read.
    No,
    /// The device may serve the read, and earns its dual price for it.
    May(Cost),
    /// The device has to serve the read.
    Must,
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
    /// Returns the points whose reads the schedule serves.
    pub(super) fn served_points(&self) -> impl Iterator<Item = usize> {
        self.actions.iter().filter_map(|(_, deed)| {
            if let ScheduledAction::Read(point) = deed {
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
    /// The last deed, in a list that shares its beginning with others.
    last: u32,
    /// Whether it did something at this point.
    is_new: bool,
}

/// The number of candidates in one power state that are kept apart. Of those, only ways that have
/// written the same become one: what is written costs a start.
const STATE_CANDIDATES: usize = 24;
/// Of a plan whose tokens are counted, which cannot be told from each other by less.
const SPARED_CANDIDATES: usize = 96;

/// The ways so far, room for those to come, and all their deeds.
struct DeviceSearch<'s, 'a> {
    subproblem: &'s DeviceSubproblem<'a>,
    task: SubproblemTask<'s>,
    front: Vec<DeviceCandidate>,
    next: Vec<DeviceCandidate>,
    history: ActionHistory<(Time, ScheduledAction)>,
}

/// Returns the best schedule of one device; `None` if no schedule keeps the limits.
pub(super) fn solve_subproblem(
    side: &DeviceSubproblem<'_>,
    task: SubproblemTask<'_>,
) -> Option<DeviceSchedule> {
    let front = vec![DeviceCandidate {
        state: side.start_state(),
        cost: 0,
        last: NO_ACTION,
        is_new: true,
    }];
    let mut search = DeviceSearch {
        subproblem: side,
        task,
        front,
        next: Vec::new(),
        history: ActionHistory::new(),
    };
    (0..side.points.len()).for_each(|own| search.step_point(own));
    let end = side.points.len() - 1;
    let whole = |reached: &DeviceCandidate| reached.cost + side.closing_cost(end, reached.state);
    let best = *search.front.iter().min_by_key(|reached| whole(reached))?;
    Some(DeviceSchedule {
        cost: whole(&best),
        actions: search.history.actions_until(best.last),
    })
}

impl DeviceSearch<'_, '_> {
    fn step_point(&mut self, own: usize) {
        let (side, task) = (self.subproblem, self.task);
        // Otherwise it had better stopped before, unless there was no token, or a dearer one.
        let is_new = own
            .checked_sub(1)
            .is_none_or(|before| match task.stop_limit {
                StopLimit::Counted | StopLimit::Spared(_) => true,
                StopLimit::Priced(prices) => prices[before] > prices[own],
            });
        for reached in &mut self.front {
            let way = side.advance_to(own, reached.state);
            (reached.state, reached.cost, reached.is_new) =
                (way.state, reached.cost + way.cost, is_new);
        }
        let (at, point) = (side.time_at(own), side.points[own].point);
        let tokens = task.stop_limit;
        let gain = match task.demands[point] {
            ReadDemand::No => None,
            ReadDemand::Must => Some(0),
            ReadDemand::May(price) => Some(price),
        };
        if let Some(gain) = gain.filter(|_| !side.points[own].reads.is_empty()) {
            self.expand_candidates(task.demands[point] != ReadDemand::Must, |reached| {
                side.read_steps(own, reached.state, tokens).map(|way| {
                    (
                        CandidateStep {
                            cost: way.cost - gain,
                            ..way
                        },
                        Some((at, ScheduledAction::Read(point))),
                    )
                })
            });
            self.prune_dominated(own);
        }
        self.expand_candidates(true, |reached| {
            side.write_steps(own, reached.state, tokens)
                .map(|way| (way, Some((at, ScheduledAction::Write))))
        });
        self.expand_candidates(true, |reached| {
            let may = reached.is_new || reached.state.free_at > at;
            let stops = may.then(|| side.stop_steps(own, reached.state, tokens));
            stops.into_iter().flatten().map(|way| (way, None))
        });
        self.front
            .retain(|reached| !side.is_late(own, reached.state, task.is_plan));
        self.prune_dominated(own);
        self.history
            .forget_unused(self.front.iter_mut().map(|reached| &mut reached.last));
    }

    /// Adds ways on, or takes them in place of those that are there.
    fn expand_candidates<I: Iterator<Item = (CandidateStep, Option<(Time, ScheduledAction)>)>>(
        &mut self,
        keeps: bool,
        ways: impl Fn(&DeviceCandidate) -> I,
    ) {
        self.next.clear();
        for reached in &self.front {
            for (way, deed) in ways(reached) {
                let mut last = reached.last;
                for deed in way.transition.into_iter().chain(deed) {
                    last = self.history.push(last, deed);
                }
                self.next.push(DeviceCandidate {
                    state: way.state,
                    cost: reached.cost + way.cost,
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

    /// Keeps what no other way is as good as.
    fn prune_dominated(&mut self, own: usize) {
        let (side, is_plan) = (self.subproblem, self.task.is_plan);
        let ways = if matches!(self.task.stop_limit, StopLimit::Spared(_)) {
            SPARED_CANDIDATES
        } else {
            STATE_CANDIDATES
        };
        self.front.sort_unstable_by_key(|one| {
            (
                one.state.power_state,
                one.cost,
                std::cmp::Reverse(one.state.written),
                one.state,
            )
        });
        self.next.clear();
        let (mut first, mut room) = (0, STATE_CANDIDATES);
        for way in self.front.drain(..) {
            if self
                .next
                .get(first)
                .is_some_and(|one| one.state.power_state != way.state.power_state)
            {
                (first, room) = (self.next.len(), ways);
            }
            let is_as_good = |one: &DeviceCandidate| {
                side.dominance_cost(own, &one.state, &way.state)
                    .is_some_and(|more| one.cost + more <= way.cost)
            };
            if self.next[first..].iter().any(is_as_good) {
                continue;
            }
            self.next.push(way);
            if self.next.len() - first > room {
                let mut many = self.next.split_off(first);
                many.sort_unstable_by_key(|one| (one.state.written, one.state.free_at, one.cost));
                let mut many = many.into_iter().peekable();
                while let Some(one) = many.next() {
                    let other = many.next_if(|other| other.state.written == one.state.written);
                    self.next.push(other.map_or(one, |other| {
                        merge_candidates(side, own, is_plan, &one, &other)
                    }));
                }
                room = ways.max(2 * (self.next.len() - first));
            }
        }
        std::mem::swap(&mut self.front, &mut self.next);
    }
}

/// Returns what is as good as two ways of one name whatever follows; of a plan's, the better one,
/// as far as can be told.
fn merge_candidates(
    side: &DeviceSubproblem<'_>,
    own: usize,
    is_plan: bool,
    one: &DeviceCandidate,
    other: &DeviceCandidate,
) -> DeviceCandidate {
    let spot = DeviceSubproblem::merge_states(&one.state, &other.state);
    let as_good =
        |one: &DeviceCandidate| one.cost - side.dominance_cost(own, &spot, &one.state).unwrap_or(0);
    let cheaper = if as_good(one) <= as_good(other) {
        one
    } else {
        other
    };
    if is_plan {
        return *cheaper;
    }
    DeviceCandidate {
        state: spot,
        cost: as_good(cheaper),
        last: cheaper.last,
        is_new: true,
    }
}
