//! The lab: what a file system does to a workload, in operations and joules.
//!
//! # Guarantees
//! 1. Nothing here knows FUSE or a mount; what is recorded there comes in through [`trace::Recorder`].

pub mod replay;
pub mod trace;
