//! What the end-to-end tests share: the program in a world of its own, mounts that go away with the
//! test, waiting.
//!
//! # Guarantees
//! 1. Nothing outside the test's own temporary directory is written: home, data, sockets, logs and
//!    stores are in there.
//! 2. However a test ends, its mounts are gone, its daemons are dead and its directory is removed.
//! 3. Only processes that the test started are ended, by number, after a look at what they are.

#[path = "../support/guests.rs"]
mod guests;
#[path = "../support/waiting.rs"]
mod waiting;
#[path = "../support/world.rs"]
mod world;

pub(crate) use guests::{guests_of, has_guests};
pub(crate) use teal_testkit::{
    ProgramOutput, TestLoopDevice, TestMount, find_program, has_loop_devices, run_program,
};
pub(crate) use waiting::{PATIENCE, wait_until};
pub(crate) use world::World;
