//! The outside POSIX suite on a mount.

use super::support::{Mounted, World, pjdfstest};

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
