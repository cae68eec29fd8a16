//! A disk that is not there: a model that takes the time and the joules of a profile for every
//! request of a real program.
//!
//! [`EmulatedDisk`] wraps another [`Disk`](teal_env::Disk), which holds the bytes, and serves it at
//! the pace of a [`ModelledDrive`]: in virtual time, or slept in real time. [`ImageFs`] offers it
//! as one file through FUSE; a loop device over that file lets every file system of the kernel run
//! on it. Every request is logged.
//!
//! # Guarantees
//! 1. *Accounted*: at any time the ledger's time is the time that has passed on the drive, and its
//!    energy that of every rest, transition and piece of work.
//! 2. *As it came*: requests are logged in the order and with the place and length they came with;
//!    none is split or merged.
//! 3. *Repeatable*: in virtual time the same requests give the same log, byte for byte.
//! 4. *Modelled*: nothing here measures energy. Figures that are not in the profile are assumed,
//!    and [`EmulationSetup::assumptions`] names them.

mod account;
mod disk;
mod drive;
mod image;
pub mod log;
pub mod nbd;
mod pace;
mod series;
mod setup;

pub use account::{DriveAccount, RequestCounts};
pub use disk::{CompletionTicket, DiskSnapshot, EmulatedDisk};
pub use drive::{CompletedRequest, ModelledDrive, PowerEvent, RestState};
pub use image::{ImageFs, ImageOwner};
pub use pace::{EmulationPace, VirtualClock};
pub use series::EnergySeries;
pub use setup::{EmulationSetup, SetupError};
