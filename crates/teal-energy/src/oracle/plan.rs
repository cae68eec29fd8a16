//! A schedule that knows the future, as a policy that the simulator runs.
//!
//! # Guarantees
//! 1. It only does what every policy may: choose a device, send devices to states, order bursts.
//!    What it costs is what the simulator says, the hard limits kept.

use super::device_search::{DeviceSchedule, ScheduledAction};
use super::problem::{Kind, Problem};
use crate::device::DeviceId;
use crate::policy::{Action, Ask, Policy, Signal, Trigger, View, sooner};
use crate::profile::StateId;
use teal_types::{Span, Time};

/// Who serves each read, and what each device does when.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// By read, in the order of the trace.
    owners: Vec<u8>,
    /// In order of time.
    steps: Vec<(Time, DeviceId, PlanStep)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlanStep {
    /// As soon as it can.
    Wake(StateId),
    /// As soon as nothing waits for it.
    Rest(StateId),
    Write,
}

/// When to look again for a token.
const RETRY: Span = Span::secs(5);
/// Just behind all that happens at a moment.
const BEHIND: Span = Span::nanos(1);

impl Plan {
    pub(super) fn new(
        problem: &Problem<'_>,
        owners: &[Option<u8>],
        bests: Vec<DeviceSchedule>,
    ) -> Self {
        let is_read = |point: &usize| problem.points[*point].kind == Kind::Read;
        let owners = (0..owners.len())
            .filter(is_read)
            .filter_map(|point| owners[point])
            .collect();
        let mut steps = Vec::new();
        for (id, best) in (0..).map_while(DeviceId::new).zip(bests) {
            // One after the other, however close.
            let mut last = Time::ZERO;
            for (at, deed) in best.deeds {
                let step = match deed {
                    ScheduledAction::Read(_) => {
                        last = at + BEHIND;
                        continue;
                    }
                    ScheduledAction::Wake(state) => PlanStep::Wake(StateId(state)),
                    ScheduledAction::Rest(state) => PlanStep::Rest(StateId(state)),
                    ScheduledAction::Write => PlanStep::Write,
                };
                let behind = if matches!(step, PlanStep::Wake(_)) {
                    Span::ZERO
                } else {
                    BEHIND
                };
                last = last.max(at + behind);
                steps.push((last, id, step));
            }
        }
        steps.sort_by_key(|(at, ..)| *at);
        Self { owners, steps }
    }

    /// The policy that follows it.
    pub fn follow(self) -> Clairvoyant {
        Clairvoyant {
            plan: self,
            read: 0,
            step: 0,
            known: Vec::new(),
        }
    }
}

/// Follows a [`Plan`].
#[derive(Debug, Clone)]
pub struct Clairvoyant {
    plan: Plan,
    read: usize,
    step: usize,
    known: Vec<DeviceOrders>,
}

/// What a device was told and has not done.
#[derive(Debug, Clone, Copy, Default)]
struct DeviceOrders {
    /// Where it is to be, and whether only when nothing waits for it.
    state: Option<(StateId, bool)>,
    /// It is to write, when it is there.
    writes: bool,
}

impl Policy for Clairvoyant {
    fn name(&self) -> &'static str {
        "clairvoyant"
    }
    fn choose(&mut self, _view: &View<'_>, ask: &Ask) -> DeviceId {
        let planned = self
            .plan
            .owners
            .get(self.read)
            .and_then(|at| DeviceId::new(usize::from(*at)));
        self.read += 1;
        planned
            .filter(|id| ask.copies.has(*id))
            .or(ask.copies.iter().next())
            .expect("somebody holds what is read")
    }
    fn decide(
        &mut self,
        view: &View<'_>,
        _signal: Option<Signal>,
        actions: &mut Vec<Action>,
    ) -> Option<Time> {
        self.known
            .resize(view.devices.len(), DeviceOrders::default());
        while let Some((_, id, step)) = self
            .plan
            .steps
            .get(self.step)
            .filter(|(at, ..)| *at <= view.now)
        {
            let told = &mut self.known[id.index()];
            match step {
                PlanStep::Wake(state) => told.state = Some((*state, false)),
                PlanStep::Rest(state) => told.state = Some((*state, true)),
                PlanStep::Write => told.writes = true,
            }
            self.step += 1;
        }
        let mut again = self.plan.steps.get(self.step).map(|(at, ..)| *at);
        for (id, device) in view.each() {
            let told = &mut self.known[id.index()];
            // Told again until it is there: work that came meanwhile made it forget.
            let wanted = told.state.filter(|(state, _)| device.heading() != *state);
            told.writes &= device.queued > 0;
            match wanted.filter(|(_, is_rest)| !is_rest || device.idle(view.now).is_some()) {
                _ if told.writes
                    && !device.is_wanted
                    && wanted.is_none_or(|(to, _)| !device.device.power.serves(to)) =>
                {
                    told.writes = false;
                    actions.push(Action::Flush(id, Trigger::Awake));
                }
                // The stop was planned later than the last work was done; a token is near.
                Some((_, true)) if !device.may_stop => {
                    again = sooner(again, Some(view.now + RETRY))
                }
                Some((state, _)) => actions.push(Action::Go(id, state)),
                None => {}
            }
        }
        again
    }
}
