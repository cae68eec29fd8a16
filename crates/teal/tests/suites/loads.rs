//! dbench and fs_mark on a mount: what a file server and a mail server do, with every way to make
//! it durable.

use super::support::{Mounted, compare_trees, find_program, is_long, run_program};
use std::process::Command;

const SCRIPT: &str = "/usr/share/dbench/client.txt";

#[test]
fn dbench_runs_with_and_without_syncing() {
    let test = "dbench_runs_with_and_without_syncing";
    let Some(mut m) = Mounted::new(test, "2G") else {
        return;
    };
    if find_program("dbench", &[]).is_none() || !std::path::Path::new(SCRIPT).exists() {
        return teal_testkit::skip_test(
            test,
            "dbench is not installed; `cargo xtask test` installs it",
        );
    }
    let time = if is_long() { "60" } else { "3" };
    for how in [&[][..], &["-x"], &["-F"], &["-s", "-S"]] {
        let mut command = Command::new("dbench");
        command
            .args(["-c", SCRIPT, "-t", time, "-D"])
            .arg(m.point())
            .args(how)
            .arg("4");
        let said = run_program(m.world().furnish(&mut command)).expect_success();
        assert!(said.contains("Throughput"), "{how:?}: {said}");
        // The suite goes on after some errors, but tells them. Without the semaphore its clients
        // only do not start together; this has nothing to do with the mount: the key of the
        // semaphore is a process number, which another program's semaphore may have.
        let of_mount = |line: &&str| {
            line.contains("failed") && !line.contains("failed to create barrier semaphore")
        };
        assert_eq!(said.lines().find(of_mount), None, "{how:?}: {said}");
    }
    assert_eq!(
        m.status()["orphans"],
        0,
        "everything it removed is given back"
    );
    m.down();
    m.check();
}

/// Its names for them, by number.
const METHODS: [&str; 7] = [
    "none",
    "fsync before close",
    "sync, then fsync of one file",
    "fsync of each file afterwards, in reverse order",
    "sync, then fsync of each file in reverse order",
    "fsync of each file afterwards",
    "sync, then fsync of each file",
];

#[test]
fn fs_mark_runs_with_every_way_to_sync() {
    let test = "fs_mark_runs_with_every_way_to_sync";
    let Some(mut m) = Mounted::new(test, "1G") else {
        return;
    };
    if find_program("fs_mark", &[]).is_none() {
        return teal_testkit::skip_test(
            test,
            "fs_mark is not installed; `cargo xtask test` installs it",
        );
    }
    let (files, loops) = if is_long() { (5000, 10) } else { (100, 2) };
    let copy = m.world().path("copy");
    for (number, method) in METHODS.iter().enumerate() {
        let dir = m.path(number.to_string());
        std::fs::create_dir(&dir).unwrap();
        let mut command = Command::new("fs_mark");
        command.args(["-k", "-l", "/dev/null", "-s", "5000", "-t", "4"]);
        command.args(["-n", &files.to_string(), "-L", &loops.to_string()]);
        command.args(["-S", &number.to_string()]);
        // A directory for each thread: it takes the microsecond at which a thread begins for the
        // seed of the thread's file names, and two may begin in one.
        let dirs: Vec<_> = (0..4).map(|thread| format!("{number}/{thread}")).collect();
        for dir in &dirs {
            std::fs::create_dir(m.path(dir)).unwrap();
            // Paths of forty bytes are too long for it.
            command.args(["-d", &format!("./{dir}")]);
        }
        run_program(m.world().furnish(&mut command).current_dir(m.point())).expect_success();
        for dir in dirs {
            let made = std::fs::read_dir(m.path(&dir)).unwrap().count();
            assert_eq!(made, files * loops, "{method}: {dir}");
        }
    }
    run_program(Command::new("cp").arg("-a").arg(m.point()).arg(&copy)).expect_success();
    // The methods that synced every file left nothing to lose, the others something to commit.
    run_program(Command::new("sync").arg(m.point())).expect_success();
    m.kill();
    m.up();
    compare_trees(m.point(), &copy);
    m.down();
    m.check();
}
