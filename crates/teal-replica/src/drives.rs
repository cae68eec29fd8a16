//! The drives that are attached here: content is read from the cheapest source that has it, drive
//! or server, and copied to drives.
//!
//! # Guarantees
//! 1. *Exact*: a drive is read at the commit whose content the note of an object says is absent, or
//!    not at all; so what is read is never older, and never of another history, than what the
//!    server would have given.
//! 2. *Nobody waits for a drive* that is late or gone, while another source has the content: each
//!    is asked on a thread of its own with a deadline, and is not asked again before it has come
//!    back. One that sleeps is asked last, and woken behind everybody's back (`rest`).
//! 3. *Acknowledged only*: a drive gets content of which the server has said which commit it is of
//!    (`cursor`).
//! 4. What a drive turns out to have damaged is read elsewhere and copied to it again.
//!
//! # Locks
//! `flushing` and `marking` of a drive come first in the table of [`teal_volume`]; `attached`,
//! `server`, `meter`, `queue`, `heirs`, `short` and `superseded` are leaves.

mod affinity;
mod attach;
mod attached;
mod attached_drives;
mod choice;
mod cursor;
mod damage;
mod detach;
mod label;
mod lost;
mod queue;
mod read;
mod refused;
mod report;
mod sleep;
mod successions;
mod superseded;
#[cfg(test)]
mod tests;
mod unplaced;

pub use affinity::AffineObject;
pub use attach::{KnownDrive, KnownDrives, NewDrive};
pub(crate) use attached_drives::AttachedDrives;
pub use refused::DriveRefused;
pub use report::{ContentLocations, DriveStatus, ReadPrice, SourceStatus};
