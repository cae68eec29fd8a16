//! The scheduling problem of a machine and a trace, as the bound sees it: points of time, and each
//! device's subproblem.
//!
//! # Guarantees
//! 1. Points are in order; they hold the beginning, every event, the moment at which a change is of
//!    age and its last one, and the end.

use super::subproblem::DeviceSubproblem;
use crate::device::{DeviceId, QueueLimits};
use crate::sim::{EventAction, MachineTrace, SimulatedMachine, SimulationReport};
use teal_types::{Time, TimeSpan};

/// The reason why there is no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unsolvable {
    /// The exact bound is for few devices.
    #[error("the exact bound is for few devices, not {0}")]
    Devices(usize),
    /// There are more candidates than memory allows.
    #[error("too many ways to tell apart: {0} at one point")]
    Large(usize),
    /// A change cannot be written in time, or no device can serve a read.
    #[error("no schedule keeps all limits")]
    Infeasible,
}

/// The kind of event at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PointKind {
    Nothing,
    Read,
    Write,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TracePoint {
    pub(super) at: Time,
    pub(super) kind: PointKind,
    /// The event's place in the trace.
    pub(super) event: usize,
}

/// The scheduling problem of a machine and a trace.
#[derive(Debug, Clone)]
pub struct SchedulingProblem<'a> {
    pub(super) points: Vec<TracePoint>,
    pub(super) subproblems: Vec<DeviceSubproblem<'a>>,
}

/// Returns for each device the longest time by which any of these runs began a burst after its age,
/// because the device was asleep or busy.
pub fn longest_lateness<'r>(
    reports: impl IntoIterator<Item = &'r SimulationReport>,
) -> Vec<TimeSpan> {
    let mut late: Vec<TimeSpan> = Vec::new();
    for report in reports {
        late.resize(late.len().max(report.devices.len()), TimeSpan::ZERO);
        late.iter_mut()
            .zip(&report.devices)
            .for_each(|(late, device)| *late = device.late.max(*late));
    }
    late
}

impl<'a> SchedulingProblem<'a> {
    /// Makes the problem of a machine and a trace. The machine's pace is taken as open. Changes may
    /// wait for each device longer than their age by its entry of `late` (zero without an entry):
    /// see [`longest_lateness`].
    pub fn new(world: &'a SimulatedMachine, trace: &MachineTrace, late: &[TimeSpan]) -> Self {
        let nothing = |at: Time| TracePoint {
            at,
            kind: PointKind::Nothing,
            event: 0,
        };
        let mut points = vec![nothing(Time::ZERO)];
        for (event, known) in trace.events().iter().enumerate() {
            let kind = match known.action {
                EventAction::Read { copies, .. } if !copies.is_empty() => PointKind::Read,
                EventAction::Write { .. } => PointKind::Write,
                _ => continue,
            };
            points.push(TracePoint {
                at: known.at,
                kind,
                event,
            });
        }
        let late = |id: DeviceId| late.get(id.index()).copied().unwrap_or(TimeSpan::ZERO);
        for (at, device) in world.devices.iter().enumerate() {
            let (Some(QueueLimits { age, .. }), Some(id)) = (device.queue, DeviceId::new(at))
            else {
                continue;
            };
            let mine = trace
                .events()
                .iter()
                .filter(|event| is_write_to(&event.action, id));
            let due = mine.flat_map(|event| [event.at + age, event.at + age + late(id)]);
            // Everything is written at the end anyway.
            let due = due.filter(|due| *due < trace.end());
            points.extend(due.map(nothing));
        }
        points.sort_by_key(|point| point.at);
        // Several changes may be of age at one moment; one point is enough.
        points.dedup_by(|b, a| {
            a.kind == PointKind::Nothing && b.kind == PointKind::Nothing && a.at == b.at
        });
        debug_assert!(
            points.is_sorted_by_key(|point| point.at),
            "points are in order"
        );
        points.push(nothing(trace.end()));
        let ids = (0..world.devices.len()).filter_map(DeviceId::new);
        let subproblems = ids
            .map(|id| DeviceSubproblem::new(world, trace, &points, id, late(id)))
            .collect();
        Self {
            points,
            subproblems: subproblems,
        }
    }
}

fn is_write_to(what: &EventAction, id: DeviceId) -> bool {
    matches!(what, EventAction::Write { sinks, .. } if sinks.contains(id))
}
