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
use teal_types::{Energy, Power, TimeSpan};

/// The weights of a second and a joule, in any common unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostWeights {
    /// The weight of a second of waiting.
    pub second: u32,
    /// The weight of a joule.
    pub joule: u32,
}

impl CostWeights {
    /// BlueFS's default: a second counts as much as a joule.
    pub const EQUAL: Self = Self {
        second: 1,
        joule: 1,
    };

    /// Returns the weighted cost of a time and an energy.
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
    /// The time until the data is there.
    pub latency: TimeSpan,
    /// The energy of the whole machine.
    pub energy: Energy,
}

/// Predicts reads from the measured access times of all devices.
#[derive(Debug, Clone, Default)]
pub struct Predictor {
    estimators: Vec<Estimator>,
}

impl Predictor {
    /// Adds a measurement.
    pub fn add_measurement(&mut self, view: &MachineView<'_>, measured: &super::MeasuredRead) {
        // Estimators are made as devices appear; a network follows changes faster than a disk.
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

    /// Predicts a read from a device that rests in `state`; `None` if it does not serve there.
    fn predict_in_state(
        &self,
        view: &MachineView<'_>,
        id: DeviceId,
        state: StateId,
        request: &ReadRequest,
    ) -> Option<PredictedRead> {
        // Following blocks of a file are predicted as such on every device, as in BlueFS: any
        // device that serves the next ones has them follow each other.
        let is_continued = !request.continued.is_empty();
        let job = view
            .device(id)
            .device
            .read_job(state, request.bytes, is_continued)?;
        let estimator = self.estimators.get(id.index());
        let measured =
            estimator.and_then(|known| known.predict_time(state, request.bytes, is_continued));
        // The model stands in until something was measured in this state.
        let latency = measured.unwrap_or(job.total_time());
        Some(PredictedRead {
            latency,
            energy: job.total_energy() + view.base * latency,
        })
    }

    /// Predicts a read from a device as it is now.
    pub fn predict_now(
        &self,
        view: &MachineView<'_>,
        id: DeviceId,
        request: &ReadRequest,
    ) -> PredictedRead {
        let known = view.device(id);
        // A device that moves or works can serve only after that.
        let (from, wait) = match known.activity {
            DeviceActivity::Resting { state, .. } => (state, TimeSpan::ZERO),
            DeviceActivity::Moving {
                to: state, until, ..
            }
            | DeviceActivity::Working { state, until } => (state, until.since(view.now)),
        };
        let power = &known.device.power;
        let to = power.nearest_serving(from);
        // The cheapest serving state is woken on the way; its energy and its time belong to this
        // read.
        let route = power.route(from, to).unwrap_or_default();
        let served = self
            .predict_in_state(view, id, to, request)
            .unwrap_or_default();
        let wait = wait + route.time;
        PredictedRead {
            latency: wait + served.latency,
            energy: route.energy + view.base * wait + served.energy,
        }
    }

    /// Predicts a read from a device, were it awake.
    pub fn predict_awake(
        &self,
        view: &MachineView<'_>,
        id: DeviceId,
        request: &ReadRequest,
    ) -> PredictedRead {
        let known = view.device(id);
        self.predict_in_state(
            view,
            id,
            known.device.power.nearest_serving(known.target_state()),
            request,
        )
        .unwrap_or_default()
    }

    /// Predicts a read from a device in its best state, and returns that state with the cost.
    pub fn predict_ideal(
        &self,
        view: &MachineView<'_>,
        id: DeviceId,
        request: &ReadRequest,
        weights: CostWeights,
    ) -> (WeightedCost, StateId) {
        let power = &view.device(id).device.power;
        let serving = power.state_ids().filter_map(|state| {
            let served = self.predict_in_state(view, id, state, request)?;
            Some((weights.weighted_cost(served), state))
        });
        serving
            .min()
            .unwrap_or((WeightedCost(u128::MAX), power.lowest_state()))
    }

    /// Returns the device that serves a read at the least cost as things are now, and that cost.
    pub fn best_device(
        &self,
        view: &MachineView<'_>,
        request: &ReadRequest,
        weights: CostWeights,
    ) -> (WeightedCost, DeviceId) {
        let costs = request.copies.iter().map(|id| {
            (
                weights.weighted_cost(self.predict_now(view, id, request)),
                id,
            )
        });
        costs.min().expect("somebody holds what is read")
    }
}

/// Returns the cost of taking a device from a state to another and back. The machine's energy is
/// not counted, since no program waits meanwhile.
pub(super) fn transition_cost(
    power: &crate::power::PowerModel,
    from: StateId,
    to: StateId,
    weights: CostWeights,
) -> WeightedCost {
    let route = power.route(from, to).unwrap_or_default();
    let back = power.route(to, from).unwrap_or_default();
    weights.weighted_cost(PredictedRead {
        latency: TimeSpan::ZERO,
        energy: route.energy + back.energy,
    })
}

/// Returns the cost of waiting on a machine with this base power.
pub fn waiting_cost(base: Power, time: TimeSpan, weights: CostWeights) -> WeightedCost {
    weights.weighted_cost(PredictedRead {
        latency: time,
        energy: base * time,
    })
}
