//! Studies the effect of a file system on a workload, in operations and joules.
//!
//! # Guarantees
//! 1. Nothing here knows FUSE or a mount; recordings come in through `teal_trace::EventRecorder`.

pub mod characterise;
pub mod days;
pub mod matrix;
mod numbers;
pub mod phases;
pub mod reenact;
pub mod replay;
pub mod score;
pub mod statistics;
pub mod stream;
pub mod wml;
pub mod workload;
