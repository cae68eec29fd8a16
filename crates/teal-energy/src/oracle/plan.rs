//! A schedule that knows the future, as a policy that the simulator runs.
//!
//! # Guarantees
//! 1. It only does what every policy may: choose a device, send devices to states, order bursts.
//!    What it costs is what the simulator says, the hard limits kept.

use super::device_search::{DeviceSchedule, ScheduledAction};
use super::problem::{PointKind, SchedulingProblem};
use crate::device::DeviceId;
use crate::policy::{
    FlushTrigger, MachineSignal, MachineView, Policy, PolicyAction, ReadRequest, earlier_time,
};
use crate::profile::StateId;
use teal_types::{Time, TimeSpan};

/// The device that serves each read, and the steps of each device with their times.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClairvoyantPlan {
    /// The device of each read, in the order of the trace.
    owners: Vec<u8>,
    /// The steps in the order of their times.
    steps: Vec<(Time, DeviceId, PlanStep)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlanStep {
    /// Wake as soon as it can.
    Wake(StateId),
    /// Rest as soon as nothing waits for it.
    Rest(StateId),
    Write,
}

/// The time after which it looks again for a token.
const RETRY: TimeSpan = TimeSpan::from_secs(5);
/// The time behind everything that happens at one moment.
const BEHIND: TimeSpan = TimeSpan::from_nanos(1);

impl ClairvoyantPlan {
    pub(super) fn new(
        problem: &SchedulingProblem<'_>,
        owners: &[Option<u8>],
        schedules: Vec<DeviceSchedule>,
    ) -> Self {
        let is_read = |point: &usize| problem.points[*point].kind == PointKind::Read;
        let owners = (0..owners.len())
            .filter(is_read)
            .filter_map(|point| owners[point])
            .collect();
        let mut steps = Vec::new();
        for (id, best) in (0..).map_while(DeviceId::new).zip(schedules) {
            // One after the other, however close.
            let mut last = Time::ZERO;
            for (at, action) in best.actions {
                let step = match action {
                    ScheduledAction::Read(_) => {
                        last = at + BEHIND;
                        continue;
                    }
                    ScheduledAction::Wake(state) => PlanStep::Wake(StateId(state)),
                    ScheduledAction::Rest(state) => PlanStep::Rest(StateId(state)),
                    ScheduledAction::Write => PlanStep::Write,
                };
                let behind = if matches!(step, PlanStep::Wake(_)) {
                    TimeSpan::ZERO
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

    /// Returns the policy that follows the plan.
    pub fn into_policy(self) -> Clairvoyant {
        Clairvoyant {
            plan: self,
            next_read: 0,
            next_step: 0,
            orders: Vec::new(),
        }
    }
}

/// The policy that follows a [`ClairvoyantPlan`].
#[derive(Debug, Clone)]
pub struct Clairvoyant {
    plan: ClairvoyantPlan,
    next_read: usize,
    next_step: usize,
    orders: Vec<DeviceOrders>,
}

/// The orders that a device was given and has not carried out.
#[derive(Debug, Clone, Copy, Default)]
struct DeviceOrders {
    /// The state it is to enter, and whether only when nothing waits for it.
    state: Option<(StateId, bool)>,
    /// Is true if it is to write when it is there.
    writes: bool,
}

impl Policy for Clairvoyant {
    fn name(&self) -> &'static str {
        "clairvoyant"
    }
    fn choose_device(&mut self, _view: &MachineView<'_>, request: &ReadRequest) -> DeviceId {
        // The schedule's device serves the read, if it holds the data.
        let planned = self
            .plan
            .owners
            .get(self.next_read)
            .and_then(|at| DeviceId::new(usize::from(*at)));
        self.next_read += 1;
        planned
            .filter(|id| request.copies.contains(*id))
            .or(request.copies.iter().next())
            .expect("somebody holds what is read")
    }
    fn decide_actions(
        &mut self,
        view: &MachineView<'_>,
        _signal: Option<MachineSignal>,
        actions: &mut Vec<PolicyAction>,
    ) -> Option<Time> {
        self.orders
            .resize(view.devices.len(), DeviceOrders::default());
        while let Some((_, id, step)) = self
            .plan
            .steps
            .get(self.next_step)
            .filter(|(at, ..)| *at <= view.now)
        {
            let orders = &mut self.orders[id.index()];
            match step {
                PlanStep::Wake(state) => orders.state = Some((*state, false)),
                PlanStep::Rest(state) => orders.state = Some((*state, true)),
                PlanStep::Write => orders.writes = true,
            }
            self.next_step += 1;
        }
        let mut again = self.plan.steps.get(self.next_step).map(|(at, ..)| *at);
        for (id, device) in view.devices_with_ids() {
            let orders = &mut self.orders[id.index()];
            // Told again until it is there: work that came meanwhile made it forget.
            let wanted = orders
                .state
                .filter(|(state, _)| device.target_state() != *state);
            orders.writes &= device.queued > 0;
            // The order of the arms is that of their urgency: writing, waiting for a token, moving.
            match wanted.filter(|(_, is_rest)| !is_rest || device.idle_time(view.now).is_some()) {
                _ if orders.writes
                    && !device.is_wanted
                    && wanted.is_none_or(|(to, _)| !device.device.power.serves(to)) =>
                {
                    orders.writes = false;
                    actions.push(PolicyAction::Flush(id, FlushTrigger::Awake));
                }
                // The stop was planned later than the last work was done; a token is near.
                Some((_, true)) if !device.may_stop => {
                    again = earlier_time(again, Some(view.now + RETRY))
                }
                Some((state, _)) => actions.push(PolicyAction::Enter(id, state)),
                None => {}
            }
        }
        again
    }
}
