//! Coda's static hierarchy as BlueFS measured it (5.5): the cache on the client before the server,
//! and each device with the power management it comes with.

use super::timeout::sleep_idle;
use super::{Action, Ask, Policy, Signal, Trigger, View};
use crate::device::DeviceId;
use crate::profile::Kind;
use teal_types::{Span, Time};

/// Reads the first device of a fixed order that has the data; local caches are written at once, the
/// server when its queue is old enough.
#[derive(Debug)]
pub struct Coda {
    timeouts: Vec<Option<Span>>,
}

impl Coda {
    /// With a time-out for each device.
    pub fn new(timeouts: Vec<Option<Span>>) -> Self {
        Self { timeouts }
    }
}

impl Policy for Coda {
    fn name(&self) -> &'static str {
        "coda"
    }
    fn choose(&mut self, view: &View<'_>, ask: &Ask) -> DeviceId {
        let rank = |id: DeviceId| (view.device(id).device.kind == Kind::Link, id);
        ask.copies
            .iter()
            .min_by_key(|id| rank(*id))
            .expect("somebody holds what is read")
    }
    fn decide(
        &mut self,
        view: &View<'_>,
        _signal: Option<Signal>,
        actions: &mut Vec<Action>,
    ) -> Option<Time> {
        let local = view
            .each()
            .filter(|(_, known)| known.device.kind != Kind::Link && known.queued > 0);
        actions.extend(local.map(|(id, _)| Action::Flush(id, Trigger::Age)));
        sleep_idle(&self.timeouts, view, actions)
    }
}
