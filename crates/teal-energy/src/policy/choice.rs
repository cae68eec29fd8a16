//! The order in which devices are tried for a read: `w_t * latency + w_e * energy` (BlueFS 4.3.2).
//!
//! # Guarantees
//! 1. Predictions use the device's present power state, and count the energy of the whole machine:
//!    the device's, that of waking it, and the machine's while it waits.
//! 2. A device that costs less in both comes first; ties go to the lower number.

use super::{MachineView, ReadRequest};
use crate::device::DeviceId;
use crate::estimate::{Estimator, LOCAL, NETWORK};
use crate::power::DeviceActivity;
use crate::profile::{DeviceKind, StateId};
use teal_types::{Energy, Power, Span};

/// How much a second and a joule count, in any common unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostWeights {
    /// For a second that somebody waits.
    pub second: u32,
    /// For a joule.
    pub joule: u32,
}

impl CostWeights {
    /// BlueFS's default: a second counts as much as a joule.
    pub const EQUAL: Self = Self {
        second: 1,
        joule: 1,
    };

    /// The cost of a time and an energy.
    pub fn weighted_cost(self, cost: PredictedRead) -> WeightedCost {
        let time = u128::from(self.second) * u128::from(cost.latency.get());
        WeightedCost(time + u128::from(self.joule) * u128::from(cost.energy.get()) * 1000)
    }
}

/// Weighted seconds and joules, in billionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct WeightedCost(pub u128);

/// A predicted time and energy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PredictedRead {
    /// Until the data is there.
    pub latency: Span,
    /// Of the whole machine.
    pub energy: Energy,
}

/// Measured access times of all devices, and what follows from them.
#[derive(Debug, Clone, Default)]
pub struct Predictor {
    estimators: Vec<Estimator>,
}

impl Predictor {
    /// Takes in a measurement.
    pub fn add_measurement(&mut self, view: &MachineView<'_>, measured: &super::MeasuredRead) {
        while self.estimators.len() < view.devices.len() {
            let is_network = view.devices[self.estimators.len()].device.kind == DeviceKind::Link;
            self.estimators
                .push(Estimator::new(if is_network { NETWORK } else { LOCAL }));
        }
        if let Some(estimator) = self.estimators.get_mut(measured.device.index()) {
            estimator.add_measurement(
                measured.state,
                measured.bytes,
                measured.is_continued,
                measured.time,
            );
        }
    }

    /// A read served by a device that rests in `state`; `None` if it does not serve there.
    fn predict_in_state(
        &self,
        view: &MachineView<'_>,
        id: DeviceId,
        state: StateId,
        ask: &ReadRequest,
    ) -> Option<PredictedRead> {
        // Following blocks of a file are predicted as such on every device, as in BlueFS: whoever
        // serves the ones that come has them follow each other.
        let is_continued = !ask.continued.is_empty();
        let job = view
            .device(id)
            .device
            .read_job(state, ask.bytes, is_continued)?;
        let estimator = self.estimators.get(id.index());
        let measured =
            estimator.and_then(|known| known.predict_time(state, ask.bytes, is_continued));
        let latency = measured.unwrap_or(job.total_time());
        Some(PredictedRead {
            latency,
            energy: job.total_energy() + view.base * latency,
        })
    }

    /// A read served by a device as it is now.
    pub fn predict_now(
        &self,
        view: &MachineView<'_>,
        id: DeviceId,
        ask: &ReadRequest,
    ) -> PredictedRead {
        let known = view.device(id);
        let (from, wait) = match known.activity {
            DeviceActivity::Resting { state, .. } => (state, Span::ZERO),
            DeviceActivity::Moving {
                to: state, until, ..
            }
            | DeviceActivity::Working { state, until } => (state, until.since(view.now)),
        };
        let power = &known.device.power;
        let to = power.nearest_serving(from);
        let route = power.route(from, to).unwrap_or_default();
        let served = self.predict_in_state(view, id, to, ask).unwrap_or_default();
        let wait = wait + route.time;
        PredictedRead {
            latency: wait + served.latency,
            energy: route.energy + view.base * wait + served.energy,
        }
    }

    /// A read served by a device that is awake.
    pub fn predict_awake(
        &self,
        view: &MachineView<'_>,
        id: DeviceId,
        ask: &ReadRequest,
    ) -> PredictedRead {
        let known = view.device(id);
        self.predict_in_state(
            view,
            id,
            known.device.power.nearest_serving(known.target_state()),
            ask,
        )
        .unwrap_or_default()
    }

    /// A read served by a device in its best state, and that state.
    pub fn predict_ideal(
        &self,
        view: &MachineView<'_>,
        id: DeviceId,
        ask: &ReadRequest,
        weights: CostWeights,
    ) -> (WeightedCost, StateId) {
        let power = &view.device(id).device.power;
        let serving = power.state_ids().filter_map(|state| {
            let served = self.predict_in_state(view, id, state, ask)?;
            Some((weights.weighted_cost(served), state))
        });
        serving
            .min()
            .unwrap_or((WeightedCost(u128::MAX), power.lowest_state()))
    }

    /// The device that serves a read at the least cost as things are now, and that cost.
    pub fn best_device(
        &self,
        view: &MachineView<'_>,
        ask: &ReadRequest,
        weights: CostWeights,
    ) -> (WeightedCost, DeviceId) {
        let costs = ask
            .copies
            .iter()
            .map(|id| (weights.weighted_cost(self.predict_now(view, id, ask)), id));
        costs.min().expect("somebody holds what is read")
    }
}

/// Returns what it costs to take a device from a state to another: its energy, the machine's not
/// counted, since nobody waits.
pub(super) fn transition_cost(
    power: &crate::power::PowerModel,
    from: StateId,
    to: StateId,
    weights: CostWeights,
) -> WeightedCost {
    let route = power.route(from, to).unwrap_or_default();
    let back = power.route(to, from).unwrap_or_default();
    weights.weighted_cost(PredictedRead {
        latency: Span::ZERO,
        energy: route.energy + back.energy,
    })
}

/// Returns what waiting costs a machine with this base power.
pub fn waiting_cost(base: Power, time: Span, weights: CostWeights) -> WeightedCost {
    weights.weighted_cost(PredictedRead {
        latency: time,
        energy: base * time,
    })
}
