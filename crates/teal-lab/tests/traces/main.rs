//! The laboratory's traces and workloads from end to end, and how its program and `teal` find each
//! other.
#![allow(
    clippy::unwrap_used,
    reason = "a test whose surroundings give way fails"
)]

mod characterise;
mod compare;
mod personalities;
mod programs;
mod record;
mod reenact;
mod replay;
mod support;
mod workload;
