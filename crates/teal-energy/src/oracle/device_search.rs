//! The solution of one device's subproblem: dynamic programming over the device's own points.
//!
//! # Guarantees
//! 1. A way is dropped only if another one is as good whatever follows.
//! 2. Where there are too many, two become one that is as good as both: what is found is no more
//!    than the best costs. Of a plan, which is to be done, the better of two is kept as it is: what
//!    is found is no less than the best costs.

use super::action_history::{ActionHistory, NONE};
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
    pub(super) claims: &'t [ReadDemand],
    /// The limit on the device's stops.
    pub(super) tokens: StopLimit<'t>,
    /// Says whether the schedule is to be carried out: changes are written within their age, not
    /// later by as much as a run was late.
    pub(super) is_plan: bool,
}

/// A device's schedule: its cost less what it earns, and its actions in order.
#[derive(Debug, Clone)]
pub(super) struct DeviceSchedule {
    pub(super) cost: Cost,
    pub(super) deeds: Vec<(Time, ScheduledAction)>,
}

impl DeviceSchedule {
    /// Returns the points whose reads the schedule serves.
    pub(super) fn taken(&self) -> impl Iterator<Item = usize> {
        self.deeds.iter().filter_map(|(_, deed)| {
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
    spot: DeviceState,
    cost: Cost,
    /// The last deed, in a list that shares its beginning with others.
    last: u32,
    /// Whether it did something at this point.
    is_new: bool,
}

/// The number of candidates in one power state that are kept apart. Of those, only ways that have
/// written the same become one: what is written costs a start.
const WAYS: usize = 24;
/// Of a plan whose tokens are counted, which cannot be told from each other by less.
const SPARED: usize = 96;

/// The ways so far, room for those to come, and all their deeds.
struct DeviceSearch<'s, 'a> {
    side: &'s DeviceSubproblem<'a>,
    task: SubproblemTask<'s>,
    front: Vec<DeviceCandidate>,
    next: Vec<DeviceCandidate>,
    deeds: ActionHistory<(Time, ScheduledAction)>,
}

/// Returns the best schedule of one device; `None` if no schedule keeps the limits.
pub(super) fn solve_subproblem(
    side: &DeviceSubproblem<'_>,
    task: SubproblemTask<'_>,
) -> Option<DeviceSchedule> {
    let front = vec![DeviceCandidate {
        spot: side.start(),
        cost: 0,
        last: NONE,
        is_new: true,
    }];
    let mut search = DeviceSearch {
        side,
        task,
        front,
        next: Vec::new(),
        deeds: ActionHistory::new(),
    };
    (0..side.own.len()).for_each(|own| search.step(own));
    let end = side.own.len() - 1;
    let whole = |reached: &DeviceCandidate| reached.cost + side.rest(end, reached.spot);
    let best = *search.front.iter().min_by_key(|reached| whole(reached))?;
    Some(DeviceSchedule {
        cost: whole(&best),
        deeds: search.deeds.list(best.last),
    })
}

impl DeviceSearch<'_, '_> {
    fn step(&mut self, own: usize) {
        let (side, task) = (self.side, self.task);
        // Otherwise it had better stopped before, unless there was no token, or a dearer one.
        let is_new = own.checked_sub(1).is_none_or(|before| match task.tokens {
            StopLimit::Counted | StopLimit::Spared(_) => true,
            StopLimit::Priced(prices) => prices[before] > prices[own],
        });
        for reached in &mut self.front {
            let way = side.come(own, reached.spot);
            (reached.spot, reached.cost, reached.is_new) =
                (way.spot, reached.cost + way.cost, is_new);
        }
        let (at, point) = (side.at(own), side.own[own].point);
        let tokens = task.tokens;
        let gain = match task.claims[point] {
            ReadDemand::No => None,
            ReadDemand::Must => Some(0),
            ReadDemand::May(price) => Some(price),
        };
        if let Some(gain) = gain.filter(|_| !side.own[own].reads.is_empty()) {
            self.expand(task.claims[point] != ReadDemand::Must, |reached| {
                side.reads(own, reached.spot, tokens).map(|way| {
                    (
                        CandidateStep {
                            cost: way.cost - gain,
                            ..way
                        },
                        Some((at, ScheduledAction::Read(point))),
                    )
                })
            });
            self.prune(own);
        }
        self.expand(true, |reached| {
            side.writes(own, reached.spot, tokens)
                .map(|way| (way, Some((at, ScheduledAction::Write))))
        });
        self.expand(true, |reached| {
            let may = reached.is_new || reached.spot.free > at;
            let stops = may.then(|| side.stops(own, reached.spot, tokens));
            stops.into_iter().flatten().map(|way| (way, None))
        });
        self.front
            .retain(|reached| !side.is_late(own, reached.spot, task.is_plan));
        self.prune(own);
        self.deeds
            .tidy(self.front.iter_mut().map(|reached| &mut reached.last));
    }

    /// Adds ways on, or takes them in place of those that are there.
    fn expand<I: Iterator<Item = (CandidateStep, Option<(Time, ScheduledAction)>)>>(
        &mut self,
        keeps: bool,
        ways: impl Fn(&DeviceCandidate) -> I,
    ) {
        self.next.clear();
        for reached in &self.front {
            for (way, deed) in ways(reached) {
                let mut last = reached.last;
                for deed in way.deed.into_iter().chain(deed) {
                    last = self.deeds.push(last, deed);
                }
                self.next.push(DeviceCandidate {
                    spot: way.spot,
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
    fn prune(&mut self, own: usize) {
        let (side, is_plan) = (self.side, self.task.is_plan);
        let ways = if matches!(self.task.tokens, StopLimit::Spared(_)) {
            SPARED
        } else {
            WAYS
        };
        self.front.sort_unstable_by_key(|one| {
            (
                one.spot.state,
                one.cost,
                std::cmp::Reverse(one.spot.written),
                one.spot,
            )
        });
        self.next.clear();
        let (mut first, mut room) = (0, WAYS);
        for way in self.front.drain(..) {
            if self
                .next
                .get(first)
                .is_some_and(|one| one.spot.state != way.spot.state)
            {
                (first, room) = (self.next.len(), ways);
            }
            let is_as_good = |one: &DeviceCandidate| {
                side.handicap(own, &one.spot, &way.spot)
                    .is_some_and(|more| one.cost + more <= way.cost)
            };
            if self.next[first..].iter().any(is_as_good) {
                continue;
            }
            self.next.push(way);
            if self.next.len() - first > room {
                let mut many = self.next.split_off(first);
                many.sort_unstable_by_key(|one| (one.spot.written, one.spot.free, one.cost));
                let mut many = many.into_iter().peekable();
                while let Some(one) = many.next() {
                    let other = many.next_if(|other| other.spot.written == one.spot.written);
                    self.next
                        .push(other.map_or(one, |other| both(side, own, is_plan, &one, &other)));
                }
                room = ways.max(2 * (self.next.len() - first));
            }
        }
        std::mem::swap(&mut self.front, &mut self.next);
    }
}

/// Returns what is as good as two ways of one name whatever follows; of a plan's, the better one,
/// as far as can be told.
fn both(
    side: &DeviceSubproblem<'_>,
    own: usize,
    is_plan: bool,
    one: &DeviceCandidate,
    other: &DeviceCandidate,
) -> DeviceCandidate {
    let spot = DeviceSubproblem::both(&one.spot, &other.spot);
    let as_good =
        |one: &DeviceCandidate| one.cost - side.handicap(own, &spot, &one.spot).unwrap_or(0);
    let cheaper = if as_good(one) <= as_good(other) {
        one
    } else {
        other
    };
    if is_plan {
        return *cheaper;
    }
    DeviceCandidate {
        spot,
        cost: as_good(cheaper),
        last: cheaper.last,
        is_new: true,
    }
}
