//! fsx on a mount, and what comes back.

use super::support::{Mounted, digest, fsx, is_long};

/// In the long form another seed besides, and more operations.
fn of_bytes(test: &str, seed: u32) {
    if is_long() {
        comes_back(test, seed + 4, 100_000, false);
    }
    comes_back(test, seed, if is_long() { 100_000 } else { 50_000 }, false);
}

fn comes_back(test: &str, seed: u32, ops: u32, whole_blocks: bool) {
    let Some(mut m) = Mounted::new(test, "512M") else {
        return;
    };
    let Some(before) = fsx(test, &m, "file", (seed, ops), whole_blocks) else {
        return;
    };
    let shared = m.counter("bytes_shared");
    assert!(shared > 0 || !whole_blocks, "seed {seed} shared nothing");
    m.remount();
    assert_eq!(digest(&m.path("file")), before, "seed {seed}");
    m.down();
    m.check();
}

#[test]
fn fsx_seed_1_sees_its_own_writes() {
    of_bytes("fsx_seed_1_sees_its_own_writes", 1);
}

#[test]
fn fsx_seed_2_sees_its_own_writes() {
    of_bytes("fsx_seed_2_sees_its_own_writes", 2);
}

#[test]
fn fsx_seed_3_sees_its_own_writes() {
    of_bytes("fsx_seed_3_sees_its_own_writes", 3);
}

#[test]
fn fsx_seed_4_sees_its_own_writes() {
    of_bytes("fsx_seed_4_sees_its_own_writes", 4);
}

fn fsx_of_whole_blocks(test: &str, seed: u32) {
    comes_back(test, seed, 15_000, true);
}

#[test]
fn fsx_seed_5_sees_its_own_writes_in_shared_blocks() {
    fsx_of_whole_blocks("fsx_seed_5_sees_its_own_writes_in_shared_blocks", 5);
}

#[test]
fn fsx_seed_6_sees_its_own_writes_in_shared_blocks() {
    fsx_of_whole_blocks("fsx_seed_6_sees_its_own_writes_in_shared_blocks", 6);
}
