//! A schedule that knows the future, as a policy that the simulator runs.
//!
//! # Guarantees
//! 1. It only does what every policy may: choose a device, send devices to states, order bursts.
//!    What it costs is what the simulator says, the hard limits kept.

use super::device_search::{DeviceSchedule, ScheduledAction};
use super::problem::{PointKind, SchedulingProblem};
use crate::device::DeviceId;
use crate::policy::{
    DeviceView, FlushTrigger, MachineSignal, MachineView, Policy, PolicyAction, ReadRequest,
    earlier_time,
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
                        // Steps after a read must not come before the read itself.
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
        // The sort is stable: steps of one device keep their order.
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

/// What a device is to do next by its orders.
enum OrderedMove {
    Write,
    Enter(StateId),
    /// It is to go down, and there is no token for that yet.
    AwaitToken,
    Nothing,
}

impl DeviceOrders {
    fn take_step(&mut self, step: PlanStep) {
        match step {
            PlanStep::Wake(state) => self.state = Some((state, false)),
            PlanStep::Rest(state) => self.state = Some((state, true)),
            PlanStep::Write => self.writes = true,
        }
    }

    /// Returns the state that a device is still to enter.
    fn wanted_state(&self, device: &DeviceView<'_>) -> Option<(StateId, bool)> {
        match self.state {
            Some((state, _)) if device.target_state() == state => None,
            wanted => wanted,
        }
    }

    /// Returns the next move, the most urgent first: writing, waiting for a token, moving. A move
    /// is told again until the device is there: work that came meanwhile made it forget.
    fn next_move(&self, device: &DeviceView<'_>, now: Time) -> OrderedMove {
        let wanted = self.wanted_state(device);
        let wakes = wanted.is_some_and(|(to, _)| device.device.power.serves(to));
        if self.writes && !device.is_wanted && !wakes {
            return OrderedMove::Write;
        }
        match wanted {
            Some((_, true)) if device.idle_time(now).is_none() => OrderedMove::Nothing,
            Some((_, true)) if !device.may_stop => OrderedMove::AwaitToken,
            Some((state, _)) => OrderedMove::Enter(state),
            None => OrderedMove::Nothing,
        }
    }
}

impl Clairvoyant {
    /// Takes the steps of the plan that are due.
    fn take_due_steps(&mut self, now: Time) {
        while let Some((at, id, step)) = self.plan.steps.get(self.next_step)
            && *at <= now
        {
            self.orders[id.index()].take_step(*step);
            self.next_step += 1;
        }
    }
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
        // Reads are asked for in the order of the trace.
        self.next_read += 1;
        planned
            .filter(|id| request.copies.contains(*id))
            .or(request.copies.iter().next())
            .expect("a device holds what is read")
    }
    fn decide_actions(
        &mut self,
        view: &MachineView<'_>,
        _signal: Option<MachineSignal>,
        actions: &mut Vec<PolicyAction>,
    ) -> Option<Time> {
        self.orders
            .resize(view.devices.len(), DeviceOrders::default());
        self.take_due_steps(view.now);
        let mut again = self.plan.steps.get(self.next_step).map(|(at, ..)| *at);
        for (id, device) in view.devices_with_ids() {
            let orders = &mut self.orders[id.index()];
            orders.writes &= device.queued > 0;
            match orders.next_move(device, view.now) {
                OrderedMove::Write => {
                    orders.writes = false;
                    actions.push(PolicyAction::Flush(id, FlushTrigger::Awake));
                }
                // The stop was planned later than the last work was done; a token is near.
                OrderedMove::AwaitToken => again = earlier_time(again, Some(view.now + RETRY)),
                OrderedMove::Enter(state) => actions.push(PolicyAction::Enter(id, state)),
                OrderedMove::Nothing => {}
            }
        }
        again
    }
}
