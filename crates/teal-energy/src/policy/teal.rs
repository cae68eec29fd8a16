//! Our policy: the cheapest device now, ghost hints, learnt time-outs, and bursts that ride on devices which are awake.
//!
//! # Guarantees
//! 1. A device is put to sleep only if the budget pays for its next start, and only after its queue was written, so that it
//!    is not woken again for what it could have taken while awake.
//! 2. A device that was woken for a burst goes down again after it, unless somebody reads it.

use super::choice::{Predictor, Weights};
use super::flush::{self, FlushConfig};
use super::ghost::Ghosts;
use super::sleep::IdleTimes;
use super::{Action, Ask, DeviceView, Measured, Policy, Signal, Supply, Trigger, View, sooner};
use crate::device::DeviceId;
use crate::power::Place;
use crate::profile::StateId;
use teal_types::{Power, Span, Time};

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
        let powered = Weights { second: 3, joule: 1 };
        Self { battery: Weights::EQUAL, powered, flush: FlushConfig::default() }
    }
}

/// What is known of one device.
#[derive(Debug, Clone, Default)]
struct Known {
    idle: IdleTimes,
    idle_since: Option<Time>,
    /// It was woken for a burst, or told to write before it sleeps: it goes down as soon as nothing is left.
    is_leaving: bool,
    /// Stops so far that used up tokens.
    stops: u32,
}

/// The shortest time-out of a device that has used one token of its burst; doubled for each further one.
const CAREFUL: Span = Span::secs(4);

/// How long a device waits at least before a stop, so that tokens are there for the longest pauses.
fn careful(device: &DeviceView<'_>, now: Time, stops: u32) -> Span {
    let Some(limits) = device.device.budget else { return Span::ZERO };
    let earned = now.since(Time::ZERO).get() / limits.each.get().max(1);
    match u64::from(stops).saturating_sub(earned) {
        0 => Span::ZERO,
        ahead => CAREFUL * (1 << ahead.min(10)),
    }
}

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
        Self { config, ..Self::default() }
    }

    fn weights(&self, view: &View<'_>) -> Weights {
        match view.supply {
            Supply::Battery => self.config.battery,
            Supply::Powered => self.config.powered,
        }
    }

    /// Learns how long a device was idle; says since when it is.
    fn watch(&mut self, now: Time, id: DeviceId, device: &DeviceView<'_>) -> Option<Time> {
        let known = &mut self.known[id.index()];
        let rises = matches!(device.place, Place::Moving { to, .. } if device.device.power.serves(to));
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
    fn rest(&mut self, view: &View<'_>, id: DeviceId, since: Time, actions: &mut Vec<Action>) -> Option<Time> {
        let device = view.device(id);
        let state = device.serving()?;
        let known = &mut self.known[id.index()];
        let base = if self.config.battery.second == 0 { Power::ZERO } else { view.base };
        let (below, timeout) = known.idle.best(&device.device.power, state, base)?;
        let careful = careful(device, view.now, known.stops);
        let at = if known.is_leaving { view.now } else { since + timeout.max(careful) };
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
        known.stops += device.device.power.route(state, below).map_or(0, |route| route.cycles);
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
        let best = self.predictor.best(view, ask, weights);
        self.woken.extend(self.ghosts.hint(view, &self.predictor, ask, best, weights));
        self.known[best.1.index()].is_leaving = false;
        best.1
    }

    fn measured(&mut self, view: &View<'_>, measured: &Measured) {
        self.predictor.measured(view, measured);
    }

    fn decide(&mut self, view: &View<'_>, signal: Option<Signal>, actions: &mut Vec<Action>) -> Option<Time> {
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
                self.known[id.index()].is_leaving |= device.serving().is_none() && !device.is_wanted;
                actions.push(Action::Flush(id, trigger));
            } else if let Some(since) = since {
                again = sooner(again, self.rest(view, id, since, actions));
            }
        }
        again
    }
}
