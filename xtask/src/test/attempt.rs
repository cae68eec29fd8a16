//! One run of one test program, with an end.
//!
//! # Guarantees
//! 1. A run ends: at the deadline the program and everything it started are killed, and the mounts
//!    they wait for are taken away.
//! 2. Nothing is left of a run when it is over: processes, mounts, loop devices, network namespaces
//!    and temporary files are gone, or those that would not go are named.
//! 3. A program that hangs is described before it is ended.
//! 4. Programs may run beside each other: the leftovers of one are known by its mark, its process
//!    group and its directories, and nothing of another is touched. The one step that cannot tell
//!    the owner of a connection (`abort_hidden`) waits until no other program runs.

use super::bounded::{pause_briefly, time_since_boot};
use super::directories::{PREFIX, RunDirectories};
use super::hung;
use super::leftovers::{self, SystemSnapshot};
use super::libtest::TestOutcome;
use super::processes::{self, ProcessStat, RunMark};
use super::times;
use anyhow::{Context as _, Result};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::collections::BTreeSet;
use std::io::{Read, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

/// The bytes of output that are kept of one run; the rest is shown, not kept.
const OUTPUT_MAX: usize = 8 << 20;
/// Pieces of output on their way.
const PIECES: usize = 64;
/// The time that a killed process may take to die, before more is tried.
const DYING: Duration = Duration::from_secs(3);

/// The terms of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunTerms<'a> {
    pub(super) limit: Duration,
    /// The time that processes which a program started may take to end by themselves after it.
    pub(super) grace: Duration,
    pub(super) directories: &'a RunDirectories,
    pub(super) is_shown: bool,
    /// Is set when everything is to end now.
    pub(super) stop: &'a AtomicBool,
    /// Locked for reading by each program that runs, and for writing by one that must be alone.
    pub(super) running_lock: &'a RwLock<()>,
}

/// The ending of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunEnding {
    /// It ended with this exit status; `None` after a signal.
    Exit(Option<i32>),
    /// It did not end before the deadline.
    Hung,
    /// The user stopped the whole run.
    Stopped,
}

/// The result of a run.
#[derive(Debug)]
pub(super) struct TestRun {
    pub(super) ending: RunEnding,
    pub(super) outcome: TestOutcome,
    /// The output on both channels.
    pub(super) output: Vec<u8>,
    /// Those of the expected tests that were running at the deadline.
    pub(super) running: BTreeSet<String>,
    /// The things that it did not take away itself.
    pub(super) leftovers: Vec<String>,
    /// Processor time of it and of its children that were waited for.
    pub(super) processor: Duration,
}

/// A piece of output.
enum OutputPiece {
    Out(Vec<u8>),
    Err(Vec<u8>),
}

/// Output as it comes in.
struct OutputCollector {
    pieces: Receiver<OutputPiece>,
    outcome: TestOutcome,
    output: Vec<u8>,
    line: Vec<u8>,
    is_shown: bool,
}

impl OutputCollector {
    fn new(child: &mut Child, is_shown: bool) -> Result<Self> {
        // The channel is bounded, so that a program that prints without end is slowed down instead
        // of filling memory.
        let (sender, pieces) = sync_channel(PIECES);
        pump_output(
            child.stdout.take().context("no output")?,
            sender.clone(),
            OutputPiece::Out,
        )?;
        pump_output(
            child.stderr.take().context("no output")?,
            sender,
            OutputPiece::Err,
        )?;
        Ok(Self {
            pieces,
            outcome: TestOutcome::default(),
            output: Vec::new(),
            line: Vec::new(),
            is_shown,
        })
    }

    /// Receives a piece of output within `limit`, and returns whether there may be more.
    fn receive_within(&mut self, limit: Duration) -> bool {
        match self.pieces.recv_timeout(limit) {
            Ok(piece) => self.take_piece(&piece),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return false,
        }
        true
    }

    fn take_piece(&mut self, piece: &OutputPiece) {
        let (OutputPiece::Out(bytes) | OutputPiece::Err(bytes)) = piece;
        debug_assert!(self.output.len() <= OUTPUT_MAX, "the limit was kept so far");
        // Output beyond the limit is shown, but not kept.
        let room = OUTPUT_MAX.saturating_sub(self.output.len());
        self.output
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
        if let OutputPiece::Err(_) = piece {
            if self.is_shown {
                let _ = std::io::stderr().write_all(bytes);
            }
            return;
        }
        if self.is_shown {
            let _ = std::io::stdout().write_all(bytes);
        }
        // A piece may end in the middle of a line.
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.outcome
                    .add_line(&String::from_utf8_lossy(&std::mem::take(&mut self.line)));
            }
        }
    }

    /// Adds a line of the runner's own to the output.
    fn add_note(&mut self, text: &str) {
        self.output
            .extend_from_slice(format!("{text}\n").as_bytes());
        if self.is_shown {
            println!("{text}");
        }
    }
}

fn pump_output(
    mut from: impl Read + Send + 'static,
    to: SyncSender<OutputPiece>,
    piece: fn(Vec<u8>) -> OutputPiece,
) -> Result<()> {
    let pump = move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if to.send(piece(buffer[..count].to_vec())).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("output".to_owned())
        .spawn(pump)?;
    Ok(())
}

/// Runs `command`, of which `expected` tests are known, to its end or to its deadline.
pub(super) fn run_to_end(
    name: &str,
    mut command: Command,
    expected: &BTreeSet<String>,
    course: RunTerms<'_>,
) -> Result<TestRun> {
    let start = time_since_boot();
    let mark = RunMark::new();
    let places = make_run_dirs(&mark, course)?;
    let beside = course
        .running_lock
        .read()
        .unwrap_or_else(PoisonError::into_inner);
    // The snapshot is taken before the program starts: everything that appears later may be its.
    let look = SystemSnapshot::take_now();
    prepare_command(&mut command, &mark, &places);
    let mut child = command
        .spawn()
        .with_context(|| format!("start {name}: {command:?}"))?;
    let leader = i32::try_from(child.id()).context("a process has a number")?;
    let mut hearing = OutputCollector::new(&mut child, course.is_shown)?;

    let ended_early = watch_until_end(leader, start, &mut hearing, course);
    let mut running = BTreeSet::new();
    if ended_early == Some(RunEnding::Hung) {
        let unfinished = hearing.outcome.unfinished_tests(expected);
        running = hung::running_tests(leader, &unfinished, &String::from_utf8_lossy(&hearing.line));
        hearing.add_note(&format!(
            "\n{name} does not end: killed after {:.1} s",
            (time_since_boot() - start).as_secs_f64()
        ));
        note_hung_run(&mut hearing, &running, &processes::of_run(&mark, leader));
    }
    let mut left = Vec::new();
    if ended_early.is_none() {
        let late = processes::wait_for_run(&mark, leader, course.grace);
        left.extend(late.iter().map(describe_process));
    }
    // The kernel keeps the processor time of the leader until it is waited for.
    let processor = times::of_process(leader);
    drop(beside);
    let killed = kill_rest(&mark, leader, &look, &places, course.running_lock);
    left.extend(killed);
    let mut more = look.clean_since(&places);
    more.retain(|one| !left.contains(one));
    left.extend(more);
    // The number of the leader may be used again only now. A process that cannot be killed is not
    // waited for.
    let status = child.try_wait()?;
    // Pipes may still hold output, and a process that cannot be killed may hold them open.
    let drained = time_since_boot() + DYING;
    while hearing.receive_within(drained.saturating_sub(time_since_boot()))
        && time_since_boot() < drained
    {}
    left.extend(places.iter().flat_map(|place| remove_run_dir(place)));
    let ending = ended_early.unwrap_or(RunEnding::Exit(status.and_then(|status| status.code())));
    let OutputCollector {
        outcome, output, ..
    } = hearing;
    Ok(TestRun {
        ending,
        outcome,
        output,
        running,
        leftovers: left,
        processor,
    })
}

/// Makes the directories of a run: one that all users reach, and a large one.
fn make_run_dirs(mark: &RunMark, course: RunTerms<'_>) -> Result<[PathBuf; 2]> {
    let open = course
        .directories
        .open
        .join(format!("{PREFIX}{}", mark.run_number()));
    std::fs::create_dir(&open).with_context(|| open.display().to_string())?;
    // The directory is like /tmp, since some tests run as another user.
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o1777))?;
    Ok([open, numbered_dir(&course.directories.large)?])
}

/// Gives the command of a run its mark, its directories and its pipes.
fn prepare_command(command: &mut Command, mark: &RunMark, places: &[PathBuf; 2]) {
    command
        .env(mark.variable(), "1")
        .env("TMPDIR", &places[0])
        .env("CARGO_TARGET_TMPDIR", &places[1])
        // A group of its own: a signal to it does not reach this program.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
}

/// Notes in the output which tests and processes of a hung run there were.
fn note_hung_run(
    hearing: &mut OutputCollector,
    running: &BTreeSet<String>,
    of_run: &[ProcessStat],
) {
    for test in running {
        hearing.add_note(&format!("running: {test}"));
    }
    for line in hung::describe_processes(of_run) {
        hearing.add_note(&line);
    }
}

/// A new directory with the shortest name there is: the paths of sockets have a limit, and tests
/// make some in there.
fn numbered_dir(room: &Path) -> Result<PathBuf> {
    // Another run may take a number at the same moment: making the directory decides.
    for number in 0.. {
        let place = room.join(format!("{number}"));
        match std::fs::create_dir(&place) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => {
                return made
                    .map(|()| place.clone())
                    .with_context(|| place.display().to_string());
            }
        }
    }
    unreachable!("some number is free")
}

/// Receives output until the program ends. Returns the ending if it did not end by itself.
fn watch_until_end(
    leader: i32,
    start: Duration,
    hearing: &mut OutputCollector,
    course: RunTerms<'_>,
) -> Option<RunEnding> {
    loop {
        if !hearing.receive_within(Duration::from_millis(10)) {
            pause_briefly();
        }
        if has_ended(leader) {
            return None;
        }
        if course.stop.load(Ordering::Relaxed) {
            return Some(RunEnding::Stopped);
        }
        if time_since_boot() - start >= course.limit {
            return Some(RunEnding::Hung);
        }
    }
}

/// Returns whether the child has ended; its number stays taken.
fn has_ended(leader: i32) -> bool {
    // The child is not reaped (`NOWAIT`), so that its number is not given to another process.
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Pid::from_raw(leader)
        .is_none_or(|pid| waitid(WaitId::Pid(pid), how).map_or(true, |status| status.is_some()))
}

/// Kills the processes that are left. Returns the mounts that were in the way, and the processes
/// that do not die. A thread that waits for a FUSE file system of its own process cannot die before
/// the connection is aborted.
fn kill_rest(
    mark: &RunMark,
    leader: i32,
    look: &SystemSnapshot,
    places: &[PathBuf],
    beside: &RwLock<()>,
) -> Vec<String> {
    // Most runs end here. What follows is for processes that wait for a file system of their own.
    if processes::kill_run(mark, leader, DYING).is_empty() {
        return Vec::new();
    }
    let mut left = look.abort_mounts(places);
    if processes::kill_run(mark, leader, DYING).is_empty() {
        return left;
    }
    // A connection without a mount may be of any program: the others come to their ends first.
    // The write lock waits until no other program runs.
    let _alone = beside.write().unwrap_or_else(PoisonError::into_inner);
    look.abort_hidden();
    let alive = processes::kill_run(mark, leader, DYING);
    left.extend(
        alive
            .iter()
            .map(|process| format!("{}, which cannot be killed", describe_process(process))),
    );
    left
}

fn describe_process(process: &ProcessStat) -> String {
    format!("process {} ({})", process.pid, process.name)
}

/// Removes a directory of the run, and returns the names of the files in it.
fn remove_run_dir(place: &Path) -> Vec<String> {
    let names = std::fs::read_dir(place)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name());
    let left = names
        .map(|name| format!("file {}", place.join(name).display()))
        .collect();
    // A mount that could not be unmounted must not be emptied.
    if !leftovers::is_mounted_below(place) {
        let _ = std::fs::remove_dir_all(place);
    }
    left
}

#[cfg(test)]
mod tests;
