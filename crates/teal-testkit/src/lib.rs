//! A simulated world for tests: clock, randomness and disks that obey, a crash explorer, and a
//! reference file system.
//!
//! # Guarantees
//! 1. *Repeatable*: the same seed gives the same run; nothing here reads a clock or draws true
//!    randomness.
//! 2. *Adversarial*: the disks here take away everything that the contract of [`teal_env::Disk`]
//!    does not promise.
//! 3. *Sharp*: the crate has seeded bugs of its own, and its tests show that it catches them.

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

pub use cable::{NetworkCable, NetworkNamespace};
pub use clock::SimClock;
pub use crash::{CrashImage, CrashImages, CrashPolicy, CrashWalk};
pub use devices::{TestLoopDevice, TestMount, has_loop_devices};
pub use fault::{DiskCall, FaultDisk, FaultDuration};
pub use path_target::PathTarget;
pub use programs::{ProgramOutput, find_program, run_program};
pub use recording::{DiskCounters, RecordingDisk};
pub use rng::{Rng, SeededEntropy};
/// The error numbers that [`model`] and [`ops`] speak.
pub use rustix::io::Errno;
pub use skip::skip_test;
pub use trace::{DiskEvent, DiskTrace};
