//! Holds the laboratory's equipment: modelled and real devices, file systems on them and their
//! mounts, guests, control groups, meters, and single runs.
//!
//! # Guarantees
//! 1. Nothing is written to a device that is in use.
//! 2. The devices, mounts and control groups of a run go with it. The leftovers of a killed process
//!    are known by their names, and cleared by the next owner of its directory of results.
//! 3. The same code runs a cell on this machine's kernel and in a guest: only the counting of
//!    requests and joules differs.
//!
//! # The program around it
//! Some parts go on in processes of their own: the running program is started again with the
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
