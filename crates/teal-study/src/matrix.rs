//! Matrices: workloads, each under every file system, its options and the scheduler, on one device;
//! what is run, what came of it, what follows.
//!
//! A matrix is a file ([`Matrix`]). Its cells are run in blocks ([`Matrix::block`]): each block has
//! every cell once, in an order of its own. A run of a cell is a [`Run`]; all runs are kept, one
//! line of JSON each, and [`Findings`] are drawn from them alone.
//!
//! # Guarantees
//! 1. Nothing here touches a device: the caller makes file systems, mounts and runs.
//! 2. The same file gives the same cells in the same order.
//! 3. What was not measured is not ranked: cells with fewer than two runs, or with runs that were
//!    not steady, have no place.

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

pub use compare::{Change, Changes, changes};
pub use decide::{Cemp, Choice, Score, cemp, choose, front};
pub use differ::{Differences, differences};
pub use file::{Cache, Device, Gauge, Matrix, MatrixError, Metering, Runs, Schedulers, Workload};
pub use findings::{Findings, Row, Verdict};
pub use order::Cell;
pub use page::{About, html};
pub use power::{LEAST, Power};
pub use run::{Failure, Meter, Run, Spent};
pub use show::{escaped, markdown, settled};
pub use space::{combinations, features, risk, space};
pub use system::{Kind, Place, System};
