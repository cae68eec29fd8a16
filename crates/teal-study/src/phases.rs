//! Measures the phases in which scherlfs (2004, chapter 6) measured file systems: their work, their
//! floors, and their results.
//!
//! A [`PhaseGroup`] is a series of [`WorkloadPhase`]s on a fresh file system; [`carry_out`] does
//! them on real files, mounted anew for each. A [`PhaseCell`] holds the results of a group on one
//! file system. Cells are kept, one line of JSON each, and the tables are made of them alone.
//!
//! # Guarantees
//! 1. The same scale gives the same files, sizes and orders, on every machine.
//! 2. Nothing here mounts or counts: the caller's [`PhaseEnvironment`] does.
//! 3. A phase's floor is of its user bytes alone and depends on the profile only.

mod cell;
mod floor;
mod orders;
mod perform;
mod plan;
mod show;
#[cfg(test)]
mod tests;

pub use cell::{DiskTally, EnergyUsage, PhaseCell, PhaseResult};
pub use floor::phase_floor;
pub use perform::{PhaseEnvironment, PhaseError, carry_out};
pub use plan::{
    FillFiles, PhaseAct, PhaseFiles, PhaseGroup, SyncMode, VisitOrder, WorkloadPhase, ageing_phases,
};
pub use show::{PhaseSheet, render_markdown};
