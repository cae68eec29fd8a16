//! A schedule that knows the future, as a policy that the simulator runs.
//!
//! # Guarantees
//! 1. It only does what every policy may: choose a device, send devices to states, order bursts. What it costs is what the
//!    simulator says, the hard limits kept.

use super::alone::{Best, Deed};
use super::problem::{Kind, Problem};
use crate::device::DeviceId;
use crate::policy::{Action, Ask, Policy, Signal, Trigger, View};
use crate::profile::StateId;
use teal_types::{Span, Time};

/// Who serves each read, and what each device does when.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// By read, in the order of the trace.
    owners: Vec<u8>,
    /// In order of time.
    steps: Vec<(Time, DeviceId, Step)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// As soon as it can.
    Wake(StateId),
    /// As soon as nothing waits for it.
    Rest(StateId),
    Write,
}

/// Just behind all that happens at a moment.
const BEHIND: Span = Span::nanos(1);

impl Plan {
    pub(super) fn new(problem: &Problem<'_>, owners: &[Option<u8>], bests: Vec<Best>) -> Self {
        let is_read = |point: &usize| problem.points[*point].kind == Kind::Read;
        let owners = (0..owners.len()).filter(is_read).filter_map(|point| owners[point]).collect();
        let mut steps = Vec::new();
        for (at, best) in bests.into_iter().enumerate() {
            let (Some(id), side) = (DeviceId::new(at), &problem.sides[at]) else { continue };
            let (mut state, mut last) = (side.start().state, Time::ZERO);
            for (step, deed, to) in best.deeds {
                let moment = side.steps[step].moment;
                if state != to && !matches!(deed, Deed::Rest(_)) {
                    let begin = Time::after_start(moment.at.since(Time::ZERO).less(side.time(state, to))).max(last);
                    steps.push((begin, id, Step::Wake(StateId(to))));
                }
                last = moment.until + BEHIND;
                match deed {
                    Deed::Read => {}
                    Deed::Write => steps.push((last, id, Step::Write)),
                    Deed::Rest(to) => steps.push((last, id, Step::Rest(StateId(to)))),
                }
                state = to;
            }
        }
        steps.sort_by_key(|(at, ..)| *at);
        Self { owners, steps }
    }

    /// The policy that follows it.
    pub fn follow(self) -> Clairvoyant {
        Clairvoyant { plan: self, read: 0, step: 0, wanted: Vec::new() }
    }
}

/// Follows a [`Plan`].
#[derive(Debug, Clone)]
pub struct Clairvoyant {
    plan: Plan,
    read: usize,
    step: usize,
    /// By device, where it is to be, and whether only when nothing waits for it.
    wanted: Vec<Option<(StateId, bool)>>,
}

impl Policy for Clairvoyant {
    fn name(&self) -> &'static str {
        "clairvoyant"
    }
    fn choose(&mut self, _view: &View<'_>, ask: &Ask) -> DeviceId {
        let planned = self.plan.owners.get(self.read).and_then(|at| DeviceId::new(usize::from(*at)));
        self.read += 1;
        planned.filter(|id| ask.copies.has(*id)).or(ask.copies.iter().next()).expect("somebody holds what is read")
    }
    fn decide(&mut self, view: &View<'_>, _signal: Option<Signal>, actions: &mut Vec<Action>) -> Option<Time> {
        self.wanted.resize(view.devices.len(), None);
        while let Some((at, id, step)) = self.plan.steps.get(self.step).filter(|(at, ..)| *at <= view.now) {
            debug_assert!(*at <= view.now);
            match step {
                Step::Wake(state) => self.wanted[id.index()] = Some((*state, false)),
                Step::Rest(state) => self.wanted[id.index()] = Some((*state, true)),
                Step::Write => actions.push(Action::Flush(*id, Trigger::Awake)),
            }
            self.step += 1;
        }
        for (id, known) in view.each() {
            // Told again until it is there: work that came meanwhile made it forget.
            let wanted = self.wanted[id.index()].filter(|(state, _)| known.heading() != *state);
            if let Some((state, _)) = wanted.filter(|(_, is_rest)| !is_rest || known.idle(view.now).is_some()) {
                actions.push(Action::Go(id, state));
            }
        }
        self.plan.steps.get(self.step).map(|(at, ..)| *at)
    }
}
