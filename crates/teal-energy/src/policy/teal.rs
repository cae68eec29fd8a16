//! Our policy: the cheapest device now, ghost hints, learnt time-outs, and bursts that ride on
//! devices which are awake.
//!
//! # Guarantees
//! 1. A device is put to sleep only if the budget pays for its next start, and only after its queue
//!    was written, so that it is not woken again for what it could have taken while awake.
//! 2. A device that was woken for a burst goes down again after it, unless somebody reads it.

use super::choice::{Predicted, Predictor, Weights, transition};
use super::flush::{self, FlushConfig};
use super::ghost::Ghosts;
use super::sleep::IdleTimes;
use super::worth::Worth;
use super::{Action, Ask, DeviceView, Measured, Policy, Signal, Supply, Trigger, View, sooner};
use crate::device::DeviceId;
use crate::power::{Place, PowerModel};
use crate::profile::StateId;
use teal_types::{Energy, Power, Span, Time};

/// How it weighs and waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TealConfig {
    /// On battery.
    pub battery: Weights,
    /// When powered.
    pub powered: Weights,
    /// When queues are written.
    pub flush: FlushConfig,
}

impl Default for TealConfig {
    fn default() -> Self {
        let powered = Weights {
            second: 3,
            joule: 1,
        };
        Self {
            battery: Weights::EQUAL,
            powered,
            flush: FlushConfig::default(),
        }
    }
}

/// What is known of one device.
#[derive(Debug, Clone, Default)]
struct Known {
    idle: IdleTimes,
    idle_since: Option<Time>,
    worth: Worth,
    /// The last time-out: how long it stays awake for nothing.
    timeout: Span,
    /// It was woken for a burst, or told to write before it sleeps: it goes down as soon as nothing
    /// is left.
    is_leaving: bool,
}

/// Returns what it costs at most to find a device in a state: the way there and back, and
/// somebody's wait for it.
fn start(power: &PowerModel, awake: StateId, state: StateId, base: Power) -> Energy {
    let trip = power
        .round_trip(awake, state)
        .map_or(Energy::ZERO, |trip| trip.energy);
    trip + base * power.route(state, awake).unwrap_or_default().time
}

/// How long a device that has used tokens waits at least, so that some are left for the longest
/// pauses: until staying awake has cost so many starts, somebody's wait for them included, whatever
/// is lost if it is found asleep. A token is one start less for a longer pause.
fn patience(device: &DeviceView<'_>, awake: StateId, below: StateId, start: Energy) -> Span {
    let used = device.device.budget.map_or(0, |limits| {
        u64::from(limits.burst).saturating_sub(device.tokens)
    });
    let power = &device.device.power;
    let saved = power.power(awake).less(power.power(below)).get().max(1);
    if used == 0 {
        Span::ZERO
    } else {
        Span::nanos((start * STARTS).get().saturating_mul(1_000_000_000) / saved)
    }
}

/// See [`patience`].
const STARTS: u64 = 3;

/// Our policy.
#[derive(Debug, Default)]
pub struct Teal {
    config: TealConfig,
    predictor: Predictor,
    ghosts: Ghosts,
    known: Vec<Known>,
    woken: Vec<(DeviceId, StateId)>,
}

impl Teal {
    /// With these settings.
    pub fn new(config: TealConfig) -> Self {
        Self {
            config,
            ..Self::default()
        }
    }

    fn weights(&self, view: &View<'_>) -> Weights {
        match view.supply {
            Supply::Battery => self.config.battery,
            Supply::Powered => self.config.powered,
        }
    }

    /// What each device that holds what is read is worth, awake.
    fn value(&mut self, view: &View<'_>, ask: &Ask) {
        for id in ask.copies.iter() {
            let power = &view.device(id).device.power;
            let (awake, lowest) = (
                power.nearest_serving(view.device(id).heading()),
                power.lowest(),
            );
            if power.serves(lowest) {
                continue;
            }
            let start = start(power, awake, lowest, view.base);
            let others = ask.copies.without(id);
            let other = others
                .iter()
                .map(|other| self.predictor.now(view, other, ask).energy)
                .min();
            let more = other.map_or(start, |other| {
                other.less(self.predictor.awake(view, id, ask).energy)
            });
            // While others serve nobody waits for the start.
            let trip = power
                .round_trip(awake, lowest)
                .map_or(Energy::ZERO, |trip| trip.energy);
            let most = if others.is_empty() { start } else { trip };
            let apart = power
                .round_trip(awake, lowest)
                .and_then(|trip| trip.break_even())
                .unwrap_or_default();
            self.known[id.index()]
                .worth
                .asked(view.now, more, apart, most);
        }
    }

    /// Returns what a device spends besides if it serves now: it goes to sleep so much later, or
    /// has to go to sleep again.
    fn lingers(&self, view: &View<'_>, id: DeviceId) -> Energy {
        let device = view.device(id);
        let power = &device.device.power;
        let lowest = power.lowest();
        let awake = power.nearest_serving(device.heading());
        let over = power.power(awake).less(power.power(lowest));
        let timeout = self.known[id.index()].timeout;
        match device.place {
            Place::Resting { state, .. } if power.serves(state) => {
                over * device.idle(view.now).unwrap_or_default().min(timeout)
            }
            Place::Resting { .. } => {
                over * timeout
                    + power
                        .route(awake, lowest)
                        .map_or(Energy::ZERO, |route| route.energy)
            }
            _ => Energy::ZERO,
        }
    }

    /// Learns how long a device was idle; says since when it is.
    fn watch(&mut self, now: Time, id: DeviceId, device: &DeviceView<'_>) -> Option<Time> {
        let known = &mut self.known[id.index()];
        let rises =
            matches!(device.place, Place::Moving { to, .. } if device.device.power.serves(to));
        let is_busy = device.is_wanted || rises || matches!(device.place, Place::Working { .. });
        if is_busy {
            // A burst of ours says nothing about when the device will be wanted.
            if let Some(since) = known.idle_since.take()
                && !known.is_leaving
            {
                known.idle.learn(now.since(since));
            }
            return None;
        }
        known.idle_since = Some(known.idle_since.unwrap_or(now));
        known.idle_since
    }

    /// Puts an idle device to sleep when its time has come.
    fn rest(
        &mut self,
        view: &View<'_>,
        id: DeviceId,
        since: Time,
        actions: &mut Vec<Action>,
    ) -> Option<Time> {
        let device = view.device(id);
        let state = device.serving()?;
        let known = &mut self.known[id.index()];
        let power = &device.device.power;
        let base = if self.config.battery.second == 0 {
            Power::ZERO
        } else {
            view.base
        };
        let lost = |below| {
            let start = start(power, state, below, base);
            let trip = power
                .round_trip(state, below)
                .map_or(Energy::ZERO, |trip| trip.energy);
            if power.serves(below) {
                start
            } else {
                known.worth.get(trip, start)
            }
        };
        let (below, timeout) = known.idle.best(power, state, lost)?;
        known.timeout = timeout.max(patience(
            device,
            state,
            below,
            start(power, state, below, base),
        ));
        let at = if known.is_leaving {
            view.now
        } else {
            since + known.timeout
        };
        if view.now < at {
            return Some(at);
        }
        if !device.may_stop {
            return Some(view.now + Span::secs(60));
        }
        if device.queued > 0 {
            actions.push(Action::Flush(id, Trigger::Awake));
            known.is_leaving = true;
            return None;
        }
        known.is_leaving = false;
        actions.push(Action::Go(id, below));
        None
    }
}

impl Policy for Teal {
    fn name(&self) -> &'static str {
        "teal"
    }

    fn choose(&mut self, view: &View<'_>, ask: &Ask) -> DeviceId {
        let weights = self.weights(view);
        self.known.resize_with(view.devices.len(), Known::default);
        self.value(view, ask);
        let cost = |id| {
            let now = self.predictor.now(view, id, ask);
            let all = Predicted {
                energy: now.energy + self.lingers(view, id),
                ..now
            };
            (weights.cost(all), weights.cost(now), id)
        };
        let (_, cost, best) = ask
            .copies
            .iter()
            .map(cost)
            .min()
            .expect("somebody holds what is read");
        let mut ghosts = std::mem::take(&mut self.ghosts);
        let ideals = || {
            ask.copies
                .iter()
                .map(|id| (self.predictor.ideal(view, id, ask, weights), id))
        };
        let start = |id, state| {
            transition(
                &view.device(id).device.power,
                view.device(id).heading(),
                state,
                weights,
            )
        };
        let dearest = ideals()
            .min()
            .map(|((_, state), id)| start(id, state))
            .unwrap_or_default();
        // Of those that start more cheaply than the best one too: a radio is woken long before a
        // disk that is a little better.
        for (ideal, id) in ideals().filter(|((_, state), id)| start(*id, *state) <= dearest) {
            self.woken.extend(ghosts.lose(
                view,
                (ideal, id),
                cost,
                weights,
                self.lingers(view, id),
            ));
        }
        self.ghosts = ghosts;
        self.known[best.index()].is_leaving = false;
        best
    }

    fn measured(&mut self, view: &View<'_>, measured: &Measured) {
        self.predictor.measured(view, measured);
    }

    fn decide(
        &mut self,
        view: &View<'_>,
        signal: Option<Signal>,
        actions: &mut Vec<Action>,
    ) -> Option<Time> {
        self.known.resize_with(view.devices.len(), Known::default);
        let mut again = None;
        for (id, state) in self.woken.drain(..) {
            self.known[id.index()].is_leaving = false;
            actions.push(Action::Go(id, state));
        }
        for (id, device) in view.each() {
            let since = self.watch(view.now, id, device);
            let (trigger, later) = flush::due(view, id, &self.config.flush, signal);
            again = sooner(again, later);
            if let Some(trigger) = trigger {
                self.known[id.index()].is_leaving |=
                    device.serving().is_none() && !device.is_wanted;
                actions.push(Action::Flush(id, trigger));
            } else if let Some(since) = since {
                again = sooner(again, self.rest(view, id, since, actions));
            }
        }
        again
    }
}
