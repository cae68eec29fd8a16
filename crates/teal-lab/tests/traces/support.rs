//! What the end-to-end tests share: the program in a world of its own, mounts that go away with the
//! test, waiting.
//!
//! # Guarantees
//! 1. Nothing outside the test's own temporary directory is written: home, data, sockets, logs and
//!    stores are in there.
//! 2. However a test ends, its mounts are gone, its daemons are dead and its directory is removed.
//! 3. Only processes that the test started are ended, by number, after a look at what they are.

#[path = "../support/mounted.rs"]
mod mounted;
#[path = "../support/waiting.rs"]
mod waiting;
#[path = "../support/world.rs"]
mod world;

pub(crate) use mounted::Mounted;
pub(crate) use teal_testkit::{ProgramOutput, find_program, run_program};
pub(crate) use waiting::{PATIENCE, wait_until};
pub(crate) use world::World;

use std::path::Path;
use std::time::Duration;

/// Lets `time` go by, for tests whose promise is that nothing happens in it.
pub(crate) fn let_pass(time: Duration) {
    assert!(!wait_until(time, || false), "time passes");
}

/// Verifies every structure of a store that is not mounted.
#[track_caller]
pub(crate) fn check(world: &World, store: &Path) {
    let said = world.teal(&["check".as_ref(), store.as_os_str()]);
    assert_eq!(said.code, 0, "check of {}: {said}", store.display());
}

/// Returns whether the long forms run, which take hours: `cargo xtask test --long`.
pub(crate) fn is_long() -> bool {
    std::env::var_os("TEAL_LONG").is_some()
}

/// Returns `len` bytes drawn with this seed.
pub(crate) fn seeded(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    teal_testkit::Rng::new(seed).fill(&mut bytes);
    bytes
}
