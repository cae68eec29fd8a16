//! Everything stays awake, as on machines without any settings.

use super::choice::{CostWeights, Predictor};
use super::{MachineSignal, MachineView, MeasuredRead, Policy, PolicyAction, ReadRequest};
use crate::device::DeviceId;
use teal_types::Time;

/// Never puts a device to sleep; reads the device that answers first.
#[derive(Debug, Default)]
pub struct AlwaysOn {
    predictor: Predictor,
}

/// The weights of a policy to which only time counts.
pub(super) const TIME_ONLY: CostWeights = CostWeights {
    second: 1,
    joule: 0,
};

impl Policy for AlwaysOn {
    fn name(&self) -> &'static str {
        "always-on"
    }
    fn choose_device(&mut self, view: &MachineView<'_>, request: &ReadRequest) -> DeviceId {
        self.predictor.best_device(view, request, TIME_ONLY).1
    }
    fn observe_read(&mut self, view: &MachineView<'_>, measured: &MeasuredRead) {
        self.predictor.add_measurement(view, measured);
    }
    fn decide_actions(
        &mut self,
        view: &MachineView<'_>,
        _signal: Option<MachineSignal>,
        actions: &mut Vec<PolicyAction>,
    ) -> Option<Time> {
        for (id, known) in view.devices_with_ids() {
            let power = &known.device.power;
            // The quickest serving state: of those that serve, the one that draws most.
            let best = power
                .state_ids()
                .filter(|state| power.serves(*state))
                .max_by_key(|state| power.state_power(*state));
            actions.extend(
                best.filter(|best| *best != known.target_state())
                    .map(|best| PolicyAction::Enter(id, best)),
            );
        }
        None
    }
}
