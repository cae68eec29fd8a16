//! What the laboratory works on: modelled and real devices, file systems on them and their mounts,
//! guests, control groups, meters, and single runs.
//!
//! # Guarantees
//! 1. Nothing is written to a device that is in use.
//! 2. What a run makes (devices, mounts, control groups) goes with it; what a killed process has
//!    left is known by its name, and cleared by the next owner of its directory of results.
//! 3. A cell is run by the same code on this machine's kernel and in a guest: only what counts its
//!    requests and joules differs.
//!
//! # The program around it
//! Some of it goes on in processes of their own: the running program is started again with the
//! commands `disk`, `guest-host` and `guest`, which it must have (`teal-lab` does).

mod ageing;
pub mod cell;
pub mod command;
pub mod disk;
pub mod guest;
pub mod memory_limit;
pub mod meter;
pub mod ownership;
pub mod phases;
pub mod sources;
pub mod testbed;
