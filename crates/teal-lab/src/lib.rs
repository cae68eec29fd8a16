//! The lab: what a file system does to a workload, in operations and joules.
//!
//! # Guarantees
//! 1. Nothing here knows FUSE or a mount; what is recorded there comes in through [`trace::Recorder`].

pub mod days;
mod numbers;
pub mod reenact;
pub mod replay;
pub mod score;
pub mod stream;
pub mod trace;
pub mod wml;
pub mod workload;
