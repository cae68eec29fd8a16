//! BlueFS: read from the cheapest, write to many (4.3), hints to self-tuning power management
//! (4.3.9).
//!
//! The paper leaves the sleeping to the operating system's STPM, a cost and benefit analysis that
//! it describes elsewhere. Here a device sleeps after its break-even time.

use super::choice::{CostWeights, Predictor};
use super::flush::{self, FlushConfig};
use super::ghost::Ghosts;
use super::timeout::sleep_idle;
use super::{
    MachineSignal, MachineView, MeasuredRead, Policy, PolicyAction, ReadRequest, earlier_time,
};
use crate::device::DeviceId;
use crate::profile::StateId;
use teal_types::{Time, TimeSpan};

/// The policy of the paper.
#[derive(Debug)]
pub struct BlueFs {
    weights: CostWeights,
    predictor: Predictor,
    ghosts: Ghosts,
    to_wake: Vec<(DeviceId, StateId)>,
}

impl BlueFs {
    /// Makes the policy with these weights of time and energy.
    pub fn new(weights: CostWeights) -> Self {
        Self {
            weights,
            predictor: Predictor::default(),
            ghosts: Ghosts::default(),
            to_wake: Vec::new(),
        }
    }
}

/// Returns each device's break-even time, from the state it serves in to its lowest.
pub(super) fn break_even_times(view: &MachineView<'_>) -> Vec<Option<TimeSpan>> {
    let of = |(_, known): (DeviceId, &super::DeviceView<'_>)| {
        let power = &known.device.power;
        power
            .round_trip(
                power.nearest_serving(known.target_state()),
                power.lowest_state(),
            )?
            .break_even()
    };
    view.devices_with_ids().map(of).collect()
}

impl Policy for BlueFs {
    fn name(&self) -> &'static str {
        "bluefs"
    }
    fn choose_device(&mut self, view: &MachineView<'_>, request: &ReadRequest) -> DeviceId {
        let best = self.predictor.best_device(view, request, self.weights);
        self.to_wake.extend(self.ghosts.hint_of_read(
            view,
            &self.predictor,
            request,
            best,
            self.weights,
        ));
        best.1
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
        let config = FlushConfig {
            age: (TimeSpan::from_secs(30), TimeSpan::from_secs(30)),
            quiet: None,
            is_silent: false,
            ..FlushConfig::default()
        };
        let mut again = sleep_idle(&break_even_times(view), view, actions);
        actions.extend(
            self.to_wake
                .drain(..)
                .map(|(id, state)| PolicyAction::Enter(id, state)),
        );
        for (id, _) in view.devices_with_ids() {
            let (trigger, later) = flush::flush_due(view, id, &config, signal);
            actions.extend(trigger.map(|trigger| PolicyAction::Flush(id, trigger)));
            again = earlier_time(again, later);
        }
        again
    }
}
