//! Our policy: the cheapest device now, ghost hints, learnt time-outs, and bursts that ride on
//! devices which are awake.
//!
//! # Guarantees
//! 1. A device is put to sleep only if the budget pays for its next start, and only after its queue
//!    was written, so that it is not woken again for changes that it could have taken while awake.
//! 2. A device that was woken for a burst goes down again after it, unless a read comes.

use super::awake_value::AwakeValue;
use super::choice::{CostWeights, PredictedRead, Predictor, transition_cost};
use super::flush::{self, FlushConfig};
use super::ghost::Ghosts;
use super::sleep::IdleTimes;
use super::{
    DeviceView, FlushTrigger, MachineSignal, MachineView, MeasuredRead, Policy, PolicyAction,
    PowerSupply, ReadRequest, earlier_time,
};
use crate::device::DeviceId;
use crate::power::{DeviceActivity, PowerModel};
use crate::profile::StateId;
use teal_types::{Energy, Power, Time, TimeSpan};

/// The settings of the policy: weights, and the times of bursts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TealConfig {
    /// On battery.
    pub battery: CostWeights,
    /// When powered.
    pub powered: CostWeights,
    /// When queues are written.
    pub flush: FlushConfig,
}

impl Default for TealConfig {
    fn default() -> Self {
        let powered = CostWeights {
            second: 3,
            joule: 1,
        };
        Self {
            battery: CostWeights::EQUAL,
            powered,
            flush: FlushConfig::default(),
        }
    }
}

/// The policy's knowledge of one device.
#[derive(Debug, Clone, Default)]
struct TrackedDevice {
    idle_times: IdleTimes,
    idle_since: Option<Time>,
    awake_value: AwakeValue,
    /// The last time-out: how long it stays awake for nothing.
    timeout: TimeSpan,
    /// Is true if it was woken for a burst, or told to write before it sleeps: it goes down as soon
    /// as nothing is left.
    is_leaving: bool,
}

/// Returns the most that it costs to find a device in a state: the way there and back, and the wait
/// for it.
fn start_cost(power: &PowerModel, awake: StateId, state: StateId, base: Power) -> Energy {
    let trip = power
        .round_trip(awake, state)
        .map_or(Energy::ZERO, |trip| trip.energy);
    trip + base * power.route(state, awake).unwrap_or_default().time
}

/// Returns the least time that a device that has used tokens stays awake, so that some are left for
/// the longest pauses: until staying awake has cost [`STARTS`] starts with the wait for them. Each
/// token that is used is missing for a longer pause.
fn token_patience(
    device: &DeviceView<'_>,
    awake: StateId,
    below: StateId,
    start: Energy,
) -> TimeSpan {
    let used = device.device.budget.map_or(0, |limits| {
        u64::from(limits.burst).saturating_sub(device.tokens)
    });
    let power = &device.device.power;
    let saved = power
        .state_power(awake)
        .saturating_sub(power.state_power(below))
        .get()
        .max(1);
    if used == 0 {
        TimeSpan::ZERO
    } else {
        TimeSpan::from_nanos((start * STARTS).get().saturating_mul(1_000_000_000) / saved)
    }
}

/// The number of starts that staying awake may cost before a device sleeps that has used tokens
/// (see [`token_patience`]).
const STARTS: u64 = 3;

/// Our policy.
#[derive(Debug, Default)]
pub struct Teal {
    config: TealConfig,
    predictor: Predictor,
    ghosts: Ghosts,
    tracked: Vec<TrackedDevice>,
    to_wake: Vec<(DeviceId, StateId)>,
}

impl Teal {
    /// Makes the policy with these settings.
    pub fn new(config: TealConfig) -> Self {
        Self {
            config,
            ..Self::default()
        }
    }

    fn current_weights(&self, view: &MachineView<'_>) -> CostWeights {
        match view.supply {
            PowerSupply::Battery => self.config.battery,
            PowerSupply::Powered => self.config.powered,
        }
    }

    /// Values each device that holds the data of a read: the loss if it were asleep.
    fn value_devices(&mut self, view: &MachineView<'_>, request: &ReadRequest) {
        for id in request.copies.iter() {
            let power = &view.device(id).device.power;
            let (awake, lowest) = (
                power.nearest_serving(view.device(id).target_state()),
                power.lowest_state(),
            );
            // A device that serves in its lowest state is never found asleep.
            if power.serves(lowest) {
                continue;
            }
            let start = start_cost(power, awake, lowest, view.base);
            let others = request.copies.without_device(id);
            let other = others
                .iter()
                .map(|other| self.predictor.predict_now(view, other, request).energy)
                .min();
            // Without another copy the whole start is lost.
            let more = other.map_or(start, |other| {
                other.saturating_sub(self.predictor.predict_awake(view, id, request).energy)
            });
            // While others serve, no program waits for the start.
            let trip = power
                .round_trip(awake, lowest)
                .map_or(Energy::ZERO, |trip| trip.energy);
            let most = if others.is_empty() { start } else { trip };
            // Requests closer together than break-even are one visit: the device would have stayed
            // awake between them.
            let apart = power
                .round_trip(awake, lowest)
                .and_then(|trip| trip.break_even())
                .unwrap_or_default();
            self.tracked[id.index()]
                .awake_value
                .add_request(view.now, more, apart, most);
        }
    }

    /// Returns the energy that a device spends besides if it serves now: it goes to sleep so much
    /// later, or has to go to sleep again.
    fn linger_energy(&self, view: &MachineView<'_>, id: DeviceId) -> Energy {
        let device = view.device(id);
        let power = &device.device.power;
        let lowest = power.lowest_state();
        let awake = power.nearest_serving(device.target_state());
        let over = power
            .state_power(awake)
            .saturating_sub(power.state_power(lowest));
        let timeout = self.tracked[id.index()].timeout;
        match device.activity {
            DeviceActivity::Resting { state, .. } if power.serves(state) => {
                over * device.idle_time(view.now).unwrap_or_default().min(timeout)
            }
            // It sleeps: it would be awake for the whole time-out, and would have to go down again.
            DeviceActivity::Resting { .. } => {
                over * timeout
                    + power
                        .route(awake, lowest)
                        .map_or(Energy::ZERO, |route| route.energy)
            }
            _ => Energy::ZERO,
        }
    }

    /// Learns the idle times of a device, and returns the time since which it is idle.
    fn track_idle(&mut self, now: Time, id: DeviceId, device: &DeviceView<'_>) -> Option<Time> {
        let known = &mut self.tracked[id.index()];
        // A device on its way up is wanted, even before it serves.
        let power = &device.device.power;
        let rises = match device.activity {
            DeviceActivity::Moving { to, .. } => power.serves(to),
            _ => false,
        };
        let is_busy =
            device.is_wanted || rises || matches!(device.activity, DeviceActivity::Working { .. });
        if is_busy {
            // A burst of ours says nothing about when the device will be wanted.
            if let Some(since) = known.idle_since.take()
                && !known.is_leaving
            {
                known.idle_times.add_idle_time(now.since(since));
            }
            return None;
        }
        known.idle_since = Some(known.idle_since.unwrap_or(now));
        known.idle_since
    }

    /// Puts an idle device to sleep when its time has come, and returns the time to request again.
    fn plan_sleep(
        &mut self,
        view: &MachineView<'_>,
        id: DeviceId,
        since: Time,
        actions: &mut Vec<PolicyAction>,
    ) -> Option<Time> {
        let device = view.device(id);
        let state = device.serving_state()?;
        let known = &mut self.tracked[id.index()];
        let power = &device.device.power;
        let base = if self.config.battery.second == 0 {
            Power::ZERO
        } else {
            view.base
        };
        let lost = |below| {
            let start = start_cost(power, state, below, base);
            let trip = power
                .round_trip(state, below)
                .map_or(Energy::ZERO, |trip| trip.energy);
            if power.serves(below) {
                start
            } else {
                known.awake_value.expected_loss(trip, start)
            }
        };
        let (below, timeout) = known.idle_times.best_state(power, state, lost)?;
        known.timeout = timeout.max(token_patience(
            device,
            state,
            below,
            start_cost(power, state, below, base),
        ));
        let at = if known.is_leaving {
            view.now
        } else {
            since + known.timeout
        };
        // The time-out is not over yet.
        if view.now < at {
            return Some(at);
        }
        // There is no token for the next start: request again in a minute.
        if !device.may_stop {
            return Some(view.now + TimeSpan::from_secs(60));
        }
        // The queue is written before the device goes down, so that age does not wake it again
        // soon.
        if device.queued > 0 {
            actions.push(PolicyAction::Flush(id, FlushTrigger::Awake));
            known.is_leaving = true;
            return None;
        }
        debug_assert!(
            view.now >= at && device.may_stop && device.queued == 0,
            "nothing keeps it awake"
        );
        known.is_leaving = false;
        actions.push(PolicyAction::Enter(id, below));
        None
    }
}

impl Policy for Teal {
    fn name(&self) -> &'static str {
        "teal"
    }

    fn choose_device(&mut self, view: &MachineView<'_>, request: &ReadRequest) -> DeviceId {
        // Devices may be attached while the policy runs.
        let weights = self.current_weights(view);
        self.tracked
            .resize_with(view.devices.len(), TrackedDevice::default);
        self.value_devices(view, request);
        let cost = |id| {
            let now = self.predictor.predict_now(view, id, request);
            let all = PredictedRead {
                energy: now.energy + self.linger_energy(view, id),
                ..now
            };
            (weights.weighted_cost(all), weights.weighted_cost(now), id)
        };
        let (_, cost, best) = request
            .copies
            .iter()
            .map(cost)
            .min()
            .expect("somebody holds what is read");
        // The hints are taken out, since the closures below borrow the policy.
        let mut ghosts = std::mem::take(&mut self.ghosts);
        let ideals = || {
            request
                .copies
                .iter()
                .map(|id| (self.predictor.predict_ideal(view, id, request, weights), id))
        };
        let start = |id, state| {
            transition_cost(
                &view.device(id).device.power,
                view.device(id).target_state(),
                state,
                weights,
            )
        };
        // The start of the best device limits the others that may lose: waking them costs no more.
        let dearest = ideals()
            .min()
            .map(|((_, state), id)| start(id, state))
            .unwrap_or_default();
        // Devices that start more cheaply than the best one lose as well: a radio is woken long
        // before a disk that is a little better.
        for (ideal, id) in ideals().filter(|((_, state), id)| start(*id, *state) <= dearest) {
            self.to_wake.extend(ghosts.add_loss(
                view,
                (ideal, id),
                cost,
                weights,
                self.linger_energy(view, id),
            ));
        }
        self.ghosts = ghosts;
        self.tracked[best.index()].is_leaving = false;
        best
    }

    fn observe_read(&mut self, view: &MachineView<'_>, measured: &MeasuredRead) {
        self.predictor.add_measurement(view, measured);
    }

    fn decide_actions(
        &mut self,
        view: &MachineView<'_>,
        signal: Option<MachineSignal>,
        actions: &mut Vec<PolicyAction>,
    ) -> Option<Time> {
        self.tracked
            .resize_with(view.devices.len(), TrackedDevice::default);
        let mut again = None;
        for (id, state) in self.to_wake.drain(..) {
            self.tracked[id.index()].is_leaving = false;
            actions.push(PolicyAction::Enter(id, state));
        }
        for (id, device) in view.devices_with_ids() {
            let since = self.track_idle(view.now, id, device);
            let (trigger, later) = flush::flush_due(view, id, &self.config.flush, signal);
            again = earlier_time(again, later);
            if let Some(trigger) = trigger {
                self.tracked[id.index()].is_leaving |=
                    device.serving_state().is_none() && !device.is_wanted;
                actions.push(PolicyAction::Flush(id, trigger));
            } else if let Some(since) = since {
                again = earlier_time(again, self.plan_sleep(view, id, since, actions));
            }
        }
        again
    }
}
