//! The outside POSIX suite on a mount.

#![allow(clippy::unwrap_used, reason = "a test whose ground gives way fails")]

#[path = "support/support.rs"]
mod support;

use support::{Mounted, pjdfstest};

#[test]
fn pjdfstest_passes() {
    let test = "pjdfstest_passes";
    let Some(mut m) = Mounted::new(test, "1G") else { return };
    if pjdfstest(test, &m) {
        m.down();
        m.check();
    }
}
