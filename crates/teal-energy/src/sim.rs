//! Virtual time: a trace, a machine and a policy in; energy by device and state, delays and starts
//! out.
//!
//! # Guarantees
//! 1. *Repeatable*: the same world, trace and policy give the same report, to the microjoule.
//! 2. *Accounted*: the total is the sum of the devices' ledgers and of the machine's power while
//!    somebody waits; every ledger covers the whole time.
//! 3. *Hard limits*, whatever the policy says: no change waits longer than its queue's age, no
//!    queue grows beyond its size without being written, no device stops without a token for the
//!    next start, and everything is written at the end.
//! 4. *Work is done in order*: requests of one device are served in the order in which they came,
//!    and a device that is wanted is woken at once.
//!
//! How: the clock jumps from one event to the next. At each, devices finish what they do, then the
//! trace's event happens, then limits are kept, then the policy is asked, then devices begin what
//! is next. A burst holds what is queued when it begins.

#[cfg(test)]
mod days;
mod report;
#[cfg(test)]
pub(crate) mod tests;
mod trace;
mod unit;

use crate::device::{Device, DeviceId, DeviceSet};
use crate::policy::{
    Action, Ask, DeviceView, Measured, Policy, Signal, Supply, Trigger, View, sooner,
};
use crate::profile::StateId;
pub use report::{DeviceReport, Report};
use teal_types::{Power, Span, Time};
pub use trace::{Contents, Event, Trace, What};
use unit::{Unit, Wait, Work};

/// Whether later events wait for earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Events come when the trace says.
    Open,
    /// The pauses of the trace are kept; a read that takes longer moves everything after it.
    Closed,
}

/// The machine of a simulation.
#[derive(Debug, Clone)]
pub struct World {
    /// Its devices.
    pub devices: Vec<Device>,
    /// The state in which each begins.
    pub start: Vec<StateId>,
    /// What it draws while somebody waits.
    pub base: Power,
    /// The time of day at which traces begin.
    pub begins: Span,
    /// Whether later events wait.
    pub pace: Pace,
    /// Its supply at the beginning.
    pub supply: Supply,
    /// Whether somebody is there at the beginning.
    pub is_someone_there: bool,
}

impl World {
    /// A machine whose devices begin in the state that serves and draws least; on battery, at nine
    /// o'clock, with somebody there.
    pub fn new(devices: Vec<Device>, base: Power, pace: Pace) -> Self {
        let begin = |device: &Device| {
            let power = &device.power;
            let serving = power.ids().filter(|state| power.serves(*state));
            serving
                .min_by_key(|state| power.power(*state))
                .unwrap_or_else(|| power.lowest())
        };
        let start = devices.iter().map(begin).collect();
        let begins = Span::hours(9);
        Self {
            devices,
            start,
            base,
            begins,
            pace,
            supply: Supply::Battery,
            is_someone_there: true,
        }
    }
}

struct Sim<'a> {
    world: &'a World,
    units: Vec<Unit<'a>>,
    now: Time,
    /// How far the closed pace has moved the trace.
    moved: Span,
    outstanding: usize,
    supply: Supply,
    is_someone_there: bool,
    delays: Vec<Span>,
    sole: Span,
    added: Span,
    cold: Vec<Span>,
    has_ended: bool,
}

/// Runs a trace.
pub fn run(world: &World, trace: &Trace, policy: &mut dyn Policy) -> Report {
    let mut sim = Sim::new(world);
    let mut events = trace.events.iter().peekable();
    let mut again = Some(Time::ZERO);
    loop {
        let moved = sim.moved;
        let may_come = world.pace == Pace::Open || sim.outstanding == 0;
        let next = events
            .peek()
            .map(|event| event.at + moved)
            .filter(|_| may_come);
        let end = Some(trace.end + moved)
            .filter(|_| events.peek().is_none() && may_come && !sim.has_ended);
        let due = [sim.settles(), sim.deadline(), next, end, again]
            .into_iter()
            .flatten()
            .min();
        let Some(now) = due else { break };
        sim.now = sim.now.max(now);
        sim.settle(policy);
        let mut signal = None;
        if next.is_some_and(|next| next <= sim.now)
            && let Some(event) = events.next()
        {
            signal = sim.happen(event, policy);
        } else if end.is_some_and(|end| end <= sim.now) {
            sim.has_ended = true;
            sim.flush_all();
        }
        sim.keep_limits();
        again = if sim.has_ended {
            None
        } else {
            sim.ask(policy, signal)
        };
        while sim.begin() {
            sim.settle(policy);
        }
    }
    sim.report(policy.name(), trace.end)
}

impl<'a> Sim<'a> {
    fn new(world: &'a World) -> Self {
        assert!(
            world.devices.len() <= world.start.len(),
            "each device begins in a state"
        );
        let start = |(device, state): (&'a Device, &StateId)| Unit::new(device, *state);
        Self {
            world,
            units: world.devices.iter().zip(&world.start).map(start).collect(),
            now: Time::ZERO,
            moved: Span::ZERO,
            outstanding: 0,
            supply: world.supply,
            is_someone_there: world.is_someone_there,
            delays: Vec::new(),
            sole: Span::ZERO,
            added: Span::ZERO,
            cold: Vec::new(),
            has_ended: false,
        }
    }

    fn settles(&self) -> Option<Time> {
        self.units
            .iter()
            .filter_map(|unit| unit.machine.settles())
            .min()
    }

    fn deadline(&self) -> Option<Time> {
        self.units.iter().filter_map(Unit::deadline).min()
    }

    /// Devices finish what they do.
    fn settle(&mut self, policy: &mut dyn Policy) {
        for at in 0..self.units.len() {
            let Some(done) = self.units[at].settle(self.now) else {
                continue;
            };
            if let Some((delay, wait)) = done.delay {
                self.outstanding -= 1;
                self.count(delay, wait);
                if self.world.pace == Pace::Closed {
                    self.moved += delay;
                }
            }
            if let (Some((state, bytes, is_continued, time)), Some(device)) =
                (done.served, DeviceId::new(at))
            {
                let measured = Measured {
                    device,
                    state,
                    bytes,
                    is_continued,
                    time,
                };
                self.with_view(|view| policy.measured(view, &measured));
            }
        }
    }

    fn count(&mut self, delay: Span, wait: Wait) {
        self.delays.push(delay);
        if wait.is_sole {
            self.sole += delay;
        }
        if wait.is_cold {
            self.cold.push(delay);
        } else {
            self.added += delay.less(wait.least);
        }
    }

    fn happen(&mut self, event: &Event, policy: &mut dyn Policy) -> Option<Signal> {
        match event.what {
            What::Read {
                object,
                offset,
                bytes,
                copies,
            } => {
                if copies.is_empty() {
                    self.delays.push(Span::ZERO);
                    return None;
                }
                let continues = |id: &DeviceId| self.units[id.index()].continues(object, offset);
                let continued: DeviceSet = copies.iter().filter(continues).collect();
                let ask = Ask {
                    object,
                    offset,
                    bytes,
                    copies,
                    continued,
                };
                let chosen = self.with_view(|view| policy.choose(view, &ask));
                assert!(
                    copies.has(chosen),
                    "{} read {object} where it is not",
                    policy.name()
                );
                let is_sole = copies.iter().count() == 1;
                let least = copies
                    .iter()
                    .filter_map(|id| self.units[id.index()].quickest(object, offset, bytes))
                    .min();
                let is_cold = is_sole && !self.units[chosen.index()].is_awake();
                let wait = Wait {
                    is_sole,
                    is_cold,
                    least: least.unwrap_or(Span::ZERO),
                };
                self.outstanding += 1;
                self.units[chosen.index()].want(Work::Read {
                    object,
                    offset,
                    bytes,
                    asked: self.now,
                    wait,
                });
                None
            }
            What::Write {
                object,
                bytes,
                sinks,
            } => {
                sinks
                    .iter()
                    .for_each(|id| self.units[id.index()].put(self.now, object, bytes));
                None
            }
            What::Signal(signal) => {
                match signal {
                    Signal::Supply(supply) => self.supply = supply,
                    Signal::Presence(there) => self.is_someone_there = there,
                    Signal::Shutdown | Signal::MemoryPressure | Signal::Sync => {}
                }
                Some(signal)
            }
        }
    }

    /// Devices begin what is next; says whether some of it is done already.
    fn begin(&mut self) -> bool {
        let now = self.now;
        self.units
            .iter_mut()
            .filter_map(|unit| unit.begin(now).then_some(()))
            .count()
            > 0
    }

    fn flush_all(&mut self) {
        self.units
            .iter_mut()
            .for_each(|unit| unit.flush(Trigger::Shutdown));
    }

    fn keep_limits(&mut self) {
        for unit in &mut self.units {
            if unit.deadline().is_some_and(|deadline| deadline <= self.now) {
                unit.flush(Trigger::Age);
            }
            if unit.is_over() {
                unit.flush(Trigger::Size);
            }
        }
    }

    fn ask(&mut self, policy: &mut dyn Policy, signal: Option<Signal>) -> Option<Time> {
        let mut actions = Vec::new();
        let again = self.with_view(|view| policy.decide(view, signal, &mut actions));
        for action in actions {
            match action {
                Action::Go(id, state) => self.units[id.index()].head_for(state),
                Action::Flush(id, trigger) => self.units[id.index()].flush(trigger),
            }
        }
        // Asked again at once it would say the same again.
        sooner(again.filter(|again| *again > self.now), None)
    }

    fn with_view<T>(&mut self, look: impl FnOnce(&View<'_>) -> T) -> T {
        let devices: Vec<DeviceView<'_>> =
            self.units.iter().map(|unit| unit.view(self.now)).collect();
        let day = Span::hours(24).get();
        let time_of_day = Span::nanos((self.world.begins.get() + self.now.get() % day) % day);
        look(&View {
            now: self.now,
            time_of_day,
            devices: &devices,
            base: self.world.base,
            supply: self.supply,
            is_someone_there: self.is_someone_there,
        })
    }

    fn report(mut self, policy: &'static str, end: Time) -> Report {
        let end = self.now.max(end + self.moved);
        self.units
            .iter_mut()
            .for_each(|unit| unit.machine.advance(end));
        let waiting = self.units.iter().map(|unit| unit.waiting).sum();
        let floor = self
            .world
            .devices
            .iter()
            .map(|device| device.power.power(device.power.lowest()))
            .sum::<Power>();
        Report {
            policy,
            elapsed: end.since(Time::ZERO),
            waiting,
            waited: self.world.base * waiting,
            floor: floor * end.since(Time::ZERO),
            delays: self.delays,
            sole: self.sole,
            added: self.added,
            cold: self.cold,
            devices: self.units.into_iter().map(Unit::report).collect(),
        }
    }
}
