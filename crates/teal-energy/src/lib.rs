//! Energy of storage devices: models of what they need, policies that save it, and the least that
//! would have been enough.
//!
//! Device [profiles](profile) with a source for every figure, disk mechanics, power-state machines,
//! the policies that decide which device is read and when devices are flushed, woken and put to
//! sleep, a simulator in virtual time, and the clairvoyant bound. The daemon runs the very policy
//! code that the simulator runs.
//!
//! # Guarantees
//! 1. *Pure*: nothing here reads a clock, a file or a random number; time and events are handed in.
//! 2. *Repeatable*: time is an integer of nanoseconds and energy of microjoules; the same input
//!    gives the same output everywhere.

pub mod breakeven;
pub mod device;
pub mod estimate;
pub mod ledger;
pub mod mechanics;
pub mod oracle;
pub mod policy;
pub mod power;
pub mod profile;
pub mod quantity;
pub mod service;
pub mod sim;

pub use profile::Profile;
