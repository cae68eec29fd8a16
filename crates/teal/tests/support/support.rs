//! The parts that the end-to-end tests share: the program in a world of its own, mounts that go
//! away with the test, waiting.
//!
//! # Guarantees
//! 1. Nothing outside the test's own temporary directory is written: home, data, sockets, logs and
//!    stores are in there.
//! 2. However a test ends, its mounts are gone, its daemons are dead and its directory is removed.
//! 3. Only processes that the test started are ended, by number, after a look at what they are.

#![allow(
    dead_code,
    unused_imports,
    reason = "every test binary uses its own part"
)]
#![allow(clippy::unwrap_used, reason = "a test whose ground gives way fails")]

mod alike;
mod cable;
mod history;
mod outside;
mod pair;
pub(crate) mod stranger;
mod suites;
mod tree;
mod work;
mod world;

pub(crate) use alike::{Script, behaves_as_below};
pub(crate) use cable::Cable;
pub(crate) use history::History;
pub(crate) use outside::{
    PrivateMounts, closed_to_others, is_long, is_root, is_user_able, shell, tool,
};
pub(crate) use pair::{Nas, apart, apart_in, converge, end, flush, join, try_join};
pub(crate) use suites::{
    ASYNC_BESIDE_BUFFERED, DIRECT_AND_MAPPED, MIXED, fio, fsx, git, pjdfstest, postgresql, sources,
    sqlite,
};
pub(crate) use tree::{are_alike, compare_replicas, compare_trees, digest, fill, seeded};
pub(crate) use work::{Library, Work};
pub(crate) use world::{Mounted, TEAL, World};

pub(crate) use teal_testkit::{
    ProgramOutput, TestLoopDevice, TestMount, find_program, has_loop_devices, run_program,
};

use std::path::Path;
use std::time::Duration;
use teal_env::{Clock as _, SystemClock};

/// The longest time that anything which must happen may take on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Polls `condition` until it holds; `false` if it does not within `limit`.
#[must_use]
pub(crate) fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = SystemClock.monotonic_time() + limit;
    while !condition() {
        if SystemClock.monotonic_time() >= end {
            return false;
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    true
}

/// Lets `time` go by, for tests that promise that nothing happens in it.
pub(crate) fn let_pass(time: Duration) {
    assert!(!wait_until(time, || false), "time passes");
}

/// Verifies every structure of a store that is not mounted.
#[track_caller]
pub(crate) fn check(world: &World, store: &Path) {
    let said = world.teal(&["check".as_ref(), store.as_os_str()]);
    assert_eq!(said.code, 0, "check of {}: {said}", store.display());
}
