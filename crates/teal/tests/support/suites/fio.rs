//! fio: blocks that carry their own checksum, written by several jobs at once, and verified.

use super::super::{Mounted, ProgramOutput, find_program, run_program};
use std::path::Path;
use std::process::Command;

/// The options that all runs share.
const JOBS: &str = "
[global]
verify=crc32c
verify_fatal=1
randseed=7
allrandrepeat=1
";

/// Runs jobs of `size` each in a directory on a mount; `None`, on record as skipped, where it is
/// not installed.
#[track_caller]
pub(crate) fn fio(
    test: &str,
    m: &Mounted,
    dir: &Path,
    (jobs, size): (&str, &str),
    extra: &[&str],
) -> Option<ProgramOutput> {
    if find_program("fio", &[]).is_none() {
        teal_testkit::skip_test(test, "fio is not installed; `cargo xtask test` installs it");
        return None;
    }
    let file = m.world().path("jobs.fio");
    std::fs::write(
        &file,
        format!("{JOBS}size={size}\ndirectory={}\n{jobs}", dir.display()),
    )
    .unwrap();
    let mut command = Command::new("fio");
    Some(run_program(
        m.world().furnish(&mut command).args(extra).arg(&file),
    ))
}

/// Four jobs: blocks of mixed sizes.
pub(crate) const MIXED: &str = "
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

/// Four jobs: past the cache, and in mapped memory.
pub(crate) const DIRECT_AND_MAPPED: &str = "
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

/// A database that writes past the cache, many blocks at once, and two backups that read the same
/// file through it meanwhile.
pub(crate) const ASYNC_BESIDE_BUFFERED: &str = "
[database]
filename=database
rw=randwrite
bs=4k
ioengine=libaio
iodepth=128
direct=1
verify=0
loops=8
exitall
[backup]
filename=database
rw=read
bs=4k
ioengine=psync
verify=0
invalidate=0
numjobs=2
time_based=1
runtime=60
";
