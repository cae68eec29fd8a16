//! The outside POSIX suite on a mount.

#![allow(clippy::unwrap_used, reason = "a test whose ground gives way fails")]

#[path = "support/support.rs"]
mod support;

use support::{Mounted, World, pjdfstest};

#[test]
fn pjdfstest_passes() {
    let test = "pjdfstest_passes";
    if World::new(test).is_none() {
        return;
    }
    let mut m = Mounted::of(World::open_to_all(), "1G");
    if pjdfstest(test, &m) {
        m.down();
        m.check();
    }
}
