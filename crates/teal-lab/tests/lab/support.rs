//! What the end-to-end tests share: the program in a world of its own, mounts that go away with the test, waiting.
//!
//! # Guarantees
//! 1. Nothing outside the test's own temporary directory is written: home, data, sockets, logs and stores are in there.
//! 2. However a test ends, its mounts are gone, its daemons are dead and its directory is removed.
//! 3. Only processes that the test started are ended, by number, after a look at what they are.

mod devices;
mod guests;
mod said;
mod world;

pub(crate) use devices::{LoopDevice, Point, has_loop_devices};
pub(crate) use guests::{guests_of, has_guests};
pub(crate) use said::{Said, run};
pub(crate) use world::{Mounted, World};

use std::path::{Path, PathBuf};
use std::time::Duration;
use teal_env::{Clock as _, SystemClock};

/// How long anything that must happen may take on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Polls `condition` until it holds; `false` if it does not within `limit`.
#[must_use]
pub(crate) fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = SystemClock.monotonic() + limit;
    while !condition() {
        if SystemClock.monotonic() >= end {
            return false;
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    true
}

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

/// Returns the program `name` in `PATH`, in one of `also`, or where only root has it in `PATH`.
pub(crate) fn program(name: &str, also: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let places = std::env::split_paths(&path)
        .chain(also.iter().map(PathBuf::from))
        .chain(system);
    places.map(|dir| dir.join(name)).find(|file| file.is_file())
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
