//! Converts the report of a modelled disk into the form of results.

use crate::disk::{RequestSums, TimeUse};
use teal_study::phases::{DiskTally, EnergyUsage, PhaseResult, WorkloadPhase};

impl From<RequestSums> for DiskTally {
    fn from(of: RequestSums) -> Self {
        let usage = |used: TimeUse| EnergyUsage {
            name: used.name,
            count: used.count,
            ns: used.ns,
            microjoules: used.microjoules,
        };
        Self {
            elapsed_ns: of.elapsed_ns,
            reads: of.reads,
            bytes_read: of.bytes_read,
            writes: of.writes,
            bytes_written: of.bytes_written,
            flushes: of.flushes,
            seeks: of.seeks,
            microjoules: of.microjoules,
            uses: of.uses.into_iter().map(usage).collect(),
        }
    }
}

/// Returns the result of a phase: `ran` are the sums until its last operation, `all` those until
/// nothing was left to be written. The floor is not known here.
pub(crate) fn phase_result(
    phase: &WorkloadPhase,
    operations: u64,
    ran: &RequestSums,
    all: RequestSums,
) -> PhaseResult {
    debug_assert!(
        all.microjoules >= ran.microjoules,
        "the drain costs no negative energy"
    );
    PhaseResult {
        phase: phase.name.clone(),
        operations,
        bytes: phase.user_bytes(),
        drain_microjoules: all.microjoules.saturating_sub(ran.microjoules),
        tally: all.into(),
        floor_microjoules: 0,
        writes: phase.is_write(),
    }
}
