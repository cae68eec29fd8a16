//! GreenFS: flash and server first, the local disk off; it starts for the reasons of section 2.2
//! and keeps turning for a while, so that starts stay few.
//!
//! Changes are sent to the server "and not to the disk" (2.2): it gets those that have gathered
//! when it is synchronized, and a disk that turns for another reason, or still turns after that, is
//! not written for each change that comes.

use super::choice::Predictor;
use super::flush::{self, FlushConfig};
use super::{
    FlushTrigger, MachineSignal, MachineView, MeasuredRead, Policy, PolicyAction, ReadRequest,
    earlier_time,
};
use crate::device::DeviceId;
use crate::profile::DeviceKind;
use teal_types::{Time, TimeSpan};

/// Settings that the paper names without figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GreenFsConfig {
    /// The time that a disk keeps turning after it was last used (2.4.2).
    pub linger: TimeSpan,
    /// A disk starts when so many bytes were read ...
    pub sustained_bytes: u64,
    /// ... within this time (2.2, condition 3).
    pub sustained: TimeSpan,
    /// Synchronising with the disk (2.2, condition 4).
    pub flush: FlushConfig,
}

impl Default for GreenFsConfig {
    fn default() -> Self {
        let flush = FlushConfig {
            is_silent: false,
            ..FlushConfig::default()
        };
        Self {
            linger: TimeSpan::from_secs(600),
            sustained_bytes: 256 << 20,
            sustained: TimeSpan::from_secs(60),
            flush,
        }
    }
}

/// The policy of the paper.
#[derive(Debug, Default)]
pub struct GreenFs {
    config: GreenFsConfig,
    predictor: Predictor,
    window_start: Time,
    window_bytes: u64,
    has_traffic: bool,
}

impl GreenFs {
    /// Makes the policy with these settings.
    pub fn new(config: GreenFsConfig) -> Self {
        Self {
            config,
            ..Self::default()
        }
    }
}

impl Policy for GreenFs {
    fn name(&self) -> &'static str {
        "greenfs"
    }
    fn choose_device(&mut self, view: &MachineView<'_>, request: &ReadRequest) -> DeviceId {
        // The window of sustained traffic begins anew.
        if view.now.since(self.window_start) > self.config.sustained {
            (self.window_start, self.window_bytes) = (view.now, 0);
        }
        self.window_bytes = self.window_bytes.saturating_add(request.bytes);
        self.has_traffic = self.window_bytes >= self.config.sustained_bytes;
        // Flash, server, disk; a disk that turns anyway is as good as the server.
        let rank = |id: DeviceId| match view.device(id).device.kind {
            DeviceKind::Flash => 0,
            DeviceKind::Disk if view.device(id).serving_state().is_none() => 2,
            _ => 1,
        };
        request
            .copies
            .iter()
            .min_by_key(|id| (rank(*id), *id))
            .expect("somebody holds what is read")
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
        let mut again = None;
        for (id, known) in view.devices_with_ids() {
            let (mut trigger, later) = flush::flush_due(view, id, &self.config.flush, signal);
            let power = &known.device.power;
            let is_disk = known.device.kind == DeviceKind::Disk;
            // Condition 3: sustained traffic wakes the disk, which then takes its queue as well.
            if is_disk && self.has_traffic && !power.serves(known.target_state()) {
                actions.push(PolicyAction::Enter(
                    id,
                    power.nearest_serving(known.target_state()),
                ));
                trigger = trigger.or((known.queued > 0).then_some(FlushTrigger::Traffic));
            }
            actions.extend(trigger.map(|trigger| PolicyAction::Flush(id, trigger)));
            again = earlier_time(again, later);
        }
        let of = |known: &super::DeviceView<'_>| match known.device.kind {
            DeviceKind::Disk => Some(self.config.linger),
            _ => None,
        };
        let timeouts: Vec<_> = view.devices.iter().map(of).collect();
        earlier_time(again, super::timeout::sleep_idle(&timeouts, view, actions))
    }
}
