//! Runs matrices: workloads, each under every file system, its options and the scheduler, on one
//! device. The modules hold what is run, the results, and what follows from them.
//!
//! A matrix is a file ([`Matrix`]). Its cells are run in blocks ([`Matrix::cells_in_block`]): each
//! block has every cell once, in an order of its own. A run of a cell is a [`CellRun`]; all runs
//! are kept, one line of JSON each, and [`MatrixFindings`] are drawn from them alone.
//!
//! # Guarantees
//! 1. Nothing here touches a device: the caller makes file systems, mounts and runs.
//! 2. The same file gives the same cells in the same order.
//! 3. What was not measured is not ranked: cells with fewer than two runs, or with runs that were
//!    not steady, have no place.

mod cell_row;
mod compare;
mod decide;
mod differ;
mod file;
mod findings;
mod options;
mod order;
mod page;
mod power;
mod run;
mod show;
mod space;
mod system;
#[cfg(test)]
mod tests;
pub mod tune;

pub use cell_row::CellRow;
pub use compare::{MatrixChanges, MeasuredChange, compare_results};
pub use decide::{BestChoice, CellScore, Cemp, cemp_between, choose_best, pareto_front};
pub use differ::{MatrixDifferences, find_differences};
pub use file::{
    CacheState, Matrix, MatrixDevice, MatrixError, MatrixWorkload, MeterKind, MeterSettings,
    RunRules, SchedulerList,
};
pub use findings::{MatrixFindings, WorkloadVerdict};
pub use order::MatrixCell;
pub use page::{PageDetails, render_html};
pub use power::{PowerReadings, READINGS_MIN};
pub use run::{CellFailure, CellRun, DeviceUse, EnergySource};
pub use show::{escape_markdown, is_settled, render_markdown};
pub use space::{combine_options, known_systems, pair_features, risk_of};
pub use system::{FileSystemKind, FileSystemSetup, KernelPlace};
