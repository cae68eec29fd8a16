//! One decision in words: what the policy saw, the costs it compared, what it chose and why.
//!
//! # Guarantees
//! 1. *Watching changes nothing*: a watched policy decides as it does unwatched.
//! 2. Costs are computed by the policies' own [`Predictor`], which has seen the same measurements.
//!
//! Decisions are numbered from 1 in the order in which they are made: each read that a device is
//! chosen for, and each time at which the policy does something with a device. That it does nothing
//! is no decision.

use super::machine::Machine;
use super::policies::Named;
use teal_energy::device::DeviceId;
use teal_energy::policy::choice::{Predictor, Weights};
use teal_energy::policy::teal::TealConfig;
use teal_energy::policy::{Action, Ask, DeviceView, Measured, Policy, Signal, Supply, View};
use teal_energy::power::Place;
use teal_types::{Span, Time};

/// Which decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// By its number, from 1.
    Number(u64),
    /// The first at this time or later.
    At(Time),
}

/// A decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// Its number.
    pub number: u64,
    /// When it was made.
    pub at: Time,
    /// What was seen, compared, chosen, and why.
    pub lines: Vec<String>,
}

/// A policy that is watched.
pub(super) struct Watched<'a> {
    inner: &'a mut dyn Policy,
    named: &'a Named,
    machine: &'a Machine,
    which: Which,
    predictor: Predictor,
    count: u64,
    found: Option<Explained>,
}

impl<'a> Watched<'a> {
    pub(super) fn new(
        inner: &'a mut dyn Policy,
        named: &'a Named,
        machine: &'a Machine,
        which: Which,
    ) -> Self {
        Self {
            inner,
            named,
            machine,
            which,
            predictor: Predictor::default(),
            count: 0,
            found: None,
        }
    }

    pub(super) fn found(self) -> Option<Explained> {
        self.found
    }

    /// Counts a decision; says whether it is the one.
    fn is_it(&mut self, now: Time) -> bool {
        self.count += 1;
        let is_it = match self.which {
            Which::Number(number) => self.count == number,
            Which::At(at) => now >= at,
        };
        is_it && self.found.is_none()
    }

    /// Returns what a second and a joule count for this policy; `None`: it goes by a fixed order.
    fn weights(&self, view: &View<'_>) -> Option<Weights> {
        Some(match self.named {
            Named::AlwaysOn | Named::TimeOut(_) | Named::BestTimeOut => Weights {
                second: 1,
                joule: 0,
            },
            Named::BlueFs => Weights::EQUAL,
            Named::Teal if view.supply == Supply::Powered => TealConfig::default().powered,
            Named::Teal => TealConfig::default().battery,
            Named::Coda(_) | Named::GreenFs => return None,
        })
    }

    fn label(&self, id: DeviceId) -> &str {
        self.machine
            .parts
            .get(id.index())
            .map_or("?", |part| part.label.as_str())
    }

    fn read(&self, view: &View<'_>, ask: &Ask, chosen: DeviceId) -> Vec<String> {
        let weights = self.weights(view);
        let shown = weights.unwrap_or(Weights::EQUAL);
        let mut lines = vec![format!(
            "a read of {} bytes at {} of object {}",
            ask.bytes, ask.offset, ask.object
        )];
        for (id, device) in view.each() {
            let state = state(view, device);
            if !ask.copies.has(id) {
                lines.push(format!("  {:<28} {state}; has no copy", self.label(id)));
                continue;
            }
            let now = self.predictor.now(view, id, ask);
            let (ideal, best) = self.predictor.ideal(view, id, ask, shown);
            lines.push(format!(
                "  {:<28} {state}; {} and {} as it is: cost {}; at best, in {}, {}",
                self.label(id),
                now.latency,
                now.energy,
                cost(shown.cost(now).0),
                device.device.power.name(best),
                cost(ideal.0),
            ));
        }
        let why = match (weights, self.named) {
            (Some(Weights { joule: 0, .. }), _) => "it answers first".to_owned(),
            (Some(weights), _) => {
                format!("it costs least, a second counting {} and a joule {}", weights.second, weights.joule)
            }
            (None, Named::Coda(_)) => {
                "the first in a fixed order: local devices before the server, whatever their states".into()
            }
            (None, _) => {
                "the first in a fixed order: flash, then the server or a disk that turns, then a sleeping disk".into()
            }
        };
        lines.push(format!("chosen: {}, since {why}", self.label(chosen)));
        lines
    }

    fn acted(&self, view: &View<'_>, signal: Option<Signal>, actions: &[Action]) -> Vec<String> {
        let mut lines = vec![match signal {
            Some(signal) => format!("told of {signal:?}"),
            None => "time has passed, or something was done".into(),
        }];
        for (id, device) in view.each() {
            let idle = device
                .idle(view.now)
                .map_or("wanted".to_owned(), |idle| format!("idle for {idle}"));
            let queue = device.oldest.map_or("nothing queued".to_owned(), |oldest| {
                format!(
                    "{} bytes queued for up to {}",
                    device.queued,
                    view.now.since(oldest)
                )
            });
            let may = if device.may_stop {
                ""
            } else {
                ", no token for a stop"
            };
            lines.push(format!(
                "  {:<28} {}, {idle}, {queue}{may}",
                self.label(id),
                state(view, device)
            ));
        }
        for action in actions {
            lines.push(match *action {
                Action::Flush(id, trigger) => format!("chosen: write the queue of {}, for {trigger:?}", self.label(id)),
                Action::Go(id, to) => {
                    let device = view.device(id);
                    let power = &device.device.power;
                    let (from, name) = (device.heading(), power.name(to));
                    let pays = power.round_trip(from, to).and_then(|trip| trip.break_even());
                    match (power.serves(from), power.power(to) < power.power(from), pays) {
                        (_, true, Some(pays)) => format!(
                            "chosen: {} goes to {name}, which pays from {pays} on; a start takes {}",
                            self.label(id),
                            power.route(to, from).map_or(Span::ZERO, |route| route.time)
                        ),
                        _ => format!(
                            "chosen: {} goes to {name}: what was lost without it, or the policy, wants it awake",
                            self.label(id)
                        ),
                    }
                }
            });
        }
        lines
    }
}

fn cost(billionths: u128) -> String {
    format!(
        "{}.{:06}",
        billionths / 1_000_000_000,
        billionths / 1000 % 1_000_000
    )
}

fn state(view: &View<'_>, device: &DeviceView<'_>) -> String {
    let power = &device.device.power;
    match device.place {
        Place::Resting { state, .. } => format!("in {}", power.name(state)),
        Place::Working { state, until } => format!(
            "busy in {} for {}",
            power.name(state),
            until.since(view.now)
        ),
        Place::Moving { from, to, until } => {
            format!(
                "from {} to {}, there in {}",
                power.name(from),
                power.name(to),
                until.since(view.now)
            )
        }
    }
}

impl Policy for Watched<'_> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn choose(&mut self, view: &View<'_>, ask: &Ask) -> DeviceId {
        let chosen = self.inner.choose(view, ask);
        if self.is_it(view.now) {
            let lines = self.read(view, ask, chosen);
            self.found = Some(Explained {
                number: self.count,
                at: view.now,
                lines,
            });
        }
        chosen
    }

    fn measured(&mut self, view: &View<'_>, measured: &Measured) {
        self.predictor.measured(view, measured);
        self.inner.measured(view, measured);
    }

    fn decide(
        &mut self,
        view: &View<'_>,
        signal: Option<Signal>,
        actions: &mut Vec<Action>,
    ) -> Option<Time> {
        let again = self.inner.decide(view, signal, actions);
        if !actions.is_empty() && self.is_it(view.now) {
            let lines = self.acted(view, signal, actions);
            self.found = Some(Explained {
                number: self.count,
                at: view.now,
                lines,
            });
        }
        again
    }
}
