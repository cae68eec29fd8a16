//! SQLite, with a daemon that is killed while it works.
//!
//! # What counts as acknowledged
//! A commit with a rollback journal ends with the removal of the journal, and with EXTRA also with
//! a sync of the directory. If the daemon dies between the two, the kernel cannot open the
//! directory any more: every change of its names makes the kernel forget its attributes, and the
//! check of permissions in `open` asks for them with a GETATTR that gets no answer (`ENOTCONN`,
//! `ECONNABORTED`). SQLite takes a directory that cannot be opened for one that needs no sync and
//! reports success. It says so in its log, which it writes before the commit returns: from that
//! line on nothing counts as acknowledged. SQLite reports a sync that fails after an `open` that
//! did not.

use super::super::{Mounted, PATIENCE, find_program, run_program, wait_until};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

/// The line in SQLite's log for a directory that it cannot open and therefore does not sync.
const NOT_SYNCED: &str = "openDirectory(";

/// A client that says after each transaction which one it was; killed with its daemon when enough
/// were acknowledged.
fn acknowledged(mut child: Child, enough: u64, kill: impl FnOnce()) -> u64 {
    let (sender, receiver) = mpsc::channel();
    let out = child.stdout.take().unwrap();
    let reader = std::thread::Builder::new().spawn(move || {
        let mut is_synced = true;
        // Read to the end in any case: a client that cannot write waits.
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            is_synced &= !line.contains(NOT_SYNCED);
            if !is_synced {
                continue;
            }
            if let Ok(n) = line.trim().parse::<u64>() {
                sender.send(n).unwrap();
            }
        }
    });
    let mut last = 0;
    let is_enough = wait_until(PATIENCE * 2, || {
        last = receiver.try_iter().last().unwrap_or(last);
        last >= enough
    });
    kill();
    let _ = child.kill();
    let _ = child.wait();
    reader.unwrap().join().unwrap();
    assert!(
        is_enough,
        "{last} of {enough} transactions were acknowledged in time"
    );
    receiver.try_iter().last().unwrap_or(last)
}

/// Checks that a database in `journal` mode on a mount with a daemon that is killed `rounds` times
/// keeps every acknowledged commit. Returns `false`, on record as skipped, where SQLite is not
/// installed.
#[track_caller]
pub(crate) fn sqlite(test: &str, m: &mut Mounted, journal: &str, rounds: u32) -> bool {
    if find_program("sqlite3", &[]).is_none() {
        teal_testkit::skip_test(test, "sqlite3 is not installed");
        return false;
    }
    let db = m.path("data.db");
    let query = |sql: &str| run_program(Command::new("sqlite3").arg(&db).arg(sql)).expect_success();
    query(&format!(
        "PRAGMA journal_mode={journal}; CREATE TABLE t(n INTEGER PRIMARY KEY, x BLOB);"
    ));
    let mut before = 0;
    for round in 1..=rounds {
        // With less than EXTRA, SQLite itself does not wait for the end of the rollback journal.
        // Each INSERT is a transaction; the SELECT after it says that it was acknowledged.
        let script = r#"
            (echo '.log stdout'
            echo 'PRAGMA synchronous=EXTRA;'
            n=$2
            while [ $n -lt 100000 ]; do
                n=$((n + 1))
                echo "INSERT INTO t VALUES($n, randomblob(abs(random()) % 5000)); SELECT $n;"
            done) | exec sqlite3 -bail "$1"
        "#;
        let mut command = Command::new("sh");
        command
            .args(["-c", script, "sh"])
            .arg(&db)
            .arg(before.to_string());
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let seen = acknowledged(child, before + 150, || m.kill());
        m.up();
        assert_eq!(query("PRAGMA integrity_check;").trim(), "ok");
        assert_eq!(
            query(&format!("SELECT count(*) FROM t WHERE n <= {seen};")).trim(),
            seen.to_string()
        );
        let max: u64 = query("SELECT max(n) FROM t;").trim().parse().unwrap();
        assert!(
            max == seen || max == seen + 1,
            "round {round}: {seen} acknowledged, {max} there"
        );
        before = max;
    }
    m.remount();
    assert_eq!(query("PRAGMA integrity_check;").trim(), "ok");
    true
}
