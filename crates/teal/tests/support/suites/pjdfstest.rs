//! pjdfstest, the outside POSIX suite.

use super::super::{Mounted, PrivateMounts, closed_to_others, tool};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Cases that cannot apply, as the suite names them, with the reason. `docs/semantics.md` lists the
/// same.
const INAPPLICABLE: &[(&str, &str)] = &[(
    "link::link_count_max",
    "the suite asks pathconf(_PC_LINK_MAX), which Linux answers for no FUSE file system",
)];

const CONFIG: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utimensat = {}
utime_now = {}

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"], ["bin", "bin"]]
"#;

/// The result of every case of a run, by name.
fn results(output: &str) -> BTreeMap<String, Outcome> {
    let outcomes = [
        ("ok", Outcome::Passed),
        ("skipped", Outcome::Skipped),
        ("FAILED", Outcome::Failed),
    ];
    let each = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, outcome) = (words.next()?, words.next()?);
        let (_, outcome) = outcomes.iter().find(|(word, _)| *word == outcome)?;
        (name.contains("::") && words.next().is_none()).then(|| (name.to_owned(), *outcome))
    };
    output.lines().filter_map(each).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Passed,
    Skipped,
    Failed,
}

/// Runs every case on a mount in a [`World::open_to_all`](super::super::World::open_to_all), since
/// some become other users; `false`, on record as skipped, where it cannot run.
#[track_caller]
pub(crate) fn pjdfstest(test: &str, m: &Mounted) -> bool {
    let Some(suite) = tool("pjdfstest") else {
        teal_testkit::skip_test(
            test,
            "pjdfstest is not installed; `cargo xtask test` installs it",
        );
        return false;
    };
    let Some(private) = PrivateMounts::new(m.world()) else {
        teal_testkit::skip_test(test, "mount namespaces cannot be made here");
        return false;
    };
    if let Some(closed) = closed_to_others(m.point()) {
        let why = format!(
            "runs as other users, who cannot come through {}: set TMPDIR",
            closed.display()
        );
        teal_testkit::skip_test(test, &why);
        return false;
    }
    let (config, second) = (m.world().path("pjdfstest.toml"), m.world().path("second"));
    std::fs::create_dir(&second).unwrap();
    rustix::fs::chmod(m.point(), rustix::fs::Mode::from_raw_mode(0o755)).unwrap();
    let run = |may_remount: bool, filter: &str| {
        std::fs::write(
            &config,
            format!("{CONFIG}\n[settings]\nnaptime = 0.01\nallow_remount = {may_remount}\n"),
        )
        .unwrap();
        let script = r#"
            mount -t tmpfs second "$3"
            exec "$1" -c "$2" -s "$3" -p "$4" $5
        "#;
        let said = private.with_mount_programs(
            script,
            &[&suite, &config, &second, m.point(), Path::new(filter)],
        );
        let found = results(&said.stdout);
        let failed: Vec<_> = found
            .iter()
            .filter(|(_, outcome)| **outcome == Outcome::Failed)
            .collect();
        assert!(said.code == 0 && failed.is_empty(), "{failed:?}\n{said}");
        found
    };
    // Other cases leave files open, on any file system: remounting read-only needs a run of its
    // own.
    let remounted = run(true, "erofs");
    let mut all = run(false, "");
    all.extend(remounted);
    let skipped: BTreeSet<&str> = all
        .iter()
        .filter(|(_, outcome)| **outcome == Outcome::Skipped)
        .map(|(name, _)| name.as_str())
        .collect();
    let allowed: BTreeSet<&str> = INAPPLICABLE.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        skipped, allowed,
        "cases that cannot apply, and only those, are left out"
    );
    assert!(all.len() >= 398, "the suite has {} cases", all.len());
    true
}
