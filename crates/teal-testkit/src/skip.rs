//! Records tests that cannot run here, so that they are not counted as passed.

use rustix::fs::{Mode, OFlags};

/// Records that the calling test cannot run here; the test returns afterwards. `cargo xtask test`
/// counts it as skipped.
///
/// # Panics
/// If the file that `TEAL_SKIPS` names cannot be written: an unrecorded skip would pass for a
/// success.
pub fn skip_test(test: &str, reason: &str) {
    eprintln!("skipped: {test}: {reason}");
    let Some(path) = std::env::var_os("TEAL_SKIPS") else {
        return;
    };
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)
        .expect("the file TEAL_SKIPS names opens");
    let line = format!("{test}: {}\n", reason.replace('\n', " "));
    // One write: lines of tests that run at the same time do not mix.
    let written =
        rustix::io::write(&file, line.as_bytes()).expect("the file TEAL_SKIPS names takes a line");
    assert_eq!(written, line.len(), "the skip is on record");
}
