//! The laboratory's devices from end to end: modelled disks, loop devices, file systems on them,
//! guests.
#![allow(
    clippy::unwrap_used,
    reason = "a test whose surroundings give way fails"
)]

mod disk;
mod failing;
mod guests;
mod matrix;
mod ownership;
mod phases;
mod support;
mod tune;
