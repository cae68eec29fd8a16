//! fio on a mount: verified before and after a remount.

use super::support::{ASYNC_BESIDE_BUFFERED, DIRECT_AND_MAPPED, MIXED, Mounted, fio, is_long};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// Writes, verifies what the cache and the daemon hold, remounts, and verifies what the store
/// holds.
fn written_and_verified(test: &str, jobs: &str) {
    let Some(mut m) = Mounted::new(test, "512M") else {
        return;
    };
    let run = |m: &Mounted, extra| fio(test, m, m.point(), (jobs, "24m"), extra);
    let Some(said) = run(&m, &["--do_verify=1"]) else {
        return;
    };
    said.expect_success();
    m.remount();
    run(&m, &["--verify_only"]).unwrap().expect_success();
    // The seeded bug: a wrong byte is found.
    let victim = std::fs::read_dir(m.point())
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&victim)
        .unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"wrong", 1_000_001).unwrap();
    drop(file);
    assert_ne!(
        run(&m, &["--verify_only"]).unwrap().code,
        0,
        "fio sees a wrong byte in {}",
        victim.display()
    );
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

/// The content of a file as the daemon has it, past the page cache.
fn uncached(path: &Path) -> Vec<u8> {
    let direct = rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECT, Mode::empty()).unwrap();
    let mut content = Vec::new();
    File::from(direct).read_to_end(&mut content).unwrap();
    content
}

/// Blocks that the page cache shows as they are not any more.
fn stale_blocks(path: &Path) -> usize {
    let (cached, stored) = (std::fs::read(path).unwrap(), uncached(path));
    assert_eq!(cached.len(), stored.len());
    let blocks = cached.chunks(4096).zip(stored.chunks(4096));
    blocks.filter(|(cached, stored)| cached != stored).count()
}

#[test]
fn who_reads_through_the_cache_sees_asynchronous_direct_writes() {
    let test = "who_reads_through_the_cache_sees_asynchronous_direct_writes";
    let Some(mut m) = Mounted::new(test, "512M") else {
        return;
    };
    let path = m.path("database");
    // One or two blocks of each round were old for good while direct writes were sent one beside
    // the other.
    let rounds = if is_long() { 100 } else { 8 };
    for round in 0..rounds {
        let Some(said) = fio(test, &m, m.point(), (ASYNC_BESIDE_BUFFERED, "4m"), &[]) else {
            return;
        };
        said.expect_success();
        assert_eq!(
            stale_blocks(&path),
            0,
            "blocks are old in the page cache after round {round}"
        );
        std::fs::remove_file(&path).unwrap();
    }
    m.down();
    m.check();
}
