//! The simulator: runs a policy on a machine through a trace in virtual time, and reports energy by
//! device and state, delays and starts.
//!
//! # Guarantees
//! 1. *Repeatable*: the same machine, trace and policy give the same report, to the microjoule.
//! 2. *Accounted*: the total is the sum of the devices' ledgers and of the machine's power while a
//!    program waits; every ledger covers the whole time.
//! 3. *Hard limits*, whatever the policy says: no change waits longer than its queue's age, no
//!    queue grows beyond its size without being written, no device stops without a token for the
//!    next start, and everything is written at the end.
//! 4. *Work is done in order*: requests of one device are served in the order in which they came,
//!    and a device that is wanted is woken at once.
//!
//! The clock jumps from one event to the next. At each, devices finish what they do, then the
//! trace's event happens, then limits are kept, then the policy is asked, then devices begin what
//! is next. A burst holds the changes that are queued when it begins.

#[cfg(test)]
mod days;
mod report;
mod simulated_device;
#[cfg(test)]
pub(crate) mod tests;
mod trace;

use crate::device::{DeviceId, DeviceModel, DeviceSet};
use crate::policy::{
    DeviceView, FlushTrigger, MachineSignal, MachineView, MeasuredRead, Policy, PolicyAction,
    PowerSupply, ReadRequest, earlier_time,
};
use crate::profile::StateId;
pub use report::{DeviceReport, SimulationReport};
use simulated_device::{QueuedWork, ReadWait, SimulatedDevice};
use teal_types::{Power, Time, TimeSpan};
pub use trace::{CopyTracker, EventAction, MachineEvent, MachineTrace};

/// Tells whether later events wait for earlier ones (a closed loop) or not (an open one).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayPace {
    /// Events come when the trace says.
    Open,
    /// The pauses of the trace are kept; a read that takes longer moves everything after it.
    Closed,
}

/// The machine of a simulation.
#[derive(Debug, Clone)]
pub struct SimulatedMachine {
    /// Its devices.
    pub devices: Vec<DeviceModel>,
    /// The state in which each begins.
    pub start_states: Vec<StateId>,
    /// The power it draws while a program waits.
    pub base: Power,
    /// The time of day at which traces begin.
    pub time_of_day: TimeSpan,
    /// Tells whether later events wait for earlier ones.
    pub pace: ReplayPace,
    /// Its supply at the beginning.
    pub supply: PowerSupply,
    /// Is true if a user is there at the beginning.
    pub is_user_present: bool,
}

impl SimulatedMachine {
    /// Makes a machine whose devices begin in the state that serves and draws least; on battery, at
    /// nine o'clock, with a user present.
    pub fn new(devices: Vec<DeviceModel>, base: Power, pace: ReplayPace) -> Self {
        let begin = |device: &DeviceModel| {
            let power = &device.power;
            let serving = power.state_ids().filter(|state| power.serves(*state));
            serving
                .min_by_key(|state| power.state_power(*state))
                .unwrap_or_else(|| power.lowest_state())
        };
        let start = devices.iter().map(begin).collect();
        let begins = TimeSpan::from_hours(9);
        Self {
            devices,
            start_states: start,
            base,
            time_of_day: begins,
            pace,
            supply: PowerSupply::Battery,
            is_user_present: true,
        }
    }
}

struct Simulation<'a> {
    machine: &'a SimulatedMachine,
    devices: Vec<SimulatedDevice<'a>>,
    now: Time,
    /// The time by which the closed pace has delayed the trace.
    delayed_by: TimeSpan,
    outstanding: usize,
    supply: PowerSupply,
    is_user_present: bool,
    delays: Vec<TimeSpan>,
    sole_delay: TimeSpan,
    added_delay: TimeSpan,
    cold_delays: Vec<TimeSpan>,
    has_ended: bool,
}

/// Runs a policy through a trace.
pub fn run(
    world: &SimulatedMachine,
    trace: &MachineTrace,
    policy: &mut dyn Policy,
) -> SimulationReport {
    let mut sim = Simulation::new(world);
    let mut events = trace.events.iter().peekable();
    let mut again = Some(Time::ZERO);
    loop {
        let moved = sim.delayed_by;
        // At a closed pace the next event waits until every read is answered.
        let may_come = world.pace == ReplayPace::Open || sim.outstanding == 0;
        let next = events
            .peek()
            .map(|event| event.at + moved)
            .filter(|_| may_come);
        let end = Some(trace.end + moved)
            .filter(|_| events.peek().is_none() && may_come && !sim.has_ended);
        // The clock jumps to the earliest of: work that ends, a queue's deadline, the next event,
        // the end, and the policy's own time.
        let due = [sim.next_rest(), sim.next_deadline(), next, end, again]
            .into_iter()
            .flatten()
            .min();
        // Nothing is left to happen.
        let Some(now) = due else { break };
        // Times in the past are handled now: time never goes back.
        sim.now = sim.now.max(now);
        sim.finish_work(policy);
        let mut signal = None;
        if next.is_some_and(|next| next <= sim.now)
            && let Some(event) = events.next()
        {
            signal = sim.apply_event(event, policy);
        } else if end.is_some_and(|end| end <= sim.now) {
            sim.has_ended = true;
            sim.flush_all();
        }
        // The hard limits come before the policy, which cannot break them.
        sim.keep_limits();
        again = if sim.has_ended {
            None
        } else {
            sim.ask_policy(policy, signal)
        };
        // Work of no duration ends at once, and lets more begin at the same time.
        while sim.begin_work() {
            sim.finish_work(policy);
        }
    }
    sim.into_report(policy.name(), trace.end)
}

impl<'a> Simulation<'a> {
    fn new(world: &'a SimulatedMachine) -> Self {
        assert!(
            world.devices.len() <= world.start_states.len(),
            "each device begins in a state"
        );
        let start =
            |(device, state): (&'a DeviceModel, &StateId)| SimulatedDevice::new(device, *state);
        Self {
            machine: world,
            devices: world
                .devices
                .iter()
                .zip(&world.start_states)
                .map(start)
                .collect(),
            now: Time::ZERO,
            delayed_by: TimeSpan::ZERO,
            outstanding: 0,
            supply: world.supply,
            is_user_present: world.is_user_present,
            delays: Vec::new(),
            sole_delay: TimeSpan::ZERO,
            added_delay: TimeSpan::ZERO,
            cold_delays: Vec::new(),
            has_ended: false,
        }
    }

    fn next_rest(&self) -> Option<Time> {
        self.devices
            .iter()
            .filter_map(|unit| unit.machine.rests_at())
            .min()
    }

    fn next_deadline(&self) -> Option<Time> {
        self.devices
            .iter()
            .filter_map(SimulatedDevice::flush_deadline)
            .min()
    }

    /// Lets devices finish what is done by now, and tells the policy of the reads among it.
    fn finish_work(&mut self, policy: &mut dyn Policy) {
        for at in 0..self.devices.len() {
            let Some(done) = self.devices[at].finish_work(self.now) else {
                continue;
            };
            if let Some((delay, wait)) = done.delay {
                self.outstanding -= 1;
                self.count_delay(delay, wait);
                if self.machine.pace == ReplayPace::Closed {
                    self.delayed_by += delay;
                }
            }
            if let (Some((state, bytes, is_continued, time)), Some(device)) =
                (done.served, DeviceId::new(at))
            {
                let measured = MeasuredRead {
                    device,
                    state,
                    bytes,
                    is_continued,
                    time,
                };
                self.with_view(|view| policy.observe_read(view, &measured));
            }
        }
    }

    fn count_delay(&mut self, delay: TimeSpan, wait: ReadWait) {
        self.delays.push(delay);
        if wait.is_sole {
            self.sole_delay += delay;
        }
        if wait.is_cold {
            self.cold_delays.push(delay);
        } else {
            self.added_delay += delay.saturating_sub(wait.least);
        }
    }

    fn apply_event(
        &mut self,
        event: &MachineEvent,
        policy: &mut dyn Policy,
    ) -> Option<MachineSignal> {
        match event.action {
            EventAction::Read {
                object,
                offset,
                bytes,
                copies,
            } => {
                // The content is in memory: no device is involved, and nothing is waited for.
                if copies.is_empty() {
                    self.delays.push(TimeSpan::ZERO);
                    return None;
                }
                // A device continues if its last access ended where this one begins.
                let continues =
                    |id: &DeviceId| self.devices[id.index()].continues_last(object, offset);
                let continued: DeviceSet = copies.iter().filter(continues).collect();
                let request = ReadRequest {
                    object,
                    offset,
                    bytes,
                    copies,
                    continued,
                };
                // The policy sees the machine as it is before the read is queued.
                let chosen = self.with_view(|view| policy.choose_device(view, &request));
                assert!(
                    copies.contains(chosen),
                    "{} read {object} where it is not",
                    policy.name()
                );
                let is_sole = copies.iter().count() == 1;
                let least = copies
                    .iter()
                    .filter_map(|id| self.devices[id.index()].quickest_read(object, offset, bytes))
                    .min();
                // No policy could have avoided the wait of a cold read without keeping the device
                // awake.
                let is_cold = is_sole && !self.devices[chosen.index()].is_awake();
                let wait = ReadWait {
                    is_sole,
                    is_cold,
                    least: least.unwrap_or(TimeSpan::ZERO),
                };
                self.outstanding += 1;
                self.devices[chosen.index()].enqueue_work(QueuedWork::Read {
                    object,
                    offset,
                    bytes,
                    asked: self.now,
                    wait,
                });
                None
            }
            EventAction::Write {
                object,
                bytes,
                sinks,
            } => {
                sinks
                    .iter()
                    .for_each(|id| self.devices[id.index()].queue_change(self.now, object, bytes));
                None
            }
            EventAction::Signal(signal) => {
                match signal {
                    MachineSignal::Supply(supply) => self.supply = supply,
                    MachineSignal::Presence(there) => self.is_user_present = there,
                    MachineSignal::Shutdown
                    | MachineSignal::MemoryPressure
                    | MachineSignal::Sync => {}
                }
                Some(signal)
            }
        }
    }

    /// Lets devices begin what is next. Returns whether some of it is done already.
    fn begin_work(&mut self) -> bool {
        let now = self.now;
        self.devices
            .iter_mut()
            .filter_map(|unit| unit.begin_next(now).then_some(()))
            .count()
            > 0
    }

    fn flush_all(&mut self) {
        self.devices
            .iter_mut()
            .for_each(|unit| unit.order_flush(FlushTrigger::Shutdown));
    }

    fn keep_limits(&mut self) {
        for unit in &mut self.devices {
            if unit
                .flush_deadline()
                .is_some_and(|deadline| deadline <= self.now)
            {
                unit.order_flush(FlushTrigger::Age);
            }
            if unit.is_queue_full() {
                unit.order_flush(FlushTrigger::Size);
            }
        }
    }

    fn ask_policy(
        &mut self,
        policy: &mut dyn Policy,
        signal: Option<MachineSignal>,
    ) -> Option<Time> {
        let mut actions = Vec::new();
        let again = self.with_view(|view| policy.decide_actions(view, signal, &mut actions));
        // Actions take effect after the policy has returned: it saw one consistent state.
        for action in actions {
            match action {
                PolicyAction::Enter(id, state) => self.devices[id.index()].head_for(state),
                PolicyAction::Flush(id, trigger) => self.devices[id.index()].order_flush(trigger),
            }
        }
        // Asked again at once it would say the same again.
        earlier_time(again.filter(|again| *again > self.now), None)
    }

    fn with_view<T>(&mut self, look: impl FnOnce(&MachineView<'_>) -> T) -> T {
        let devices: Vec<DeviceView<'_>> = self
            .devices
            .iter()
            .map(|unit| unit.device_view(self.now))
            .collect();
        let day = TimeSpan::from_hours(24).get();
        let time_of_day =
            TimeSpan::from_nanos((self.machine.time_of_day.get() + self.now.get() % day) % day);
        look(&MachineView {
            now: self.now,
            time_of_day,
            devices: &devices,
            base: self.machine.base,
            supply: self.supply,
            is_user_present: self.is_user_present,
        })
    }

    fn into_report(mut self, policy: &'static str, end: Time) -> SimulationReport {
        let end = self.now.max(end + self.delayed_by);
        self.devices
            .iter_mut()
            .for_each(|unit| unit.machine.advance(end));
        let waiting = self.devices.iter().map(|unit| unit.waiting).sum();
        let floor = self
            .machine
            .devices
            .iter()
            .map(|device| device.power.state_power(device.power.lowest_state()))
            .sum::<Power>();
        SimulationReport {
            policy,
            elapsed: end.since(Time::ZERO),
            waiting,
            waited: self.machine.base * waiting,
            floor: floor * end.since(Time::ZERO),
            delays: self.delays,
            sole: self.sole_delay,
            added: self.added_delay,
            cold: self.cold_delays,
            devices: self
                .devices
                .into_iter()
                .map(SimulatedDevice::into_report)
                .collect(),
        }
    }
}
