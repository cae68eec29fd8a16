//! Everything stays awake: what machines do where nobody set anything.

use super::choice::{Predictor, Weights};
use super::{Action, Ask, Measured, Policy, Signal, View};
use crate::device::DeviceId;
use teal_types::Time;

/// Never puts a device to sleep; reads the device that answers first.
#[derive(Debug, Default)]
pub struct AlwaysOn {
    predictor: Predictor,
}

/// Only time counts.
pub(super) const TIME_ONLY: Weights = Weights {
    second: 1,
    joule: 0,
};

impl Policy for AlwaysOn {
    fn name(&self) -> &'static str {
        "always-on"
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
        for (id, known) in view.each() {
            let power = &known.device.power;
            // The quickest serving state: of those that serve, the one that draws most.
            let best = power
                .ids()
                .filter(|state| power.serves(*state))
                .max_by_key(|state| power.power(*state));
            actions.extend(
                best.filter(|best| *best != known.heading())
                    .map(|best| Action::Go(id, best)),
            );
        }
        None
    }
}
