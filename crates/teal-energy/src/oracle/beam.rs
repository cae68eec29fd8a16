//! A schedule near the [optimum](super::joint) of a long trace: the same search over all devices at
//! once, with few ways of each name.
//!
//! # Guarantees
//! 1. What is found can be done: ways are dropped, never made one.
//! 2. Of ways of one name few stay: the cheaper of two that have written the same, or much the
//!    same, and are done at much the same time.

use super::action_history::{ActionHistory, NONE};
use super::device_search::{DeviceSchedule, ScheduledAction};
use super::joint::{DEVICES, DeviceStates, PointIndices, is_as_good, places};
use super::plan::Plan;
use super::problem::{Kind, Problem};
use super::subproblem::{CandidateStep, Cost, DeviceSubproblem, StopLimit};
use teal_types::Time;

/// Ways of one name, the states of all devices, that are kept apart.
const WAYS: usize = 24;

#[derive(Debug, Clone, Copy)]
struct JointCandidate {
    spots: DeviceStates,
    cost: Cost,
    /// The last deed, in a list that shares its beginning with others.
    last: u32,
}

impl JointCandidate {
    fn states(&self) -> [u8; DEVICES] {
        self.spots.map(|spot| spot.state)
    }

    fn written(&self) -> [u32; DEVICES] {
        self.spots.map(|spot| spot.written)
    }
}

struct BeamSearch<'p, 'a> {
    problem: &'p Problem<'a>,
    /// By device and own point what a stop is worth to keep.
    stops: &'p [Vec<Cost>],
    front: Vec<JointCandidate>,
    next: Vec<JointCandidate>,
    deeds: ActionHistory<(u8, Time, ScheduledAction)>,
}

/// A schedule for up to three devices; `None` for more, or if none was found. Tokens are counted,
/// and `stops` says what they are worth.
pub(super) fn beam(problem: &Problem<'_>, stops: &[Vec<Cost>]) -> Option<Plan> {
    if problem.sides.len() > DEVICES {
        return None;
    }
    let mut spots = DeviceStates::default();
    problem
        .sides
        .iter()
        .zip(&mut spots)
        .for_each(|(side, spot)| *spot = side.start());
    let front = vec![JointCandidate {
        spots,
        cost: 0,
        last: NONE,
    }];
    let mut search = BeamSearch {
        problem,
        stops,
        front,
        next: Vec::new(),
        deeds: ActionHistory::new(),
    };
    (0..problem.points.len()).for_each(|point| search.step(point));
    let whole = |reached: &&JointCandidate| {
        let sides = problem.sides.iter().zip(reached.spots);
        reached.cost
            + sides
                .map(|(side, spot)| side.rest(side.own.len() - 1, spot))
                .sum::<Cost>()
    };
    let best = *search.front.iter().min_by_key(whole)?;
    Some(search.plan(best.last))
}

impl<'p, 'a> BeamSearch<'p, 'a> {
    fn tokens(&self, at: usize) -> StopLimit<'p> {
        StopLimit::Spared(&self.stops[at])
    }

    fn step(&mut self, point: usize) {
        let problem = self.problem;
        let sides = || {
            (0..)
                .zip(&problem.sides)
                .filter_map(|(at, side): (usize, _)| Some((at, side, side.place(point)?)))
        };
        let known = places(problem, point);
        for (at, side, own) in sides() {
            for reached in &mut self.front {
                let way = side.come(own, reached.spots[at]);
                (reached.spots[at], reached.cost) = (way.spot, reached.cost + way.cost);
            }
        }
        self.prune(&known);
        if problem.points[point].kind == Kind::Read {
            self.next.clear();
            for (at, side, own) in sides() {
                let (tokens, when) = (self.tokens(at), side.at(own));
                self.expand(at, |spot| {
                    side.reads(own, spot, tokens)
                        .map(move |way| (way, Some((when, ScheduledAction::Read(point)))))
                });
            }
            self.front.clear();
            self.turn(&known);
        }
        for (at, side, own) in sides() {
            self.go_on(at, side, own, &known);
        }
        self.front.retain(|reached| {
            !sides().any(|(at, side, own)| side.is_late(own, reached.spots[at], true))
        });
        self.deeds
            .tidy(self.front.iter_mut().map(|reached| &mut reached.last));
    }

    /// One device writes, or not, and goes down, or not.
    fn go_on(&mut self, at: usize, side: &DeviceSubproblem<'_>, own: usize, known: &PointIndices) {
        let (tokens, when) = (self.tokens(at), side.at(own));
        self.next.clear();
        self.expand(at, |spot| {
            side.writes(own, spot, tokens)
                .map(move |way| (way, Some((when, ScheduledAction::Write))))
        });
        self.turn(known);
        self.expand(at, |spot| {
            side.stops(own, spot, tokens).map(|way| (way, None))
        });
        self.turn(known);
    }

    /// Adds ways on.
    fn expand<I: Iterator<Item = (CandidateStep, Option<(Time, ScheduledAction)>)>>(
        &mut self,
        at: usize,
        ways: impl Fn(super::subproblem::DeviceState) -> I,
    ) {
        for reached in &self.front {
            for (way, deed) in ways(reached.spots[at]) {
                let (mut last, mut spots) = (reached.last, reached.spots);
                for (when, deed) in way.deed.into_iter().chain(deed) {
                    last = self.deeds.push(last, (at as u8, when, deed));
                }
                spots[at] = way.spot;
                self.next.push(JointCandidate {
                    spots,
                    cost: reached.cost + way.cost,
                    last,
                });
            }
        }
    }

    /// Takes the ways on besides those that are there.
    fn turn(&mut self, known: &PointIndices) {
        if !self.next.is_empty() {
            self.front.append(&mut self.next);
            self.prune(known);
        }
    }

    fn prune(&mut self, known: &PointIndices) {
        let problem = self.problem;
        self.front.sort_unstable_by_key(|one| {
            (
                one.states(),
                one.cost,
                std::cmp::Reverse(one.written()),
                one.spots,
            )
        });
        self.next.clear();
        let mut first = 0;
        for way in self.front.drain(..) {
            if self
                .next
                .get(first)
                .is_some_and(|one| one.states() != way.states())
            {
                first = self.next.len();
            }
            let beats = |one: &JointCandidate| {
                is_as_good(
                    problem,
                    known,
                    (&one.spots, one.cost),
                    (&way.spots, way.cost),
                )
            };
            if self.next[first..].iter().any(beats) {
                continue;
            }
            self.next.push(way);
            if self.next.len() - first > 2 * WAYS {
                let many = self.next.split_off(first);
                self.next.extend(fewer(many));
            }
        }
        std::mem::swap(&mut self.front, &mut self.next);
        self.next.clear();
    }

    fn plan(&self, last: u32) -> Plan {
        let mut owners = vec![None; self.problem.points.len()];
        let mut bests = vec![
            DeviceSchedule {
                cost: 0,
                deeds: Vec::new()
            };
            self.problem.sides.len()
        ];
        for (at, when, deed) in self.deeds.list(last) {
            if let ScheduledAction::Read(point) = deed {
                owners[point] = Some(at);
            }
            bests[usize::from(at)].deeds.push((when, deed));
        }
        Plan::new(self.problem, &owners, bests)
    }
}

/// The cheaper of neighbours; of those that have written the same first.
fn fewer(mut many: Vec<JointCandidate>) -> Vec<JointCandidate> {
    many.sort_unstable_by_key(|one| (one.written(), one.spots.map(|spot| spot.free), one.cost));
    let mut is_strict = true;
    while many.len() > WAYS {
        let mut kept = Vec::new();
        let mut all = many.into_iter().peekable();
        while let Some(one) = all.next() {
            let other = all.next_if(|other| !is_strict || other.written() == one.written());
            kept.push(other.filter(|other| other.cost < one.cost).unwrap_or(one));
        }
        (many, is_strict) = (kept, false);
    }
    many
}
