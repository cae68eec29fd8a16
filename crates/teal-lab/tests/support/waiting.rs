//! Waiting for what must happen, and finding programs.

use std::path::PathBuf;
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

/// Returns the program `name` in `PATH`, in one of `also`, or where only root has it in `PATH`.
pub(crate) fn program(name: &str, also: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let places = std::env::split_paths(&path)
        .chain(also.iter().map(PathBuf::from))
        .chain(system);
    places.map(|dir| dir.join(name)).find(|file| file.is_file())
}
