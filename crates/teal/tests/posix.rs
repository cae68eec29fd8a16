//! The outside POSIX suite: pjdfstest on a mount.

#![allow(clippy::unwrap_used, reason = "a test whose ground gives way fails")]

#[path = "support/support.rs"]
mod support;

use support::{Mounted, PrivateMounts, tool};

/// Cases that cannot apply, as the suite names them, with the reason. `docs/semantics.md` lists the same.
const INAPPLICABLE: &[(&str, &str)] =
    &[("link::link_count_max", "the suite asks pathconf(_PC_LINK_MAX), which Linux answers for no FUSE file system")];

const CONFIG: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utimensat = {}
utime_now = {}

[settings]
naptime = 0.01
allow_remount = true

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"], ["bin", "bin"]]
"#;

#[test]
fn pjdfstest_passes() {
    let test = "pjdfstest_passes";
    let Some(m) = Mounted::new(test, "1G") else { return };
    let Some(suite) = tool("pjdfstest") else {
        return teal_testkit::skip(test, "pjdfstest is not installed; `cargo xtask test` installs it");
    };
    let Some(private) = PrivateMounts::new(m.world()) else {
        return teal_testkit::skip(test, "mount namespaces cannot be made here");
    };
    let (config, second) = (m.world().path("pjdfstest.toml"), m.world().path("second"));
    std::fs::write(&config, CONFIG).unwrap();
    std::fs::create_dir(&second).unwrap();
    rustix::fs::chmod(m.point(), rustix::fs::Mode::from_raw_mode(0o755)).unwrap();
    let script = r#"
        mount -t tmpfs second "$3"
        exec "$1" -c "$2" -s "$3" -p "$4"
    "#;
    let said = private.with_mount_programs(script, &[&suite, &config, &second, m.point()]);
    std::fs::write(concat!(env!("CARGO_TARGET_TMPDIR"), "/pjdfstest.out"), &said.stdout).unwrap();
    println!("{}", said.stdout);
    assert_eq!(said.code, 0, "{said}");
}
