//! The seams to the world: time, randomness and disks, each as a trait with its real form.
//!
//! # Guarantees
//! 1. No other crate below the program reads a clock, draws a random number or opens a device.
//! 2. The contract of [`Disk`] *is* the fault model: what it does not promise, tests take away.

mod buffer;
mod clock;
mod disk;
mod entropy;
mod file;
mod memory;
mod replace;
mod seeded;

pub use buffer::{AlignedBuffer, BufferPool};
pub use clock::{Clock, SystemClock, Timer};
pub use disk::{Disk, DiskShape, HostRoom};
pub use entropy::{Entropy, SystemEntropy};
pub use file::{DiskOpenError, FileDisk, OpenMode};
pub use memory::MemDisk;
pub use replace::{ExistingFile, replace_file};
