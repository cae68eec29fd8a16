//! BlueFS: read from the cheapest, write to many (4.3), hints to self-tuning power management
//! (4.3.9).
//!
//! The paper leaves the sleeping to the operating system's STPM, a cost and benefit analysis that
//! it describes elsewhere. Here a device sleeps after its break-even time.

use super::choice::{Predictor, Weights};
use super::flush::{self, FlushConfig};
use super::ghost::Ghosts;
use super::timeout::sleep_idle;
use super::{Action, Ask, Measured, Policy, Signal, View, sooner};
use crate::device::DeviceId;
use crate::profile::StateId;
use teal_types::{Span, Time};

/// The policy of the paper.
#[derive(Debug)]
pub struct BlueFs {
    weights: Weights,
    predictor: Predictor,
    ghosts: Ghosts,
    woken: Vec<(DeviceId, StateId)>,
}

impl BlueFs {
    /// With these weights of time and energy.
    pub fn new(weights: Weights) -> Self {
        Self {
            weights,
            predictor: Predictor::default(),
            ghosts: Ghosts::default(),
            woken: Vec::new(),
        }
    }
}

/// Each device's break-even time, from the state it serves in to its lowest.
pub(super) fn break_even(view: &View<'_>) -> Vec<Option<Span>> {
    let of = |(_, known): (DeviceId, &super::DeviceView<'_>)| {
        let power = &known.device.power;
        power
            .round_trip(power.nearest_serving(known.heading()), power.lowest())?
            .break_even()
    };
    view.each().map(of).collect()
}

impl Policy for BlueFs {
    fn name(&self) -> &'static str {
        "bluefs"
    }
    fn choose(&mut self, view: &View<'_>, ask: &Ask) -> DeviceId {
        let best = self.predictor.best(view, ask, self.weights);
        self.woken.extend(
            self.ghosts
                .hint(view, &self.predictor, ask, best, self.weights),
        );
        best.1
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
        let config = FlushConfig {
            age: (Span::secs(30), Span::secs(30)),
            quiet: None,
            is_silent: false,
            ..FlushConfig::default()
        };
        let mut again = sleep_idle(&break_even(view), view, actions);
        actions.extend(
            self.woken
                .drain(..)
                .map(|(id, state)| Action::Go(id, state)),
        );
        for (id, _) in view.each() {
            let (trigger, later) = flush::due(view, id, &config, signal);
            actions.extend(trigger.map(|trigger| Action::Flush(id, trigger)));
            again = sooner(again, later);
        }
        again
    }
}
