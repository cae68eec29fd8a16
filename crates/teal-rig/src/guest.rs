//! Runs guests: user-mode Linux on this machine's own files, with a modelled disk over the network
//! block device protocol. A guest does one [`GuestTask`] and ends.
//!
//! Three processes, each the parent of the next:
//! 1. this one;
//! 2. `teal-lab guest-host` (`host.rs`), first in process and network namespaces of its own: it
//!    models the disk, serves it, counts, and watches over the guest;
//! 3. `linux.uml`, with `teal-lab guest` (`inside.rs`) as its first program: it asks for its task,
//!    does it, and tells when each part begins and ends.
//!
//! Messages are JSON: the job from 1 to 2 as a line on standard input, the task from 2 to 3 over
//! the network, the outcome all the way back.
//!
//! # Guarantees
//! 1. The guest sees the files of this machine read-only, and no network but the one to its host.
//! 2. It ends with its task, with this process however that ends, or when it has asked nothing of
//!    its disk for longer than its task may be busy without it. It leaves nothing.
//! 3. It holds no mount of this machine: it has no mount namespace.
//! 4. Joules, requests and their time are counted outside of it, by the modelled disk.

mod host;
mod host_line;
mod inside;
mod job;
mod launch;
mod runs;

pub use host::run_host;
pub use inside::run_inside;
pub use job::{GuestFeatures, GuestJob, GuestOutcome, GuestTask, MOUNT_DIR};
pub use launch::{check_guest, kernel_place, run_guest};
pub use runs::{run_cell, run_phases};
