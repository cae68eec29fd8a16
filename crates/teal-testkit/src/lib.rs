//! What tests need instead of the world: clock, randomness and disks that obey, a crash explorer, a
//! reference file system.
//!
//! # Guarantees
//! 1. *Repeatable*: the same seed gives the same run; nothing here reads a clock or draws true
//!    randomness.
//! 2. *Adversarial*: what the contract of [`teal_env::Disk`] does not promise, the disks here take
//!    away.
//! 3. *Sharp*: the kit has seeded bugs of its own, and its tests show that it catches them.

mod cable;
mod clock;
mod content;
mod crash;
mod devices;
mod fault;
pub mod model;
pub mod ops;
mod path_target;
mod programs;
mod recording;
mod rng;
mod skip;
mod trace;
pub mod tree;

pub use cable::{Cable, Machine};
pub use clock::SimClock;
pub use crash::{Image, Images, Policy, Walk};
pub use devices::{LoopDevice, Point, has_loop_devices};
pub use fault::{Call, FaultDisk, Lasts};
pub use path_target::PathTarget;
pub use programs::{Said, program, run};
pub use recording::{Counters, RecordingDisk};
pub use rng::{Rng, SeededEntropy};
/// The error numbers that [`model`] and [`ops`] speak.
pub use rustix::io::Errno;
pub use skip::skip;
pub use trace::{Event, Trace};
