//! Runs workloads: scripts in Filebench's language, on any file system, with figures of their cost.
//!
//! # Guarantees
//! 1. Nothing is done before the whole script is sound and its filesets fit.
//! 2. Each thread counts for itself; no other thread waits for that.
//! 3. Time comes in through [`teal_env::Timer`]. System calls go to files directly, because their
//!    cost is the object of the measurement.

mod aio;
mod content;
mod descriptors;
mod error;
mod fileset;
mod index_set;
mod layout;
mod plan;
mod populate;
mod priority;
mod quota;
mod random;
mod room;
mod run;
mod shared;
pub mod shipped;
mod stats;
mod waiting;
mod worker;

pub use error::RunError;
pub use plan::{
    ExistingFiles, Fileset, FlowopFlags, FlowopId, OpenAccess, PlannedFlowop, PlannedProcess,
    PlannedThread, Populating, ProgramNode, RunStep, WorkloadOptions, WorkloadPlan, plan_script,
};
pub use random::{Distribution, FixedOrDrawn, RandomStream, RandomVariable, ThreadDraws};
pub use room::{FilesetPreview, check_room, preview_filesets};
pub use run::{FlowopFigures, RunListener, RunOutcome, RunSummary, SecondFigures, execute_plan};
pub use stats::LatencyFigures;

/// Borrows a path that was built with a zero at its end.
fn c_path(path: &[u8]) -> &std::ffi::CStr {
    std::ffi::CStr::from_bytes_until_nul(path).expect("paths are built with a zero at their end")
}
