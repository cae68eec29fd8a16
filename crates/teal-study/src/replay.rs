//! Replays traces in virtual time: takes a trace, a machine and a policy, and gives joules by
//! device and state, delays and wake-ups.
//!
//! # Guarantees
//! 1. *Repeatable*: the same trace, machine, assumptions and policy give the same figures, to the
//!    microjoule.
//! 2. *One trace for all*: the placement of content in time does not depend on the policy. Every
//!    policy, and the bound, gets the same events.
//! 3. *Modelled*: every figure comes from a profile; [`ModelledMachine::profile_names`] names them.
//! 4. *Robust*: the bytes of a trace may give an error, but never a panic. Memory grows with the
//!    blocks that a trace touches, not with its claims.
//!
//! Assumptions on initial contents, caches and presence are in [`ReplayAssumptions`] and
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
use teal_types::{Energy, Power, Time, TimeSpan};

/// Holds the assumptions that a trace does not tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayAssumptions {
    /// Bytes of page cache between the trace and the devices; 0 for traces that were recorded below
    /// one.
    pub memory: u64,
    /// Time without an event after which no user is present; `None` means that one always is.
    pub away: Option<TimeSpan>,
    /// Says whether later events wait for earlier ones.
    pub pace: ReplayPace,
    /// Source of the machine's power.
    pub supply: PowerSupply,
    /// Time of day at which the trace begins; `None` means the trace's own, or nine o'clock.
    pub begins: Option<TimeSpan>,
    /// Times at which no link works.
    pub outages: Vec<(Time, Time)>,
    /// Is true when every device is asleep at the beginning.
    pub starts_asleep: bool,
}

impl Default for ReplayAssumptions {
    fn default() -> Self {
        Self {
            memory: 0,
            away: Some(TimeSpan::from_secs(600)),
            pace: ReplayPace::Open,
            supply: PowerSupply::Battery,
            begins: None,
            outages: Vec::new(),
            starts_asleep: false,
        }
    }
}

/// Counts what was taken from a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TraceTotals {
    /// Number of events.
    pub events: u64,
    /// Number of failed events.
    pub failed: u64,
    /// Number of events that are missing in the trace.
    pub dropped: u64,
    /// Reads of data or attributes.
    pub reads: u64,
    /// Number of reads that no device had to serve.
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
    /// Blocks that could not be read, since no link worked and no other device had them.
    pub unreachable: u64,
}

/// Says why a trace cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The trace cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The trace is of the level of devices.
    #[error(
        "this is a trace of a device's requests; only traces of files are replayed (`teal lab \
         record`, `teal lab generate`)"
    )]
    BlockLevel,
    /// The trace has no event.
    #[error("there is no event in this trace")]
    Empty,
    /// A request is larger than any real one.
    #[error(
        "event {event} at {at} moves {bytes} bytes, more than {REQUEST_MAX} at once: this is no \
         recorded trace"
    )]
    Long {
        /// Number of the event, from 1.
        event: u64,
        /// Time of the event.
        at: Time,
        /// Bytes that it claims.
        bytes: u64,
    },
}

/// Holds a trace on a machine, ready to be run under any policy.
#[derive(Debug)]
pub struct PreparedReplay {
    /// The machine.
    pub machine: ModelledMachine,
    /// The machine as the simulator knows it.
    pub world: SimulatedMachine,
    /// Events of the simulation.
    pub trace: MachineTrace,
    /// Counts of the recorded trace.
    pub totals: TraceTotals,
}

/// Holds a policy's run.
#[derive(Debug)]
pub struct PolicyRun {
    /// Name of the policy, with its setting if it has one.
    pub policy: String,
    /// Figures of the simulator.
    pub report: SimulationReport,
}

/// Holds what is known of the least energy that any policy could have spent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnergyBound {
    /// A proven lower bound, and how near a schedule comes to it.
    Proven {
        /// Proven lower bound.
        least: Energy,
        /// Energy of a schedule with foresight, run by the simulator; `None` if none was found.
        feasible: Option<Energy>,
    },
    /// Reason why there is no bound.
    No(String),
}

impl EnergyBound {
    /// Returns the proven lower bound.
    pub fn least(&self) -> Option<Energy> {
        match self {
            Self::Proven { least, .. } => Some(*least),
            Self::No(_) => None,
        }
    }

    /// Returns whether the bound is the least energy itself: a schedule reaches it, up to a
    /// thousandth.
    pub fn is_exact(&self) -> bool {
        match self {
            Self::Proven {
                least,
                feasible: Some(feasible),
            } => feasible.get() <= least.get() + least.get() / EXACT_PART,
            _ => false,
        }
    }
}

/// Part of the bound that a schedule may spend beyond it where the bound is called exact: times
/// are cut to nanoseconds and energies to microjoules.
const EXACT_PART: u64 = 1000;
/// Limits devices and events for which the problem is solved by dynamic programming.
const SOLVED: (usize, usize) = (3, 200);

impl PreparedReplay {
    /// Reads a trace to its end and prepares it on a machine. Returns also how the trace ended.
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
        // A start of 0 means that the trace does not know its time of day.
        // A recording knows its time of day, which decides when nights are.
        let start = trace.header().start.secs;
        let recorded =
            (start != 0).then(|| TimeSpan::from_secs(start.rem_euclid(86_400).unsigned_abs()));
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

    /// Prepares items on a machine.
    ///
    /// # Errors
    /// [`ReplayError`].
    pub fn from_items(
        items: impl IntoIterator<Item = Result<TraceItem, ReadError>>,
        machine: ModelledMachine,
        assumptions: &ReplayAssumptions,
    ) -> Result<Self, ReplayError> {
        // The converter sees each item once, in order.
        let mut converter = EventConverter::new(&machine, assumptions);
        for item in items {
            converter.convert_item(&item?)?;
        }
        let (events, taken) = converter.finish();
        debug_assert!(
            taken.failed <= taken.events,
            "more events failed than there were"
        );
        if taken.events == 0 {
            return Err(ReplayError::Empty);
        }
        // The world has the machine's devices in the same order, so that their numbers agree.
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
            // Foresight chooses the time-out: it is a bound on what a fixed one can reach.
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

    /// Runs a policy, and explains one of its decisions.
    pub fn explain_decision(
        &self,
        policy: &NamedPolicy,
        which: explain::DecisionSelector,
    ) -> (PolicyRun, Option<explain::ExplainedDecision>) {
        // The best time-out is known only after a run of all of them.
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

    /// Returns the least energy any policy could have spent. `late` is the time by which runs began
    /// bursts after their age ([`oracle::longest_lateness`]). Traces of more than `most` events are
    /// not tried.
    pub fn energy_bound(&self, late: &[TimeSpan], most: usize, rounds: usize) -> EnergyBound {
        // The bound takes times as given, but in the closed pace a policy's delays move them.
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
        // Small problems are solved; the others are bounded by Lagrangian relaxation. The optimum
        // of the problem is a bound, too: the problem allows what the simulator does not.
        // Dynamic programming over all devices grows with the product of their states.
        let mut optimum = None;
        if devices <= SOLVED.0 && events <= SOLVED.1 {
            optimum = oracle::exact_optimum(&problem).ok();
        }
        let relaxed = match (oracle::lagrangian_bound(&problem, rounds), optimum) {
            (Ok(found), _) => found,
            (Err(_), Some(least)) => {
                return EnergyBound::Proven {
                    least,
                    feasible: None,
                };
            }
            (Err(why), None) => return EnergyBound::No(why.to_string()),
        };
        let least = optimum.map_or(relaxed.energy, |optimum| optimum.max(relaxed.energy));
        // The plan is run by the simulator, so that the feasible energy is no estimate.
        let run = sim::run(&self.world, &self.trace, &mut relaxed.plan.into_policy());
        // A schedule that the simulator carries out is possible, whatever it costs.
        let feasible = run.total_energy();
        debug_assert!(
            least <= feasible + Energy::from_microjoules(10),
            "a feasible schedule spends less than the bound"
        );
        EnergyBound::Proven {
            least,
            feasible: Some(feasible),
        }
    }
}
