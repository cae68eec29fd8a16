//! The laboratory from end to end: both programs, real mounts, modelled disks, loop devices, guests.
#![allow(
    clippy::unwrap_used,
    reason = "a test whose surroundings give way fails"
)]

mod characterise;
mod compare;
mod disk;
mod guests;
mod matrix;
mod ownership;
mod phases;
mod programs;
mod record;
mod reenact;
mod replay;
mod support;
mod tune;
mod workload;
