//! A write that is based on what its program has just been shown.

use super::Pair;
use crate::support::end;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::process::Command;
use teal_testkit::run_program;

#[test]
fn what_was_read_again_is_the_base_of_what_is_written_then() {
    let test = "what_was_read_again_is_the_base_of_what_is_written_then";
    let Some(pair) = Pair::new(test) else { return };
    let log = OpenOptions::new()
        .read(true)
        .write(true)
        .open(pair.laptop.path("log"))
        .unwrap();
    assert_eq!(pair.log(), "base\n");
    pair.appended_elsewhere("nas 0\n");
    let mut seen = [0; 11];
    log.read_exact_at(&mut seen, 0).unwrap();
    assert_eq!(&seen, b"base\nnas 0\n");
    log.write_all_at(b"LAP", 5).unwrap();
    drop(log);
    pair.ends_with(&["base\nLAP 0\n"]);
}

/// The program runs before the daemon's thread that has answered it: one processor is given to both,
/// and the program has it whenever it wants it.
#[test]
fn a_write_right_behind_the_answer_it_is_based_on_is_no_conflict() {
    let test = "a_write_right_behind_the_answer_it_is_based_on_is_no_conflict";
    let Some(pair) = Pair::new(test) else { return };
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let daemon = pair.laptop.pid().to_string();
    run_program(Command::new("taskset").args(["-acp", "0", &daemon])).expect_success();
    run_program(Command::new("taskset").args(["-cp", "0", &thread])).expect_success();
    let log = OpenOptions::new()
        .read(true)
        .write(true)
        .open(pair.laptop.path("log"))
        .unwrap();
    let mut expected = pair.log().into_bytes();
    for n in 0..20 {
        let line = format!("nas {n}\n");
        pair.appended_elsewhere(&line);
        let at = expected.len();
        expected.extend(line.as_bytes());
        let mut seen = vec![0; expected.len()];
        let first = run_program(Command::new("chrt").args(["-f", "-p", "1", &thread]));
        if !first.code == 0 {
            end(vec![pair.laptop, pair.nas.0]);
            return teal_testkit::skip_test(test, "a thread may not be scheduled first here");
        }
        log.read_exact_at(&mut seen, 0).unwrap();
        log.write_all_at(b"LAP", at as u64).unwrap();
        run_program(Command::new("chrt").args(["-o", "-p", "0", &thread])).expect_success();
        assert_eq!(seen, expected);
        expected[at..at + 3].copy_from_slice(b"LAP");
    }
    drop(log);
    let whole = String::from_utf8(expected).unwrap();
    pair.ends_with(&[&whole]);
}
