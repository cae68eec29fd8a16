//! fio on a mount: blocks that carry their own checksum, written by four jobs at once, verified before and after a remount.

#![allow(clippy::unwrap_used, reason = "a test whose ground gives way fails")]

#[path = "support/support.rs"]
mod support;

use std::process::Command;
use support::{Mounted, Said, program, run};

/// What all runs share: four jobs with a file each.
const JOBS: &str = "
[global]
verify=crc32c
verify_fatal=1
size=24m
randseed=7
allrandrepeat=1
";

fn fio(m: &Mounted, jobs: &str, extra: &[&str]) -> Said {
    let file = m.world().path("jobs.fio");
    std::fs::write(&file, format!("{JOBS}directory={}\n{jobs}", m.point().display())).unwrap();
    let mut command = Command::new("fio");
    run(m.world().furnish(&mut command).args(extra).arg(&file))
}

/// Writes, verifies what the cache and the daemon hold, remounts, and verifies what the store holds.
fn written_and_verified(test: &str, jobs: &str) {
    let Some(mut m) = Mounted::new(test, "512M") else { return };
    if program("fio", &[]).is_none() {
        return teal_testkit::skip(test, "fio is not installed; `cargo xtask test` installs it");
    }
    fio(&m, jobs, &["--do_verify=1"]).good();
    m.remount();
    fio(&m, jobs, &["--verify_only"]).good();
    // The seeded bug: a wrong byte is found.
    let victim = std::fs::read_dir(m.point()).unwrap().next().unwrap().unwrap().path();
    let file = std::fs::OpenOptions::new().write(true).open(&victim).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"wrong", 1_000_001).unwrap();
    drop(file);
    assert_ne!(fio(&m, jobs, &["--verify_only"]).code, 0, "fio sees a wrong byte in {}", victim.display());
    m.down();
    m.check();
}

#[test]
fn blocks_of_mixed_sizes_come_back() {
    let jobs = "
[random]
rw=randwrite
bsrange=1k-64k
bs_unaligned=1
fsync=64
[random blocks]
rw=randwrite
bs=4k
fdatasync=32
[sequential]
rw=write
bsrange=4k-256k
fsync=16
[small sequential]
rw=write
bs=4k
end_fsync=1
";
    written_and_verified("blocks_of_mixed_sizes_come_back", jobs);
}

#[test]
fn direct_and_mapped_blocks_come_back() {
    let jobs = "
[direct random]
rw=randwrite
bsrange=4k-128k
direct=1
fsync=64
[direct sequential]
rw=write
bs=64k
direct=1
[mapped random]
rw=randwrite
bs=4k
ioengine=mmap
fsync=128
[mapped sequential]
rw=write
bs=16k
ioengine=mmap
end_fsync=1
";
    written_and_verified("direct_and_mapped_blocks_come_back", jobs);
}
