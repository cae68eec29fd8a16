//! The processes of a test program: itself, what it started, and what has left its session and its
//! parents.
//!
//! # Guarantees
//! 1. A process belongs to a run if it carries the mark of the run in its environment, is in the
//!    program's process group, or descends from such a process. No other is touched, and never this
//!    process itself.
//! 2. A signal reaches the process that was looked at, never one that got its number later.

use super::bounded::{gather_within, pause_briefly, time_since_boot};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The time that reading the environments of all processes may take.
const READING: Duration = Duration::from_secs(5);

/// The beginning of the variables that mark runs; the number of the program that made the run comes
/// next.
const MARK: &[u8] = b"TEAL_TEST_RUN_";
/// The beginning of that program's name.
const RUNNER: &str = "xtask";

/// A variable that only the environment of one run has. Each run has a variable of its own, so that
/// runs inside of runs carry both marks.
#[derive(Debug, Clone)]
pub(super) struct RunMark {
    name: String,
    number: String,
}

impl RunMark {
    pub(super) fn new() -> Self {
        // A number for each run of this program.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = format!(
            "{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        Self {
            name: format!("TEAL_TEST_RUN_{}", number.replace('-', "_")),
            number,
        }
    }

    /// Returns the name of the variable.
    pub(super) fn variable(&self) -> &str {
        &self.name
    }

    /// Returns two numbers that no other run has while this program lives.
    pub(super) fn run_number(&self) -> &str {
        &self.number
    }

    /// Returns whether a process carries the mark. Every thread is asked: the first may be dead,
    /// and has no environment then.
    fn is_on(&self, process: &ProcessStat) -> bool {
        let has = |environment: Vec<u8>| {
            let mut variables = environment.split(|byte| *byte == 0);
            variables.any(|one| {
                one.strip_prefix(self.name.as_bytes())
                    .is_some_and(|rest| rest.starts_with(b"="))
            })
        };
        // A live process has one environment for all threads.
        if process.state != 'Z' {
            return has(std::fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default());
        }
        let tasks = std::fs::read_dir(format!("/proc/{}/task", process.pid))
            .into_iter()
            .flatten()
            .flatten();
        tasks
            .filter_map(|task| std::fs::read(task.path().join("environ")).ok())
            .any(has)
    }
}

/// A process as it was when it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProcessStat {
    pub(super) pid: i32,
    pub(super) parent: i32,
    group: i32,
    /// A letter of `/proc/PID/stat`; `Z` and `X` are dead.
    pub(super) state: char,
    pub(super) name: String,
    threads: u32,
    /// The start in ticks since boot: with the number it identifies one process for ever.
    start: u64,
}

impl ProcessStat {
    fn read_from_proc(pid: i32) -> Option<Self> {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        Self::parse_stat(pid, &String::from_utf8_lossy(&stat))
    }

    fn parse_stat(pid: i32, stat: &str) -> Option<Self> {
        // The name stands in brackets and may contain some itself: the last one ends it.
        let (head, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        Some(Self {
            pid,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            state: fields.first()?.chars().next()?,
            name: head.split_once('(')?.1.to_owned(),
            threads: fields.get(17)?.parse().ok()?,
            start: fields.get(19)?.parse().ok()?,
        })
    }

    /// Returns whether the process is alive. One with a dead first thread lives as long as another
    /// thread does: a killed process that waits in the kernel looks like this.
    fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X') || self.threads > 1
    }

    fn kill_process(&self) {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return;
        };
        // The handle names this process even if its number is used again.
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else {
            return;
        };
        // The handle may be of a later process with the same number: the start time tells.
        if Self::read_from_proc(self.pid).is_some_and(|same| same.start == self.start) {
            let _ = pidfd_send_signal(handle, Signal::KILL);
        }
    }
}

/// Returns all live processes of the run of program `leader`, which may have ended if it was not
/// waited for.
pub(super) fn of_run(mark: &RunMark, leader: i32) -> Vec<ProcessStat> {
    let numbers = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let all: Vec<ProcessStat> = numbers
        .filter_map(|entry| ProcessStat::read_from_proc(entry.file_name().to_str()?.parse().ok()?))
        .collect();
    let me = i32::try_from(std::process::id()).unwrap_or(0);
    let mut ours: BTreeSet<i32> = all
        .iter()
        .filter(|p| p.pid == leader || p.group == leader)
        .map(|p| p.pid)
        .collect();
    add_descendants(&mut ours, &all);
    let others: Vec<ProcessStat> = all
        .iter()
        .filter(|p| !ours.contains(&p.pid) && p.pid != me && p.is_alive())
        .cloned()
        .collect();
    let mark = mark.clone();
    // Reading an environment waits for a lock that a hung process may hold.
    ours.extend(gather_within(READING, move |sender| {
        for process in others.into_iter().filter(|process| mark.is_on(process)) {
            let _ = sender.send(process.pid);
        }
    }));
    add_descendants(&mut ours, &all);
    // This program carries the marks of the runs it is in itself.
    ours.remove(&me);
    all.into_iter()
        // Process 1 adopts orphans, and is never part of a run.
        .filter(|p| ours.contains(&p.pid) && p.is_alive() && p.pid > 1)
        .collect()
}

/// Adds the descendants.
fn add_descendants(ours: &mut BTreeSet<i32>, all: &[ProcessStat]) {
    loop {
        // Parents may come behind their children in the list: repeat until nothing is added.
        let before = ours.len();
        ours.extend(
            all.iter()
                .filter(|p| ours.contains(&p.parent))
                .map(|p| p.pid)
                .collect::<Vec<_>>(),
        );
        if ours.len() == before {
            return;
        }
    }
}

/// Returns the programs that marked a process as part of their runs.
fn marking_runners(pid: i32) -> BTreeSet<i32> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let marks = environment
        .split(|byte| *byte == 0)
        .filter_map(|one| one.strip_prefix(MARK));
    let number = |mark: &[u8]| {
        String::from_utf8_lossy(mark.split(|byte| *byte == b'_').next()?)
            .parse()
            .ok()
    };
    marks.filter_map(number).collect()
}

/// Returns whether a program that makes runs lives under this number.
pub(super) fn is_runner(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with(RUNNER))
}

/// Returns all live processes that were marked by runs, but by none that goes on.
fn find_orphans() -> Vec<ProcessStat> {
    gather_within(READING, |sender| {
        let numbers = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        for process in numbers
            .filter_map(ProcessStat::read_from_proc)
            .filter(ProcessStat::is_alive)
        {
            let runners = marking_runners(process.pid);
            if !runners.is_empty() && !runners.into_iter().any(is_runner) {
                let _ = sender.send(process);
            }
        }
    })
}

/// Kills the processes that killed runs left, and returns them.
pub(super) fn kill_orphans(limit: Duration) -> Vec<ProcessStat> {
    let found = find_orphans();
    let end = time_since_boot() + limit;
    let mut alive = found.clone();
    while !alive.is_empty() && time_since_boot() < end {
        alive.iter().for_each(ProcessStat::kill_process);
        pause_briefly();
        alive = find_orphans();
    }
    found
}

/// Waits until no process of the run is left, and returns those that are left after `limit`.
pub(super) fn wait_for_run(mark: &RunMark, leader: i32, limit: Duration) -> Vec<ProcessStat> {
    until_gone(mark, leader, limit, |_| {})
}

/// Kills the processes of the run, and those they start meanwhile, until none is left. Returns
/// those that are left after `limit`.
pub(super) fn kill_run(mark: &RunMark, leader: i32, limit: Duration) -> Vec<ProcessStat> {
    until_gone(mark, leader, limit, ProcessStat::kill_process)
}

fn until_gone(
    mark: &RunMark,
    leader: i32,
    limit: Duration,
    each: impl Fn(&ProcessStat),
) -> Vec<ProcessStat> {
    let end = time_since_boot() + limit;
    loop {
        let alive = of_run(mark, leader);
        if alive.is_empty() || time_since_boot() >= end {
            return alive;
        }
        alive.iter().for_each(&each);
        pause_briefly();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    #[test]
    fn a_name_with_blanks_and_brackets_is_read() {
        let stat = "7 (a) b (c) S 1 5 5 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 2 0 4711 0 0";
        let process = ProcessStat::parse_stat(7, stat).unwrap();
        assert_eq!(
            (
                process.parent,
                process.group,
                process.threads,
                process.start
            ),
            (1, 5, 2, 4711)
        );
        assert!(
            process.is_alive()
                && ProcessStat {
                    state: 'Z',
                    ..process.clone()
                }
                .is_alive()
        );
        assert!(
            !ProcessStat {
                state: 'Z',
                threads: 1,
                ..process.clone()
            }
            .is_alive()
        );
        assert_eq!(process.name, "a) b (c");
        assert_eq!(ProcessStat::parse_stat(7, "7 (a"), None);
    }

    #[test]
    fn who_left_the_session_is_found_by_its_mark_and_killed_and_nobody_else() {
        let (mark, other) = (RunMark::new(), RunMark::new());
        // Orphaned in a session of its own: neither group nor parents lead to it.
        let run = |mark: &RunMark| {
            let mut command = Command::new("sh");
            command
                .args(["-c", "setsid sleep 1000 & wait"])
                .env(mark.variable(), "1")
                .process_group(0);
            command.stdout(Stdio::null()).spawn().unwrap()
        };
        let (mut ours, mut others) = (run(&mark), run(&other));
        let number = |child: &std::process::Child| i32::try_from(child.id()).unwrap();
        let sleeper =
            |mark: &RunMark, leader| of_run(mark, leader).into_iter().find(|p| p.name == "sleep");
        let start = time_since_boot();
        while sleeper(&mark, number(&ours)).is_none() || sleeper(&other, number(&others)).is_none()
        {
            assert!(time_since_boot() - start < Duration::from_secs(60));
            pause_briefly();
        }
        ours.kill().unwrap();
        ours.wait().unwrap();
        assert!(sleeper(&mark, -1).is_some(), "found without its leader");
        assert_eq!(kill_run(&mark, -1, Duration::from_secs(60)), []);
        assert!(sleeper(&other, -1).is_some());
        assert_eq!(
            kill_run(&other, number(&others), Duration::from_secs(60)),
            []
        );
        others.wait().unwrap();
    }

    #[test]
    fn what_a_killed_run_left_is_killed_and_what_a_live_run_has_is_not() {
        let mut gone = Command::new("true").spawn().unwrap();
        let dead = format!("TEAL_TEST_RUN_{}_0", gone.id());
        gone.wait().unwrap();
        let live = RunMark::new();
        let start = |marks: &[&str]| {
            let mut command = Command::new("sleep");
            // What the test itself runs in is no mark of these.
            command
                .arg("1000")
                .env_clear()
                .envs(marks.iter().map(|mark| (mark, "1")))
                .spawn()
                .unwrap()
        };
        let mut left = start(&[&dead]);
        let mut ours = [start(&[live.variable()]), start(&[&dead, live.variable()])];
        let number = |child: &std::process::Child| i32::try_from(child.id()).unwrap();
        // A child that has not become another program yet has the marks of this one.
        let is_marked = |child| {
            ProcessStat::read_from_proc(number(child))
                .is_some_and(|process| process.name == "sleep")
        };
        let began = time_since_boot();
        while !is_marked(&left) || !ours.iter().all(is_marked) {
            assert!(time_since_boot() - began < Duration::from_secs(60));
            pause_briefly();
        }
        let killed = kill_orphans(Duration::from_secs(60));
        assert!(
            killed.iter().any(|process| process.pid == number(&left)),
            "{killed:?}"
        );
        assert!(!left.wait().unwrap().success());
        for child in &mut ours {
            assert!(
                child.try_wait().unwrap().is_none(),
                "it belongs to a run that goes on"
            );
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
