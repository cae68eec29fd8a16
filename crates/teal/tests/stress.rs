//! stress-ng on a mount: every stressor of its class for file systems, with its own verification.

#![allow(clippy::unwrap_used, reason = "a test whose ground gives way fails")]

#[path = "support/support.rs"]
mod support;

use std::path::Path;
use std::process::Command;
use support::{Mounted, PrivateMounts, ProgramOutput, find_program, is_long, run_program};

/// Stressors of the class that do nothing here, with the reason. `docs/semantics.md` lists the
/// same.
const INAPPLICABLE: [(&str, &str); 8] = [
    (
        "bind-mount",
        "mounts over its own directories, not files of the mount",
    ),
    ("binderfs", "mounts another file system"),
    ("eventfd", "files without a file system"),
    ("fiemap", "FUSE has no FIEMAP"),
    (
        "inode-flags",
        "the flags of ext4 (FS_IOC_SETFLAGS) are ENOTTY",
    ),
    ("ioprio", "priorities of processes"),
    ("procfs", "reads /proc"),
    ("verity", "the kernel has no fs-verity for FUSE"),
];

/// Stressors of other classes that work on files as well.
const ALSO: [&str; 9] = [
    "aio",
    "aiol",
    "mmap",
    "msync",
    "readahead",
    "revio",
    "seek",
    "sendfile",
    "unlink",
];

/// Runs it where this FUSE mount is the only one: some stressors sync every file system they see,
/// and a foreign one may be dead.
fn stress_ng(m: &Mounted, private: &PrivateMounts<'_>, args: &[&str]) -> ProgramOutput {
    const SCRIPT: &str = r#"
        point="$1"; shift
        findmnt --noheadings --list --output FSTYPE,TARGET | while read -r kind other; do
            case "$kind" in fuse | fuse.* | fuseblk | fuseblk.*) test "$other" = "$point" || umount --lazy "$other" ;; esac
        done
        exec stress-ng --verify --temp-path "$point" "$@"
    "#;
    let args: Vec<&Path> = [m.point()]
        .into_iter()
        .chain(args.iter().map(Path::new))
        .collect();
    private.run(SCRIPT, &args)
}

/// Returns the stressors of the class that this version has; each is run and must neither fail nor
/// skip itself.
fn stressors() -> Vec<String> {
    // The program lists them on one of its outputs and ends with an error, because a class named
    // `filesystem?` does not exist.
    let said = run_program(Command::new("stress-ng").args(["--class", "filesystem?"]));
    let said = format!("{}{}", said.stdout, said.stderr);
    let (_, names) = said
        .split_once("stressors:")
        .unwrap_or_else(|| panic!("stress-ng does not list: {said}"));
    let class = names
        .split_whitespace()
        .filter(|name| INAPPLICABLE.iter().all(|(not, _)| not != name));
    let mut all: Vec<_> = class.chain(ALSO).map(str::to_owned).collect();
    all.sort();
    all.dedup();
    assert!(all.len() > 40, "{all:?}");
    all
}

/// Runs the part of the stressors that `belongs`, one after the other, and checks the store.
fn stressed(test: &str, belongs: impl Fn(usize) -> bool) {
    let Some(mut m) = Mounted::new(test, "2G") else {
        return;
    };
    if find_program("stress-ng", &[]).is_none() {
        return teal_testkit::skip_test(
            test,
            "stress-ng is not installed; `cargo xtask test` installs it",
        );
    }
    let Some(private) = PrivateMounts::new(m.world()) else {
        return teal_testkit::skip_test(test, "mount namespaces cannot be made here");
    };
    let time = if is_long() { "20" } else { "1" };
    let requests = |m: &Mounted| -> u64 {
        m.status()["requests"]
            .as_array()
            .unwrap()
            .iter()
            .map(|count| count[1].as_u64().unwrap())
            .sum()
    };
    for (_, name) in stressors()
        .iter()
        .enumerate()
        .filter(|(at, _)| belongs(*at))
    {
        let (option, before) = (format!("--{name}"), requests(&m));
        let said = stress_ng(&m, &private, &[&option, "2", "--timeout", time]);
        let is_known = !said.stderr.contains("unrecognized option");
        assert!(
            said.code == 0 || !is_known && ALSO.contains(&name.as_str()),
            "{name}: {said}"
        );
        assert!(
            !said.to_string().contains("skipping"),
            "{name} skipped itself: {said}"
        );
        assert!(
            requests(&m) > before || !is_known,
            "{name} did not touch the mount"
        );
    }
    let left: Vec<_> = std::fs::read_dir(m.point()).unwrap().collect();
    assert!(left.is_empty(), "the stressors clean up: {left:?}");
    m.remount();
    m.down();
    m.check();
}

#[test]
fn stressors_find_nothing_wrong() {
    stressed("stressors_find_nothing_wrong", |at| at % 2 == 0);
}

#[test]
fn the_other_stressors_find_nothing_wrong() {
    stressed("the_other_stressors_find_nothing_wrong", |at| at % 2 == 1);
}
