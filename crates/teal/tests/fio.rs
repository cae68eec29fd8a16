//! fio on a mount: verified before and after a remount.

#![allow(clippy::unwrap_used, reason = "a test whose ground gives way fails")]

#[path = "support/support.rs"]
mod support;

use support::{DIRECT_AND_MAPPED, MIXED, Mounted, fio};

/// Writes, verifies what the cache and the daemon hold, remounts, and verifies what the store holds.
fn written_and_verified(test: &str, jobs: &str) {
    let Some(mut m) = Mounted::new(test, "512M") else { return };
    let run = |m: &Mounted, extra| fio(test, m, m.point(), (jobs, "24m"), extra);
    let Some(said) = run(&m, &["--do_verify=1"]) else { return };
    said.good();
    m.remount();
    run(&m, &["--verify_only"]).unwrap().good();
    // The seeded bug: a wrong byte is found.
    let victim = std::fs::read_dir(m.point()).unwrap().next().unwrap().unwrap().path();
    let file = std::fs::OpenOptions::new().write(true).open(&victim).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"wrong", 1_000_001).unwrap();
    drop(file);
    assert_ne!(run(&m, &["--verify_only"]).unwrap().code, 0, "fio sees a wrong byte in {}", victim.display());
    m.down();
    m.check();
}

#[test]
fn blocks_of_mixed_sizes_come_back() {
    written_and_verified("blocks_of_mixed_sizes_come_back", MIXED);
}

#[test]
fn direct_and_mapped_blocks_come_back() {
    written_and_verified("direct_and_mapped_blocks_come_back", DIRECT_AND_MAPPED);
}
