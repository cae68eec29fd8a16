//! GreenFS: flash and server first, the local disk off; it starts for the reasons of section 2.2
//! and keeps turning for a while, so that starts stay few.
//!
//! Changes are sent to the server "and not to the disk" (2.2): it gets those that have gathered
//! when it is synchronized, and a disk that turns for another reason, or still turns after that, is
//! not written for each change that comes.

use super::choice::Predictor;
use super::flush::{self, FlushConfig};
use super::{Action, Ask, Measured, Policy, Signal, Trigger, View, sooner};
use crate::device::DeviceId;
use crate::profile::Kind;
use teal_types::{Span, Time};

/// Settings that the paper names without figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GreenFsConfig {
    /// So long a disk keeps turning after it was last used (2.4.2).
    pub linger: Span,
    /// A disk starts when so many bytes were read
    pub sustained_bytes: u64,
    /// within this time (2.2, condition 3).
    pub sustained: Span,
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
            linger: Span::secs(600),
            sustained_bytes: 256 << 20,
            sustained: Span::secs(60),
            flush,
        }
    }
}

/// The policy of the paper.
#[derive(Debug, Default)]
pub struct GreenFs {
    config: GreenFsConfig,
    predictor: Predictor,
    window: Time,
    bytes: u64,
    has_traffic: bool,
}

impl GreenFs {
    /// With these settings.
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
    fn choose(&mut self, view: &View<'_>, ask: &Ask) -> DeviceId {
        if view.now.since(self.window) > self.config.sustained {
            (self.window, self.bytes) = (view.now, 0);
        }
        self.bytes = self.bytes.saturating_add(ask.bytes);
        self.has_traffic = self.bytes >= self.config.sustained_bytes;
        // Flash, server, disk; a disk that turns anyway is as good as the server.
        let rank = |id: DeviceId| match view.device(id).device.kind {
            Kind::Flash => 0,
            Kind::Disk if view.device(id).serving().is_none() => 2,
            _ => 1,
        };
        ask.copies
            .iter()
            .min_by_key(|id| (rank(*id), *id))
            .expect("somebody holds what is read")
    }
    fn measured(&mut self, view: &View<'_>, measured: &Measured) {
        self.predictor.measured(view, measured);
    }
    fn decide(
        &mut self,
        view: &View<'_>,
        signal: Option<Signal>,
        actions: &mut Vec<Action>,
    ) -> Option<Time> {
        let mut again = None;
        for (id, known) in view.each() {
            let (mut trigger, later) = flush::due(view, id, &self.config.flush, signal);
            let power = &known.device.power;
            let is_disk = known.device.kind == Kind::Disk;
            if is_disk && self.has_traffic && !power.serves(known.heading()) {
                actions.push(Action::Go(id, power.nearest_serving(known.heading())));
                trigger = trigger.or((known.queued > 0).then_some(Trigger::Traffic));
            }
            actions.extend(trigger.map(|trigger| Action::Flush(id, trigger)));
            again = sooner(again, later);
        }
        let of = |known: &super::DeviceView<'_>| match known.device.kind {
            Kind::Disk => Some(self.config.linger),
            _ => None,
        };
        let timeouts: Vec<_> = view.devices.iter().map(of).collect();
        sooner(again, super::timeout::sleep_idle(&timeouts, view, actions))
    }
}
