//! A fixed time-out before a device sleeps: what drives and systems offer.

use super::always_on::TIME_ONLY;
use super::choice::Predictor;
use super::{Action, Ask, Measured, Policy, Signal, View, sooner};
use crate::device::DeviceId;
use teal_types::{Span, Time};

/// Puts each device to its lowest state after so much idle time, and reads the device that answers
/// first.
#[derive(Debug)]
pub struct FixedTimeout {
    timeouts: Vec<Option<Span>>,
    predictor: Predictor,
}

impl FixedTimeout {
    /// A time-out for each device; `None`: never.
    pub fn new(timeouts: Vec<Option<Span>>) -> Self {
        Self {
            timeouts,
            predictor: Predictor::default(),
        }
    }
}

/// Sleeps what has been idle for its time-out; says when to ask again.
pub(super) fn sleep_idle(
    timeouts: &[Option<Span>],
    view: &View<'_>,
    actions: &mut Vec<Action>,
) -> Option<Time> {
    let mut again = None;
    for (id, known) in view.each() {
        let Some(&Some(timeout)) = timeouts.get(id.index()) else {
            continue;
        };
        let lowest = known.device.power.lowest();
        let (Some(idle), true) = (known.idle(view.now), known.heading() != lowest) else {
            continue;
        };
        if idle < timeout {
            again = sooner(again, Some(view.now + timeout.less(idle)));
        } else if known.may_stop {
            actions.push(Action::Go(id, lowest));
        } else {
            // No token: ask again when one may be there.
            again = sooner(again, Some(view.now + Span::secs(60)));
        }
    }
    again
}

impl Policy for FixedTimeout {
    fn name(&self) -> &'static str {
        "time-out"
    }
    fn choose(&mut self, view: &View<'_>, ask: &Ask) -> DeviceId {
        self.predictor.best(view, ask, TIME_ONLY).1
    }
    fn measured(&mut self, view: &View<'_>, measured: &Measured) {
        self.predictor.measured(view, measured);
    }
    fn decide(
        &mut self,
        view: &View<'_>,
        _signal: Option<Signal>,
        actions: &mut Vec<Action>,
    ) -> Option<Time> {
        sleep_idle(&self.timeouts, view, actions)
    }
}
