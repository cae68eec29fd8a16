//! fsx on a mount: random operations on one file, mapped memory included, against what fsx remembers; then what comes back.

#![allow(clippy::unwrap_used, reason = "a test whose ground gives way fails")]

#[path = "support/support.rs"]
mod support;

use std::process::Command;
use support::{Mounted, digest, is_long, run, tool};

// At least a byte: the suite asks for empty ranges otherwise, which are EINVAL everywhere. It has no O_DIRECT and no FALLOC_FL_ZERO_RANGE:
// those are mixed with all the rest in `one_file.rs`.
const CONFIG: &str = "
flen = 262144
[opsize]
min = 1
max = 65536
[weights]
close_open = 1
read = 10
write = 10
mapread = 10
mapwrite = 10
truncate = 5
fsync = 2
fdatasync = 2
invalidate = 1
punch_hole = 3
sendfile = 1
copy_file_range = 10
posix_fallocate = 2
";

/// On whole blocks, so that copies share them. Ranges of less than a block become empty, which posix_fallocate refuses.
const WHOLE_BLOCKS: [(&str, &str); 3] = [
    ("max = 65536", "max = 262144\nalign = 4096"),
    ("flen = 262144", "flen = 1048576"),
    ("posix_fallocate = 2", "posix_fallocate = 0"),
];

/// In the long form another seed besides, and more operations.
fn fsx(test: &str, seed: u32) {
    if is_long() {
        fsx_with(test, seed + 4, "100000", CONFIG);
    }
    fsx_with(test, seed, if is_long() { "100000" } else { "50000" }, CONFIG);
}

fn fsx_with(test: &str, seed: u32, ops: &str, settings: &str) {
    let Some(mut m) = Mounted::new(test, "512M") else { return };
    let Some(fsx) = tool("fsx") else {
        return teal_testkit::skip(test, "fsx is not installed; `cargo xtask test` installs it");
    };
    let (config, file) = (m.world().path("fsx.toml"), m.path("file"));
    std::fs::write(&config, settings).unwrap();
    // fsx compares every read with its memory and the whole file at the end of every opening.
    let mut command = Command::new(fsx);
    command.args(["-q", "-N", ops, "-S", &seed.to_string(), "-f"]).arg(&config).arg("-P").arg(m.world().path(""));
    let said = run(m.world().furnish(&mut command).arg(&file));
    assert_eq!(said.code, 0, "seed {seed}: {said}");
    let before = digest(&file);
    assert!(before.0 > 0, "seed {seed} left a file");
    let shared = m.counter("bytes_shared");
    assert!(shared > 0 || !settings.contains("align"), "seed {seed} shared nothing");
    m.remount();
    assert_eq!(digest(&file), before, "seed {seed}");
    m.down();
    m.check();
}

#[test]
fn fsx_seed_1_sees_its_own_writes() {
    fsx("fsx_seed_1_sees_its_own_writes", 1);
}

#[test]
fn fsx_seed_2_sees_its_own_writes() {
    fsx("fsx_seed_2_sees_its_own_writes", 2);
}

#[test]
fn fsx_seed_3_sees_its_own_writes() {
    fsx("fsx_seed_3_sees_its_own_writes", 3);
}

#[test]
fn fsx_seed_4_sees_its_own_writes() {
    fsx("fsx_seed_4_sees_its_own_writes", 4);
}

fn fsx_of_whole_blocks(test: &str, seed: u32) {
    let settings = WHOLE_BLOCKS.iter().fold(CONFIG.to_owned(), |text, (old, new)| text.replace(old, new));
    fsx_with(test, seed, "15000", &settings);
}

#[test]
fn fsx_seed_5_sees_its_own_writes_in_shared_blocks() {
    fsx_of_whole_blocks("fsx_seed_5_sees_its_own_writes_in_shared_blocks", 5);
}

#[test]
fn fsx_seed_6_sees_its_own_writes_in_shared_blocks() {
    fsx_of_whole_blocks("fsx_seed_6_sees_its_own_writes_in_shared_blocks", 6);
}
