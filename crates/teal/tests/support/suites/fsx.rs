//! fsx: random operations on one file, mapped memory included, against what fsx remembers.

use super::super::{Mounted, digest, run_program, tool};
use std::process::Command;

// At least a byte: the suite asks for empty ranges otherwise, which are EINVAL everywhere. It has
// no O_DIRECT and no FALLOC_FL_ZERO_RANGE: those are mixed with all the rest in `one_file.rs`.
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

/// On whole blocks, so that copies share them. Ranges of less than a block become empty, which
/// posix_fallocate refuses.
const WHOLE_BLOCKS: [(&str, &str); 3] = [
    ("max = 65536", "max = 262144\nalign = 4096"),
    ("flen = 262144", "flen = 1048576"),
    ("posix_fallocate = 2", "posix_fallocate = 0"),
];

/// Runs it on a new file of a mount, in `whole blocks` or not; the digest of what it leaves.
/// `None`, on record as skipped, where it is not installed.
#[track_caller]
pub(crate) fn fsx(
    test: &str,
    m: &Mounted,
    name: &str,
    (seed, ops): (u32, u32),
    whole_blocks: bool,
) -> Option<(u64, u128)> {
    let Some(fsx) = tool("fsx") else {
        teal_testkit::skip_test(test, "fsx is not installed; `cargo xtask test` installs it");
        return None;
    };
    let changes = if whole_blocks { &WHOLE_BLOCKS[..] } else { &[] };
    let settings = changes
        .iter()
        .fold(CONFIG.to_owned(), |text, (old, new)| text.replace(old, new));
    let (config, file) = (m.world().path(format!("{name}.toml")), m.path(name));
    std::fs::write(&config, settings).unwrap();
    // fsx compares every read with its memory and the whole file at the end of every opening.
    let mut command = Command::new(fsx);
    command
        .args(["-q", "-N", &ops.to_string(), "-S", &seed.to_string(), "-f"])
        .arg(&config);
    let said = run_program(
        m.world()
            .furnish(&mut command)
            .arg("-P")
            .arg(m.world().path(""))
            .arg(&file),
    );
    assert_eq!(said.code, 0, "seed {seed}: {said}");
    let left = digest(&file);
    assert!(left.0 > 0, "seed {seed} left a file");
    Some(left)
}
