//! A fixed time-out before a device sleeps: what drives and systems offer.

use super::always_on::TIME_ONLY;
use super::choice::Predictor;
use super::{
    MachineSignal, MachineView, MeasuredRead, Policy, PolicyAction, ReadRequest, earlier_time,
};
use crate::device::DeviceId;
use teal_types::{Time, TimeSpan};

/// Puts each device to its lowest state after so much idle time, and reads the device that answers
/// first.
#[derive(Debug)]
pub struct FixedTimeout {
    timeouts: Vec<Option<TimeSpan>>,
    predictor: Predictor,
}

impl FixedTimeout {
    /// Makes the policy with a time-out for each device; `None` if it never sleeps.
    pub fn new(timeouts: Vec<Option<TimeSpan>>) -> Self {
        Self {
            timeouts,
            predictor: Predictor::default(),
        }
    }
}

/// Puts devices to sleep that have been idle for their time-outs, and returns the time to request
/// again.
pub(super) fn sleep_idle(
    timeouts: &[Option<TimeSpan>],
    view: &MachineView<'_>,
    actions: &mut Vec<PolicyAction>,
) -> Option<Time> {
    let mut again = None;
    for (id, known) in view.devices_with_ids() {
        let Some(&Some(timeout)) = timeouts.get(id.index()) else {
            continue;
        };
        let lowest = known.device.power.lowest_state();
        let (Some(idle), true) = (known.idle_time(view.now), known.target_state() != lowest) else {
            continue;
        };
        if idle < timeout {
            again = earlier_time(again, Some(view.now + timeout.saturating_sub(idle)));
        } else if known.may_stop {
            actions.push(PolicyAction::Enter(id, lowest));
        } else {
            // No token: request again when one may be there.
            again = earlier_time(again, Some(view.now + TimeSpan::from_secs(60)));
        }
    }
    again
}

impl Policy for FixedTimeout {
    fn name(&self) -> &'static str {
        "time-out"
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
        sleep_idle(&self.timeouts, view, actions)
    }
}
