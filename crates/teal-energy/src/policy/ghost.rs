//! Ghost hints: the cost that a sleeping device would have saved had it been awake (BlueFS 4.3.9).
//! When enough is lost, it is woken.
//!
//! # Guarantees
//! 1. *Ski rental*: a device is woken when the cost that was lost equals what waking it costs; in
//!    the worst case twice the least possible cost is spent.
//! 2. Losses that lie apart are not added up: after a pause in which sleeping paid, counting starts
//!    again.
//! 3. While a device wakes up, the others go on serving.

use super::choice::{CostWeights, PredictedRead, Predictor, WeightedCost, transition_cost};
use super::{MachineView, ReadRequest};
use crate::device::DeviceId;
use crate::profile::StateId;
use teal_types::{Energy, Time, TimeSpan};

#[derive(Debug, Clone, Copy, Default)]
struct LostCost {
    cost: WeightedCost,
    last: Time,
}

/// The cost that was lost by device.
#[derive(Debug, Clone, Default)]
pub struct Ghosts {
    lost: Vec<LostCost>,
}

impl Ghosts {
    /// Takes note of a read that is about to be served by `served`. Returns the device to wake and
    /// the state to wake it to, once its losses are worth it. Only the device that would be best of
    /// all counts, as in the paper.
    pub fn hint_of_read(
        &mut self,
        view: &MachineView<'_>,
        predictor: &Predictor,
        request: &ReadRequest,
        served: (WeightedCost, DeviceId),
        weights: CostWeights,
    ) -> Option<(DeviceId, StateId)> {
        let ideals = request
            .copies
            .iter()
            .map(|id| (predictor.predict_ideal(view, id, request, weights), id));
        let (ideal, id) = ideals.min()?;
        self.add_loss(view, (ideal, id), served.0, weights, Energy::ZERO)
    }

    /// Adds the loss of a device that would have served the read at an `ideal` cost in a state.
    /// Returns the device to wake once its losses are worth its start and the energy for which it
    /// `lingers` awake afterwards.
    pub fn add_loss(
        &mut self,
        view: &MachineView<'_>,
        ((ideal, state), id): ((WeightedCost, StateId), DeviceId),
        served: WeightedCost,
        weights: CostWeights,
        lingers: Energy,
    ) -> Option<(DeviceId, StateId)> {
        self.lost.resize(view.devices.len(), LostCost::default());
        let heading = view.device(id).target_state();
        // The device is the one in use, in its best state or on its way there: nothing is lost.
        // The device is in use already, or would have been no better.
        if heading == state || ideal >= served {
            return None;
        }
        let power = &view.device(id).device.power;
        // A pause longer than break-even means that sleeping was right: earlier losses do not count
        // any more.
        let forgets = power
            .round_trip(state, heading)
            .and_then(|trip| trip.break_even())
            .unwrap_or(TimeSpan::MAX);
        let lost = &mut self.lost[id.index()];
        if view.now.since(lost.last) > forgets {
            lost.cost = WeightedCost(0);
        }
        lost.last = view.now;
        // The loss is the difference to the device that serves instead.
        lost.cost.0 += served.0 - ideal.0;
        let lingers = weights.weighted_cost(PredictedRead {
            latency: TimeSpan::ZERO,
            energy: lingers,
        });
        // Ski rental: wake when the losses equal the price of waking.
        if lost.cost.0 < transition_cost(power, heading, state, weights).0 + lingers.0 {
            return None;
        }
        lost.cost = WeightedCost(0);
        Some((id, state))
    }
}
