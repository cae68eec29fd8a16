//! Replay: a trace, a machine and a policy in; joules by device and state, delays and wake-ups out,
//! in virtual time.
//!
//! # Guarantees
//! 1. *Repeatable*: the same trace, machine, assumptions and policy give the same figures, to the
//!    microjoule.
//! 2. *One trace for all*: who holds what when does not depend on the policy; every policy, and the
//!    bound, gets the same events.
//! 3. *Modelled*: every figure comes from a profile; [`Machine::profiles`] names them.
//! 4. Whatever the bytes of a trace are: an error, never a panic; memory grows with the blocks it
//!    touches, not with what it claims.
//!
//! What is taken for granted (initial contents, caches, presence) is in [`Assumptions`] and
//! `docs/energy.md`.

mod contents;
mod events;
pub mod explain;
mod machine;
pub mod plot;
mod policies;
#[cfg(test)]
mod tests;

use events::EventConverter;
pub use events::REQUEST_MAX;
pub use machine::{InitialShare, MachineDevice, MachineError, ModelledMachine, NAMED_MACHINES};
pub use policies::{NamedPolicy, TIME_OUTS, UnknownPolicy};
use std::io::Read;
use teal_energy::device::DeviceModel;
use teal_energy::oracle::{self, SchedulingProblem};
use teal_energy::policy::{Policy, PowerSupply};
use teal_energy::sim::{self, MachineTrace, ReplayPace, SimulatedMachine, SimulationReport};
use teal_trace::{Level, ReadError, TraceEnding, TraceItem, TraceReader};
use teal_types::{Energy, Power, Span, Time};

/// What a trace does not tell, and has to be taken for granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayAssumptions {
    /// Bytes of page cache between the trace and the devices; 0 for traces that were recorded below
    /// one.
    pub memory: u64,
    /// After so long without an event nobody is there; `None`: somebody always is.
    pub away: Option<Span>,
    /// Whether later events wait for earlier ones.
    pub pace: ReplayPace,
    /// Where the machine's power comes from.
    pub supply: PowerSupply,
    /// Time of day at which the trace begins; `None`: what the trace says, or nine o'clock.
    pub begins: Option<Span>,
    /// Times at which no link works.
    pub outages: Vec<(Time, Time)>,
    /// Begin with everything asleep, not awake.
    pub starts_asleep: bool,
}

impl Default for ReplayAssumptions {
    fn default() -> Self {
        Self {
            memory: 0,
            away: Some(Span::secs(600)),
            pace: ReplayPace::Open,
            supply: PowerSupply::Battery,
            begins: None,
            outages: Vec::new(),
            starts_asleep: false,
        }
    }
}

/// What was taken from a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TraceTotals {
    /// Events.
    pub events: u64,
    /// Of these, failed ones.
    pub failed: u64,
    /// Events that are missing in the trace.
    pub dropped: u64,
    /// Reads of data or attributes.
    pub reads: u64,
    /// Of these, those that no device had to serve.
    pub from_memory: u64,
    /// Bytes that devices had to serve.
    pub read_bytes: u64,
    /// Bytes copied to devices that keep what is read elsewhere.
    pub copied_bytes: u64,
    /// Changes of data or attributes.
    pub changes: u64,
    /// Bytes of data written.
    pub written_bytes: u64,
    /// Pieces of files that were removed before they had to be anywhere.
    pub cancelled: u64,
    /// Blocks that could not be read, since no link worked and nobody else had them.
    pub unreachable: u64,
}

/// Why a trace cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It is of the level of devices.
    #[error(
        "this is a trace of a device's requests; only traces of files are replayed (`teal lab record`, `teal lab generate`)"
    )]
    BlockLevel,
    /// Nothing is in it.
    #[error("there is no event in this trace")]
    Empty,
    /// A request that nobody ever made.
    #[error(
        "event {event} at {at} moves {bytes} bytes, more than {REQUEST_MAX} at once: this is no recorded trace"
    )]
    Long {
        /// Which event, from 1.
        event: u64,
        /// Its time.
        at: Time,
        /// What it claims.
        bytes: u64,
    },
}

/// A trace on a machine, ready to be run under any policy.
#[derive(Debug)]
pub struct PreparedReplay {
    /// The machine.
    pub machine: ModelledMachine,
    /// The same for the simulator.
    pub world: SimulatedMachine,
    /// What happens.
    pub trace: MachineTrace,
    /// What was taken from the recorded trace.
    pub totals: TraceTotals,
}

/// A policy's run.
#[derive(Debug)]
pub struct PolicyRun {
    /// The policy, with its setting if it has one.
    pub policy: String,
    /// What the simulator found.
    pub report: SimulationReport,
}

/// The least energy that any policy could have spent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnergyBound {
    /// Exactly.
    Exact(Energy),
    /// No policy spends less than `least`.
    Proven {
        /// Proven.
        least: Energy,
        /// What a schedule with foresight spent when the simulator ran it.
        feasible: Energy,
    },
    /// Why there is none.
    No(String),
}

/// Most devices and events for the exact bound.
const EXACT: (usize, usize) = (3, 200);

impl PreparedReplay {
    /// Reads a trace to its end and sets it on a machine. Says also how the trace ended.
    ///
    /// # Errors
    /// [`ReplayError`].
    pub fn read<R: Read>(
        trace: &mut TraceReader<R>,
        machine: ModelledMachine,
        assumptions: &ReplayAssumptions,
    ) -> Result<(Self, TraceEnding), ReplayError> {
        if trace.header().level == Level::Block {
            return Err(ReplayError::BlockLevel);
        }
        let start = trace.header().start.secs;
        let recorded = (start != 0).then(|| Span::secs(start.rem_euclid(86_400).unsigned_abs()));
        let assumptions = &ReplayAssumptions {
            begins: assumptions.begins.or(recorded),
            ..assumptions.clone()
        };
        let scene = Self::from_items(trace.by_ref(), machine, assumptions)?;
        Ok((
            scene,
            trace.ending().cloned().unwrap_or(TraceEnding::Complete),
        ))
    }

    /// Sets items on a machine.
    ///
    /// # Errors
    /// [`ReplayError`].
    pub fn from_items(
        items: impl IntoIterator<Item = Result<TraceItem, ReadError>>,
        machine: ModelledMachine,
        assumptions: &ReplayAssumptions,
    ) -> Result<Self, ReplayError> {
        let mut converter = EventConverter::new(&machine, assumptions);
        for item in items {
            converter.convert_item(&item?)?;
        }
        let (events, taken) = converter.finish();
        if taken.events == 0 {
            return Err(ReplayError::Empty);
        }
        let devices: Vec<DeviceModel> = machine
            .parts
            .iter()
            .map(|part| part.device.clone())
            .collect();
        let base = machine.base.as_ref().map_or(Power::ZERO, |(_, base)| *base);
        let mut world = SimulatedMachine::new(devices, base, assumptions.pace);
        world.supply = assumptions.supply;
        world.time_of_day = assumptions.begins.unwrap_or(world.time_of_day);
        if assumptions.starts_asleep {
            world.start_states = world
                .devices
                .iter()
                .map(|device| device.power.lowest_state())
                .collect();
        }
        Ok(Self {
            machine,
            world,
            trace: events,
            totals: taken,
        })
    }

    /// Runs a policy.
    pub fn run(&self, policy: &NamedPolicy) -> PolicyRun {
        let of = |policy: &mut dyn Policy| sim::run(&self.world, &self.trace, policy);
        match policy {
            NamedPolicy::BestTimeOut => {
                let named = TIME_OUTS.map(NamedPolicy::TimeOut);
                let runs = named
                    .iter()
                    .map(|named| (named.to_string(), of(&mut *named.create_policy(self))));
                let (policy, report) = runs
                    .min_by_key(|(_, report)| report.total_energy())
                    .expect("there are several times");
                PolicyRun { policy, report }
            }
            named => PolicyRun {
                policy: named.to_string(),
                report: of(&mut *named.create_policy(self)),
            },
        }
    }

    /// Runs a policy, and tells about one of its decisions.
    pub fn explain_decision(
        &self,
        policy: &NamedPolicy,
        which: explain::DecisionSelector,
    ) -> (PolicyRun, Option<explain::ExplainedDecision>) {
        let policy = match policy {
            NamedPolicy::BestTimeOut => {
                self.run(policy).policy.parse().unwrap_or(NamedPolicy::Teal)
            }
            named => named.clone(),
        };
        let mut inner = policy.create_policy(self);
        let mut watched = explain::WatchedPolicy::new(&mut *inner, &policy, &self.machine, which);
        let report = sim::run(&self.world, &self.trace, &mut watched);
        let explained = watched.into_explained();
        (
            PolicyRun {
                policy: policy.to_string(),
                report,
            },
            explained,
        )
    }

    /// The least energy any policy could have spent. `late` by how much runs began bursts
    /// after their age ([`oracle::lateness`]). Traces of more than `most` events are not tried.
    pub fn energy_bound(&self, late: &[Span], most: usize, rounds: usize) -> EnergyBound {
        if self.world.pace == ReplayPace::Closed {
            return EnergyBound::No("it is for the open pace only".into());
        }
        let (devices, events) = (self.world.devices.len(), self.trace.events().len());
        if events > most {
            return EnergyBound::No(format!(
                "{events} events at the devices are more than {most}; see --bound"
            ));
        }
        let problem = SchedulingProblem::new(&self.world, &self.trace, late);
        if devices <= EXACT.0
            && events <= EXACT.1
            && let Ok(least) = oracle::exact_optimum(&problem)
        {
            return EnergyBound::Exact(least);
        }
        match oracle::lagrangian_bound(&problem, rounds) {
            Ok(found) => {
                let run = sim::run(&self.world, &self.trace, &mut found.plan.into_policy());
                EnergyBound::Proven {
                    least: found.energy,
                    feasible: run.total_energy(),
                }
            }
            Err(why) => EnergyBound::No(why.to_string()),
        }
    }
}
