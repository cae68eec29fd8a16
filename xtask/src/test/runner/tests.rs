//! Small programs that hang, fail, recover and leave things behind.

use super::super::processes::Mark;
use super::*;
use std::os::unix::fs::PermissionsExt as _;
use tempfile::TempDir;

/// A runner with a place of its own, and time enough for what must happen.
fn runner(dir: &TempDir, program: Duration) -> Runner {
    let [kept, open, large] = ["kept", "open", "large"].map(|name| dir.path().join(name));
    [&kept, &open, &large].iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
    Runner {
        limits: Limits { program, total: Duration::from_secs(600), grace: Duration::from_millis(100) },
        start: now(),
        env: Vec::new(),
        filter: Vec::new(),
        args: Vec::new(),
        rooms: Rooms { open, large },
        kept,
        is_shown: false,
        stop: Arc::default(),
    }
}

const LONG: Duration = Duration::from_secs(120);
const SHORT: Duration = Duration::from_millis(1500);

/// A program in the shape of a test program: with tests `a` and `b`; `body` runs them, `$HERE` is where it can keep things.
fn program(dir: &TempDir, body: &str) -> Program {
    let path = dir.path().join("program");
    let here = dir.path().display();
    let text = format!(
        r#"#!/bin/sh
        HERE='{here}'
        case "$*" in *--list*) printf 'a: test\nb: test\n'; exit 0;; esac
        good() {{ echo "test result: ok. $1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s"; }}
        bad() {{ echo "test result: FAILED. $1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s"; exit 101; }}
        echo "$*" >> "$HERE/runs"
        {body}"#
    );
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    Program { name: "small".into(), path, args: Vec::new(), dir: dir.path().to_owned(), is_harness: true }
}

/// The report on a program, and with which arguments it was run.
fn report(limit: Duration, body: &str) -> (TempDir, String, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let mut summary = Summary::default();
    runner(&dir, limit).run(&program(&dir, body), &mut summary);
    let runs = std::fs::read_to_string(dir.path().join("runs")).unwrap_or_default();
    let report = summary.report().lines().filter(|line| !line.starts_with("slowest: ")).collect::<Vec<_>>().join("\n");
    (dir, report, runs.lines().map(str::to_owned).collect())
}

fn is_dead(dir: &TempDir, file: &str) -> bool {
    let pid = std::fs::read_to_string(dir.path().join(file)).unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.starts_with(" Z"))
}

#[test]
fn a_program_that_passes_runs_once() {
    let (_dir, report, runs) = report(LONG, "echo 'test a ... ok'; echo 'test b ... ok'; good 2");
    assert_eq!((report.as_str(), runs.len()), ("2 passed, 0 failed, 0 skipped", 1));
}

#[test]
fn a_program_that_hangs_is_described_ended_and_named() {
    let body = r#"echo 'test a ... ok'
        setsid sleep 1000 & echo $! > "$HERE/sleeper"
        printf 'test b ... '; wait"#;
    let (dir, report, runs) = report(SHORT, body);
    let last = report.lines().last().unwrap();
    assert_eq!((runs, last), (vec![String::new(), "--exact b".into()], "1 passed, 1 failed, 0 skipped"));
    assert!(report.contains("failed: small: b\n"), "{report}");
    assert!(is_dead(&dir, "sleeper"), "in a session of its own, and yet found");
    let output = std::fs::read_to_string(dir.path().join("kept/small-1.txt")).unwrap();
    for said in ["small does not end: killed after", "running: b", "(sleep), child of ", "  thread ", ": sleep 1000"] {
        assert!(output.contains(said), "{said}: {output}");
    }
}

#[test]
fn a_test_that_hangs_once_is_flaky_and_those_behind_it_are_not() {
    let body = r#"if [ -e "$HERE/again" ]; then good 2; exit 0; fi
        touch "$HERE/again"; printf 'test a ... '; sleep 1000"#;
    let (_dir, report, runs) = report(SHORT, body);
    assert_eq!(runs, ["", "--exact a b"]);
    let end = "flaky: small: a did not end, then passed\n2 passed, 0 failed, 0 skipped";
    assert!(report.ends_with(end) && !report.contains("flaky: small: b"), "{report}");
}

#[test]
fn a_test_that_fails_and_then_passes_is_flaky() {
    let body = r#"if [ "$*" = '--exact b' ]; then echo 'test b ... ok'; good 1; exit 0; fi
        echo 'test a ... ok'; echo 'test b ... FAILED'; echo 'b panicked'; bad 1"#;
    let (dir, report, runs) = report(LONG, body);
    assert_eq!(runs.len(), 2);
    assert!(report.ends_with("flaky: small: b failed, then passed\n2 passed, 0 failed, 0 skipped"), "{report}");
    assert!(report.contains("  | b panicked\n"), "{report}");
    let kept = ["small-1.txt", "small-2.txt"].map(|file| std::fs::read_to_string(dir.path().join("kept").join(file)));
    assert!(kept[0].as_ref().unwrap().contains("b panicked") && kept[1].as_ref().unwrap().contains("test b ... ok"));
}

#[test]
fn a_test_that_fails_twice_has_failed_once() {
    let body = "[ $# = 0 ] && echo 'test a ... ok'; echo 'test b ... FAILED'; bad $((1 - $# / 2))";
    let (_dir, report, runs) = report(LONG, body);
    assert_eq!((runs.len(), report.as_str()), (2, "failed: small: b\n1 passed, 1 failed, 0 skipped"));
}

#[test]
fn a_program_that_dies_runs_what_it_did_not_finish_again() {
    let body = r#"if [ $# = 0 ]; then echo 'test a ... ok'; kill -9 $$; fi; good 1"#;
    let (_dir, report, runs) = report(LONG, body);
    assert_eq!(runs, ["", "--exact b"]);
    assert!(
        report.ends_with("flaky: small: b was killed by a signal, then passed\n2 passed, 0 failed, 0 skipped"),
        "{report}"
    );
}

#[test]
fn a_program_that_fails_without_a_failed_test_is_a_failure() {
    let (_dir, report, runs) = report(LONG, "echo 'test a ... ok'; echo 'test b ... ok'; good 2; exit 1");
    assert_eq!((runs.len(), report.as_str()), (2, "failed: small failed\n2 passed, 1 failed, 0 skipped"));
}

#[test]
fn what_a_program_leaves_behind_is_taken_away_and_said_and_no_failure() {
    let body = r#"setsid sleep 1000 & echo $! > "$HERE/sleeper"; touch "$TMPDIR/a-file" "$CARGO_TARGET_TMPDIR/a-store"
        if [ "$(id -u)" = 0 ]; then mkdir "$TMPDIR/point"; mount -t tmpfs none "$TMPDIR/point"; fi
        good 2"#;
    let (dir, report, runs) = report(LONG, body);
    assert!(report.ends_with("2 passed, 0 failed, 0 skipped") && runs.len() == 1, "{report}");
    let sleeper = std::fs::read_to_string(dir.path().join("sleeper")).unwrap();
    assert!(report.contains(&format!("left behind by small: process {} (sleep)\n", sleeper.trim())), "{report}");
    assert!(report.contains("/a-file\n") && report.contains("/a-store\n"), "{report}");
    assert_eq!(report.contains("mount of tmpfs at "), rustix::process::geteuid().is_root(), "{report}");
    assert!(is_dead(&dir, "sleeper"));
    for room in ["open", "large"] {
        assert_eq!(std::fs::read_dir(dir.path().join(room)).unwrap().count(), 0, "the directory went with it");
    }
}

#[test]
fn when_the_time_of_all_is_over_the_rest_has_failed() {
    let dir = tempfile::tempdir().unwrap();
    let mut runner = runner(&dir, LONG);
    runner.limits.total = Duration::ZERO;
    let mut summary = Summary::default();
    assert!(runner.run(&program(&dir, "good 2"), &mut summary));
    assert!(summary.report().starts_with("failed: small: not run, "), "{}", summary.report());
    assert!(summary.report().ends_with("\n0 passed, 1 failed, 0 skipped"));
    assert!(!dir.path().join("runs").exists());
}

#[test]
fn a_skip_of_the_run_that_counts_is_counted() {
    let body = r#"echo 'a: not here' >> "$TEAL_SKIPS"; good 2"#;
    let (_dir, report, _) = report(LONG, body);
    assert_eq!(report, "skipped: a: not here\n1 passed, 0 failed, 1 skipped");
}

#[test]
fn a_wish_to_stop_ends_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let runner = runner(&dir, LONG);
    runner.stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let program = program(&dir, r#"echo $$ > "$HERE/program"; sleep 1000"#);
    let mut summary = Summary::default();
    assert!(!runner.run(&program, &mut summary), "nothing runs after it");
    let report = summary.report();
    assert!(
        report.starts_with("failed: small: stopped in run 1,") && report.ends_with("0 passed, 1 failed, 0 skipped")
    );
    assert!(!dir.path().join("program").exists() || is_dead(&dir, "program"));
    assert_ne!(Mark::new().name(), Mark::new().name());
}

#[test]
fn a_program_that_cannot_be_started_is_a_failure_and_others_run() {
    let dir = tempfile::tempdir().unwrap();
    let mut summary = Summary::default();
    let missing = Program { path: dir.path().join("missing"), ..program(&dir, "good 2") };
    let runner = runner(&dir, LONG);
    assert!(runner.run(&missing, &mut summary) && runner.run(&program(&dir, "good 2"), &mut summary));
    let report = summary.report();
    assert!(
        report.contains("failed: small: start small: ") && report.ends_with("2 passed, 1 failed, 0 skipped"),
        "{report}"
    );
}
