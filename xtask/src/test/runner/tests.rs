//! Small programs that hang, fail, die and leave things behind.

use super::super::processes::RunMark;
use super::*;
use std::os::unix::fs::PermissionsExt as _;
use tempfile::TempDir;

/// A runner with a place of its own, and time enough for what must happen.
fn runner(dir: &TempDir, program: Duration) -> ProgramRunner {
    let [kept, open, large] = ["kept", "open", "large"].map(|name| dir.path().join(name));
    [&kept, &open, &large]
        .iter()
        .for_each(|dir| std::fs::create_dir(dir).unwrap());
    ProgramRunner {
        limits: RunLimits {
            program,
            total: Duration::from_secs(600),
            grace: Duration::from_millis(100),
        },
        start: time_since_boot(),
        env: Vec::new(),
        filter: Vec::new(),
        args: Vec::new(),
        directories: RunDirectories { open, large },
        kept,
        is_shown: false,
        lanes: 2,
        stop: Arc::default(),
        running_lock: RwLock::default(),
    }
}

const LONG: Duration = Duration::from_secs(120);
const SHORT: Duration = Duration::from_millis(1500);

/// A program in the shape of a test program: with tests `a` and `b`; `body` runs them, `$HERE` is
/// where it can keep things.
fn program(dir: &TempDir, body: &str) -> TestProgram {
    let path = dir.path().join("program");
    let here = dir.path().display();
    let text = format!(
        r#"#!/bin/sh
        HERE='{here}'
        case "$*" in *--list*) printf 'a: test\nb: test\n'; exit 0;; esac
        good() {{ echo "test result: ok. $1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered \
            out; finished in 0.00s"; }}
        bad() {{ echo "test result: FAILED. $1 passed; 1 failed; 0 ignored; 0 measured; 0 \
            filtered out; finished in 0.00s"; exit 101; }}
        echo "$*" >> "$HERE/runs"
        {body}"#
    );
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    TestProgram {
        name: "small".into(),
        path,
        args: Vec::new(),
        dir: dir.path().to_owned(),
        is_harness: true,
    }
}

/// The report on a program without its times, and with which arguments it was run.
fn report(limit: Duration, body: &str) -> (TempDir, String, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let summary = runner(&dir, limit).run_all(&[program(&dir, body)]);
    let runs = std::fs::read_to_string(dir.path().join("runs")).unwrap_or_default();
    (
        dir,
        without_times(&summary),
        runs.lines().map(str::to_owned).collect(),
    )
}

/// The report without the table of times above it.
fn without_times(summary: &TestSummary) -> String {
    let report = summary.to_report();
    let is_time = |line: &&str| line.starts_with(' ');
    report
        .lines()
        .skip_while(is_time)
        .collect::<Vec<_>>()
        .join("\n")
}

fn is_dead(dir: &TempDir, file: &str) -> bool {
    let pid = std::fs::read_to_string(dir.path().join(file)).unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(')')
        .is_none_or(|(_, rest)| rest.starts_with(" Z"))
}

#[test]
fn a_program_that_passes_runs_once() {
    let (_dir, report, runs) = report(LONG, "echo 'test a ... ok'; echo 'test b ... ok'; good 2");
    assert_eq!(
        (report.as_str(), runs.len()),
        ("2 passed, 0 failed, 0 skipped", 1)
    );
}

#[test]
fn a_program_that_hangs_is_described_ended_and_named() {
    let body = r#"echo 'test a ... ok'
        setsid sleep 1000 & echo $! > "$HERE/sleeper"
        printf 'test b ... '; wait"#;
    let (dir, report, runs) = report(SHORT, body);
    let last = report.lines().last().unwrap();
    assert_eq!(
        (runs, last),
        (vec![String::new()], "1 passed, 1 failed, 0 skipped")
    );
    assert!(
        report.contains("failed: small: b did not end\nfailed: small did not end\n"),
        "{report}"
    );
    assert!(
        is_dead(&dir, "sleeper"),
        "in a session of its own, and yet found"
    );
    let output = std::fs::read_to_string(dir.path().join("kept/small.txt")).unwrap();
    for said in [
        "small does not end: killed after",
        "running: b",
        "(sleep), child of ",
        "  thread ",
        ": sleep 1000",
    ] {
        assert!(output.contains(said), "{said}: {output}");
    }
}

#[test]
fn tests_behind_one_that_hangs_have_no_result_and_are_not_run_again() {
    let body = r#"if [ -e "$HERE/again" ]; then good 2; exit 0; fi
        touch "$HERE/again"; printf 'test a ... '; sleep 1000"#;
    let (_dir, report, runs) = report(SHORT, body);
    assert_eq!(runs, [""], "it would pass now");
    let failed = ["a did not end", "b has no result"].map(|how| format!("failed: small: {how}\n"));
    assert!(failed.iter().all(|line| report.contains(line)), "{report}");
    assert!(
        report.ends_with("\n0 passed, 2 failed, 0 skipped"),
        "{report}"
    );
}

#[test]
fn a_test_that_fails_has_failed_even_if_it_would_pass_now() {
    let body = r#"if [ -e "$HERE/again" ]; then good 2; exit 0; fi
        touch "$HERE/again"; echo 'test a ... ok'; echo 'test b ... FAILED'; echo 'b panicked'; bad 1"#;
    let (dir, report, runs) = report(LONG, body);
    assert_eq!(runs, [""], "it would pass now");
    let kept = dir.path().join("kept/small.txt");
    let said = format!(
        "failed: small: b\nwhat small said is in {}\n1 passed, 1 failed, 0 skipped",
        kept.display()
    );
    assert_eq!(report, said);
    assert!(
        std::fs::read_to_string(kept)
            .unwrap()
            .contains("b panicked")
    );
}

#[test]
fn a_program_that_dies_fails_with_what_it_did_not_finish() {
    let (_dir, report, runs) = report(LONG, "echo 'test a ... ok'; kill -9 $$");
    assert_eq!(runs, [""]);
    let said = "failed: small: b has no result\nfailed: small was killed by a signal\n";
    assert!(
        report.starts_with(said) && report.ends_with("\n1 passed, 1 failed, 0 skipped"),
        "{report}"
    );
}

#[test]
fn a_failure_whose_name_was_spoiled_is_counted() {
    let (_dir, report, _) = report(LONG, "echo 'test a ... ok'; bad 1");
    let said = "failed: small: 1 whose names are not known\n";
    assert!(
        report.starts_with(said) && report.ends_with("\n1 passed, 1 failed, 0 skipped"),
        "{report}"
    );
}

#[test]
fn a_program_that_fails_without_a_failed_test_is_a_failure() {
    let (_dir, report, runs) = report(
        LONG,
        "echo 'test a ... ok'; echo 'test b ... ok'; good 2; exit 1",
    );
    assert_eq!(runs.len(), 1);
    let is_said = report.starts_with("failed: small failed\n")
        && report.ends_with("\n2 passed, 1 failed, 0 skipped");
    assert!(is_said, "{report}");
}

#[test]
fn what_a_program_leaves_behind_is_taken_away_and_said_and_no_failure() {
    let body = r#"setsid sleep 1000 & echo $! > "$HERE/sleeper"; touch "$TMPDIR/a-file" "$CARGO_TARGET_TMPDIR/a-store"
        if [ "$(id -u)" = 0 ]; then mkdir "$TMPDIR/point"; mount -t tmpfs none "$TMPDIR/point"; fi
        good 2"#;
    let (dir, report, runs) = report(LONG, body);
    assert!(
        report.ends_with("2 passed, 0 failed, 0 skipped") && runs.len() == 1,
        "{report}"
    );
    let sleeper = std::fs::read_to_string(dir.path().join("sleeper")).unwrap();
    assert!(
        report.contains(&format!(
            "left behind by small: process {} (sleep)\n",
            sleeper.trim()
        )),
        "{report}"
    );
    assert!(
        report.contains("/a-file\n") && report.contains("/a-store\n"),
        "{report}"
    );
    assert_eq!(
        report.contains("mount of tmpfs at "),
        rustix::process::geteuid().is_root(),
        "{report}"
    );
    assert!(is_dead(&dir, "sleeper"));
    for room in ["open", "large"] {
        assert_eq!(
            std::fs::read_dir(dir.path().join(room)).unwrap().count(),
            0,
            "the directory went with it"
        );
    }
}

#[test]
fn when_the_time_of_all_is_over_the_rest_has_failed() {
    let dir = tempfile::tempdir().unwrap();
    let mut runner = runner(&dir, LONG);
    runner.limits.total = Duration::ZERO;
    let summary = runner.run_all(&[program(&dir, "good 2")]);
    assert!(
        summary.to_report().starts_with("failed: small: not run, "),
        "{}",
        summary.to_report()
    );
    assert!(
        summary
            .to_report()
            .ends_with("\n0 passed, 1 failed, 0 skipped")
    );
    assert!(!dir.path().join("runs").exists());
}

#[test]
fn a_skip_is_counted() {
    let body = r#"echo 'a: not here' >> "$TEAL_SKIPS"; good 2"#;
    let (_dir, report, _) = report(LONG, body);
    assert_eq!(
        report,
        "skipped: a: not here\n1 passed, 0 failed, 1 skipped"
    );
}

#[test]
fn a_wish_to_stop_ends_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let runner = runner(&dir, LONG);
    runner
        .stop
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let program = program(&dir, r#"echo $$ > "$HERE/number"; sleep 1000"#);
    let report = runner.run_all(&[program.clone(), program.clone(), program]);
    let report = report.to_report();
    assert!(report.starts_with("failed: small: stopped,"), "{report}");
    let last = report.lines().last();
    assert!(
        last == Some("0 passed, 1 failed, 0 skipped")
            || last == Some("0 passed, 2 failed, 0 skipped"),
        "each lane ends with its first: {report}"
    );
    assert!(!dir.path().join("number").exists() || is_dead(&dir, "number"));
    assert_ne!(RunMark::new().variable(), RunMark::new().variable());
}

#[test]
fn a_program_that_cannot_be_started_is_a_failure_and_others_run() {
    let dir = tempfile::tempdir().unwrap();
    let missing = TestProgram {
        path: dir.path().join("missing"),
        ..program(&dir, "good 2")
    };
    let runner = runner(&dir, LONG);
    let summary = runner.run_all(&[missing, program(&dir, "good 2")]);
    let report = summary.to_report();
    assert!(
        report.contains("failed: small: start small: ")
            && report.ends_with("2 passed, 1 failed, 0 skipped"),
        "{report}"
    );
}

/// A program of this name; `body` finds others' files in `$HERE`, too.
fn named(dir: &TempDir, name: &str, body: &str) -> TestProgram {
    let place = dir.path().join(name.replace(':', "_"));
    let path = place.with_extension("sh");
    let program = program(dir, &format!("HERE='{}'\n{body}", dir.path().display()));
    std::fs::rename(&program.path, &path).unwrap();
    TestProgram {
        name: name.to_owned(),
        path,
        ..program
    }
}

/// Waits until the other has said that it runs: it ends only if both run at once.
fn meets(own: &str, other: &str) -> String {
    format!(r#"touch "$HERE/{own}"; while ! [ -e "$HERE/{other}" ]; do sleep 0.05; done"#)
}

#[test]
fn programs_run_side_by_side_and_what_each_leaves_is_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let leave = |own: &str, other: &str| {
        let (meet, then_meet) = (
            meets(own, other),
            meets(&format!("{own}2"), &format!("{other}2")),
        );
        format!(
            r#"{meet}; setsid sleep 1000 & echo $! > "$HERE/sleeper-{own}"
            touch "$TMPDIR/of-{own}"; echo '{own}: not here' >> "$TEAL_SKIPS"
            {then_meet}; kill -0 "$(cat "$HERE/sleeper-{other}")" && good 2"#
        )
    };
    let programs = [
        named(&dir, "one", &leave("one", "two")),
        named(&dir, "two", &leave("two", "one")),
    ];
    let summary = runner(&dir, LONG).run_all(&programs);
    let report = without_times(&summary);
    for own in ["one", "two"] {
        let sleeper = std::fs::read_to_string(dir.path().join(format!("sleeper-{own}"))).unwrap();
        let process = format!("left behind by {own}: process {} (sleep)\n", sleeper.trim());
        assert!(report.contains(&process), "{report}");
        assert!(is_dead(&dir, &format!("sleeper-{own}")));
        let file = |line: &&str| {
            line.starts_with(&format!("left behind by {own}: file "))
                && line.ends_with(&format!("/of-{own}"))
        };
        assert_eq!(report.lines().filter(file).count(), 1, "{report}");
        assert!(report.contains(&format!("skipped: {own}: not here\n")));
    }
    assert!(
        report.ends_with("2 passed, 0 failed, 2 skipped"),
        "{report}"
    );
}

#[test]
fn nothing_runs_beside_a_program_that_must_be_alone() {
    let dir = tempfile::tempdir().unwrap();
    // Directories can be made once: one that finds the other's fails.
    let body = r#"mkdir "$HERE/busy" && sleep 0.3 && rmdir "$HERE/busy" && good 1 || bad 0"#;
    let programs = ["teal-fuse::mount", "teal::host", "small"].map(|name| named(&dir, name, body));
    assert!(programs[0].is_alone_because().is_some() && programs[1].is_alone_because().is_some());
    let report = runner(&dir, LONG).run_all(&programs).to_report();
    assert!(
        report.ends_with("\n3 passed, 0 failed, 0 skipped"),
        "{report}"
    );
}
