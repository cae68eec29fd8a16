//! Explains one decision in words: the policy's view, the costs it compared, its choice and the
//! reason.
//!
//! # Guarantees
//! 1. *Watching changes nothing*: a watched policy decides as it does unwatched.
//! 2. Costs are computed by the policies' own [`Predictor`], which has seen the same measurements.
//!
//! Decisions are numbered from 1 in the order in which they are made: each read that a device is
//! chosen for, and each time at which the policy acts on a device. Doing nothing is no decision.

use super::machine::ModelledMachine;
use super::policies::NamedPolicy;
use teal_energy::device::DeviceId;
use teal_energy::policy::choice::{CostWeights, Predictor};
use teal_energy::policy::teal::TealConfig;
use teal_energy::policy::{
    DeviceView, MachineSignal, MachineView, MeasuredRead, Policy, PolicyAction, PowerSupply,
    ReadRequest,
};
use teal_energy::power::DeviceActivity;
use teal_energy::profile::StateId;
use teal_types::{Time, TimeSpan};

/// Selects a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecisionSelector {
    /// The decision with this number, from 1.
    Number(u64),
    /// The first decision at this time or later.
    At(Time),
}

/// Holds an explained decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedDecision {
    /// Number of the decision.
    pub number: u64,
    /// Time at which it was made.
    pub at: Time,
    /// View, costs, choice and reason, a line each.
    pub lines: Vec<String>,
}

/// Wraps a policy and watches its decisions.
pub(super) struct WatchedPolicy<'a> {
    inner: &'a mut dyn Policy,
    named: &'a NamedPolicy,
    machine: &'a ModelledMachine,
    which: DecisionSelector,
    predictor: Predictor,
    count: u64,
    found: Option<ExplainedDecision>,
}

impl<'a> WatchedPolicy<'a> {
    pub(super) fn new(
        inner: &'a mut dyn Policy,
        named: &'a NamedPolicy,
        machine: &'a ModelledMachine,
        which: DecisionSelector,
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

    pub(super) fn into_explained(self) -> Option<ExplainedDecision> {
        self.found
    }

    /// Counts a decision; returns whether it is the selected one.
    fn is_wanted(&mut self, now: Time) -> bool {
        self.count += 1;
        let is_it = match self.which {
            DecisionSelector::Number(number) => self.count == number,
            DecisionSelector::At(at) => now >= at,
        };
        is_it && self.found.is_none()
    }

    /// Returns the weights of a second and a joule for this policy; `None` if it goes by a fixed
    /// order.
    fn cost_weights(&self, view: &MachineView<'_>) -> Option<CostWeights> {
        Some(match self.named {
            NamedPolicy::AlwaysOn | NamedPolicy::TimeOut(_) | NamedPolicy::BestTimeOut => {
                CostWeights {
                    second: 1,
                    joule: 0,
                }
            }
            NamedPolicy::BlueFs => CostWeights::EQUAL,
            NamedPolicy::Teal if view.supply == PowerSupply::Powered => {
                TealConfig::default().powered
            }
            NamedPolicy::Teal => TealConfig::default().battery,
            NamedPolicy::Coda(_) | NamedPolicy::GreenFs => return None,
        })
    }

    fn device_label(&self, id: DeviceId) -> &str {
        self.machine
            .parts
            .get(id.index())
            .map_or("?", |part| part.label.as_str())
    }

    fn explain_read(
        &self,
        view: &MachineView<'_>,
        ask: &ReadRequest,
        chosen: DeviceId,
    ) -> Vec<String> {
        let weights = self.cost_weights(view);
        let shown = weights.unwrap_or(CostWeights::EQUAL);
        let mut lines = vec![format!(
            "a read of {} bytes at {} of object {}",
            ask.bytes, ask.offset, ask.object
        )];
        // Every device is listed, so that the reader sees the alternatives too.
        for (id, device) in view.devices_with_ids() {
            let state = format_state(view, device);
            if !ask.copies.contains(id) {
                // A device without a copy cannot be chosen.
                lines.push(format!(
                    "  {:<28} {state}; has no copy",
                    self.device_label(id)
                ));
                continue;
            }
            // The predictor has seen the same measurements as the policy's own.
            let now = self.predictor.predict_now(view, id, ask);
            let (ideal, best) = self.predictor.predict_ideal(view, id, ask, shown);
            lines.push(format!(
                "  {:<28} {state}; {} and {} as it is: cost {}; at best, in {}, {}",
                self.device_label(id),
                now.latency,
                now.energy,
                format_cost(shown.weighted_cost(now).0),
                device.device.power.state_name(best),
                format_cost(ideal.0),
            ));
        }
        // The reason follows from the kind of the policy.
        let why = match (weights, self.named) {
            (Some(CostWeights { joule: 0, .. }), _) => "it answers first".to_owned(),
            (Some(weights), _) => {
                format!(
                    "it costs least, a second counting {} and a joule {}",
                    weights.second, weights.joule
                )
            }
            (None, NamedPolicy::Coda(_)) => {
                "the first in a fixed order: local devices before the server, whatever their states"
                    .into()
            }
            (None, _) => {
                "the first in a fixed order: flash, then the server or a disk that turns, then a \
                 sleeping disk"
                    .into()
            }
        };
        lines.push(format!(
            "chosen: {}, since {why}",
            self.device_label(chosen)
        ));
        lines
    }

    /// Explains why a device enters a state. A move to a state of less power pays after the
    /// break-even time of the round trip.
    fn explain_move(&self, view: &MachineView<'_>, id: DeviceId, to: StateId) -> String {
        let device = view.device(id);
        let power = &device.device.power;
        let label = self.device_label(id);
        // A device that is moving is judged by where it goes.
        let (from, name) = (device.target_state(), power.state_name(to));
        if power.state_power(to) < power.state_power(from)
            && let Some(trip) = power.round_trip(from, to)
            && let Some(pays) = trip.break_even()
        {
            let back = power.route(to, from);
            let start = back.map_or(TimeSpan::ZERO, |route| route.time);
            return format!(
                "chosen: {label} goes to {name}, which pays from {pays} on; a start takes {start}"
            );
        }
        format!(
            "chosen: {label} goes to {name}: what was lost without it, or the policy, wants it \
             awake"
        )
    }

    fn explain_actions(
        &self,
        view: &MachineView<'_>,
        signal: Option<MachineSignal>,
        actions: &[PolicyAction],
    ) -> Vec<String> {
        // The lines show what the policy saw before it acted.
        let mut lines = vec![match signal {
            Some(signal) => format!("told of {signal:?}"),
            None => "time has passed, or something was done".into(),
        }];
        for (id, device) in view.devices_with_ids() {
            lines.push(format!(
                "  {:<28} {}, {}",
                self.device_label(id),
                format_state(view, device),
                describe_work(view, device)
            ));
        }
        // Each action gets a line with its reason.
        for action in actions {
            lines.push(match *action {
                PolicyAction::Flush(id, trigger) => format!(
                    "chosen: write the queue of {}, for {trigger:?}",
                    self.device_label(id)
                ),
                PolicyAction::Enter(id, to) => self.explain_move(view, id, to),
            });
        }
        lines
    }
}

fn format_cost(billionths: u128) -> String {
    format!(
        "{}.{:06}",
        billionths / 1_000_000_000,
        billionths / 1000 % 1_000_000
    )
}

/// Describes what keeps a device from resting: how long it has been idle, what is queued for
/// it, and whether it may stop.
fn describe_work(view: &MachineView<'_>, device: &DeviceView<'_>) -> String {
    let idle = match device.idle_time(view.now) {
        Some(idle) => format!("idle for {idle}"),
        None => "wanted".to_owned(),
    };
    let queue = match device.oldest {
        Some(oldest) => format!(
            "{} bytes queued for up to {}",
            device.queued,
            view.now.since(oldest)
        ),
        None => "nothing queued".to_owned(),
    };
    let may = if device.may_stop {
        ""
    } else {
        ", no token for a stop"
    };
    format!("{idle}, {queue}{may}")
}

fn format_state(view: &MachineView<'_>, device: &DeviceView<'_>) -> String {
    let power = &device.device.power;
    // A device rests in a state, works in one, or is between two.
    match device.activity {
        DeviceActivity::Resting { state, .. } => format!("in {}", power.state_name(state)),
        DeviceActivity::Working { state, until } => format!(
            "busy in {} for {}",
            power.state_name(state),
            until.since(view.now)
        ),
        DeviceActivity::Moving { from, to, until } => {
            format!(
                "from {} to {}, there in {}",
                power.state_name(from),
                power.state_name(to),
                until.since(view.now)
            )
        }
    }
}

impl Policy for WatchedPolicy<'_> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn choose_device(&mut self, view: &MachineView<'_>, ask: &ReadRequest) -> DeviceId {
        // The policy decides first: watching must not change it.
        let chosen = self.inner.choose_device(view, ask);
        if self.is_wanted(view.now) {
            let lines = self.explain_read(view, ask, chosen);
            self.found = Some(ExplainedDecision {
                number: self.count,
                at: view.now,
                lines,
            });
        }
        chosen
    }

    fn observe_read(&mut self, view: &MachineView<'_>, measured: &MeasuredRead) {
        self.predictor.add_measurement(view, measured);
        self.inner.observe_read(view, measured);
    }

    fn decide_actions(
        &mut self,
        view: &MachineView<'_>,
        signal: Option<MachineSignal>,
        actions: &mut Vec<PolicyAction>,
    ) -> Option<Time> {
        // The actions are complete only after the policy has decided.
        let again = self.inner.decide_actions(view, signal, actions);
        if !actions.is_empty() && self.is_wanted(view.now) {
            let lines = self.explain_actions(view, signal, actions);
            self.found = Some(ExplainedDecision {
                number: self.count,
                at: view.now,
                lines,
            });
        }
        again
    }
}
