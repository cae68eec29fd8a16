//! Coda's static hierarchy as BlueFS measured it (5.5): the cache on the client before the server,
//! and each device with the power management it comes with.

use super::timeout::sleep_idle;
use super::{FlushTrigger, MachineSignal, MachineView, Policy, PolicyAction, ReadRequest};
use crate::device::DeviceId;
use crate::profile::DeviceKind;
use teal_types::{Time, TimeSpan};

/// Reads the first device of a fixed order that has the data; local caches are written at once, the
/// server when its queue is old enough.
#[derive(Debug)]
pub struct Coda {
    timeouts: Vec<Option<TimeSpan>>,
}

impl Coda {
    /// Makes the policy with a time-out for each device.
    pub fn new(timeouts: Vec<Option<TimeSpan>>) -> Self {
        Self { timeouts }
    }
}

impl Policy for Coda {
    fn name(&self) -> &'static str {
        "coda"
    }
    fn choose_device(&mut self, view: &MachineView<'_>, request: &ReadRequest) -> DeviceId {
        let rank = |id: DeviceId| (view.device(id).device.kind == DeviceKind::Link, id);
        request
            .copies
            .iter()
            .min_by_key(|id| rank(*id))
            .expect("somebody holds what is read")
    }
    fn decide_actions(
        &mut self,
        view: &MachineView<'_>,
        _signal: Option<MachineSignal>,
        actions: &mut Vec<PolicyAction>,
    ) -> Option<Time> {
        let local = view
            .devices_with_ids()
            .filter(|(_, known)| known.device.kind != DeviceKind::Link && known.queued > 0);
        actions.extend(local.map(|(id, _)| PolicyAction::Flush(id, FlushTrigger::Age)));
        sleep_idle(&self.timeouts, view, actions)
    }
}
