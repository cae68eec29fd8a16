//! Describes a test program that does not end: its processes and threads, and the calls they wait
//! in.
//!
//! # Guarantees
//! 1. A description is as complete as possible even if reading one process hangs: lines are kept as
//!    they are found, and reading is given up in time.

use super::bounded::gather_within;
use super::libtest;
use super::processes::ProcessStat;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

/// The time that the description may take.
const LOOKING: Duration = Duration::from_secs(15);
/// Threads told of one process, and frames of one thread's stack.
const THREADS_MAX: usize = 64;
const FRAMES_MAX: usize = 16;
/// The kernel keeps this much of the name of a thread, which is the name of its test.
const THREAD_NAME: usize = 15;

/// Describes every thread of every process: its place in the kernel, and its call.
pub(super) fn describe_processes(processes: &[ProcessStat]) -> Vec<String> {
    let processes = processes.to_vec();
    gather_within(LOOKING, move |sender| {
        for process in &processes {
            let ProcessStat {
                pid,
                parent,
                state,
                name,
                ..
            } = process;
            drop(sender.send(format!(
                "process {pid} ({name}), child of {parent}, state {state}"
            )));
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
                .into_iter()
                .flatten()
                .flatten();
            for task in tasks.take(THREADS_MAX) {
                drop(sender.send(describe_thread(&task.path().display().to_string())));
            }
        }
        for process in processes {
            // The command line comes last: reading it waits for a lock that a hung process may
            // hold.
            let words = std::fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).replace('\0', " ");
            drop(sender.send(format!("process {}: {}", process.pid, words.trim_end())));
        }
    })
}

fn describe_thread(dir: &str) -> String {
    let read = |name: &str| {
        std::fs::read_to_string(format!("{dir}/{name}"))
            .unwrap_or_default()
            .trim_end()
            .to_owned()
    };
    let stat = read("stat");
    let state = stat
        .rsplit_once(')')
        .map_or("?", |(_, rest)| rest.get(1..2).unwrap_or("?"));
    let number = dir.rsplit('/').next().unwrap_or_default();
    let mut said = format!(
        "  thread {number} {}: {state}, in {}, call {}",
        read("comm"),
        read("wchan"),
        read("syscall")
    );
    for frame in read("stack").lines().take(FRAMES_MAX) {
        let _ = write!(said, "\n      {frame}");
    }
    said
}

/// Returns the `unfinished` tests that a program runs at this moment: its threads have their names,
/// and with a single thread the last line of output has the name.
pub(super) fn running_tests(
    leader: i32,
    unfinished: &BTreeSet<String>,
    last_line: &str,
) -> BTreeSet<String> {
    let threads: Vec<String> = gather_within(LOOKING, move |sender| {
        for task in std::fs::read_dir(format!("/proc/{leader}/task"))
            .into_iter()
            .flatten()
            .flatten()
        {
            drop(
                sender.send(std::fs::read_to_string(task.path().join("comm")).unwrap_or_default()),
            );
        }
    });
    // With one thread, tests run on the main thread, which does not carry their names.
    let said = libtest::parse_result(last_line).map(|(name, _)| name);
    let is_running = |name: &&String| {
        // The kernel cuts the names of threads off.
        let start = name
            .as_bytes()
            .get(..THREAD_NAME)
            .unwrap_or(name.as_bytes());
        said == Some(name.as_str())
            || threads
                .iter()
                .any(|thread| thread.trim_end().as_bytes() == start)
    };
    unfinished.iter().filter(is_running).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::super::processes::{RunMark, of_run};
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn the_threads_of_a_process_and_its_running_tests_are_named() {
        let (keep, wait) = channel::<()>();
        let name = "a_test_that_hangs_for_long";
        let work = move || assert!(wait.recv().is_err());
        let thread = std::thread::Builder::new()
            .name(name[..THREAD_NAME].to_owned())
            .spawn(work)
            .unwrap();
        let me = i32::try_from(std::process::id()).unwrap();
        let names = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<BTreeSet<_>>()
        };
        let unfinished = names(&[name, "another", "third"]);
        let start = super::super::bounded::time_since_boot();
        // A thread gives itself its name when it begins.
        while running_tests(me, &unfinished, "").is_empty() {
            assert!(super::super::bounded::time_since_boot() - start < Duration::from_secs(60));
        }
        assert_eq!(
            running_tests(me, &unfinished, "test another ... "),
            names(&[name, "another"])
        );
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let said = describe_processes(&of_run(&RunMark::new(), pid)).join("\n");
        child.kill().unwrap();
        child.wait().unwrap();
        drop(keep);
        thread.join().unwrap();
        assert!(
            said.contains(&format!("process {pid} ("))
                && said.contains(&format!("  thread {pid} ")),
            "{said}"
        );
    }
}
