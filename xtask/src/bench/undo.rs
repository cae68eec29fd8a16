//! The list of things that must be undone before the program ends, however it ends.
//!
//! # Guarantees
//! 1. Every noted thing is undone once, in reverse order: at the drop of the guard (return, error,
//!    panic), or on SIGINT and SIGTERM.

use anyhow::Result;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// A thing that outlives the process unless it is taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UndoStep {
    /// A mount point; its server ends with the mount.
    Mount(PathBuf),
    /// Programs that serve a mount point and do not end with the mount.
    Servers(PathBuf),
    /// A loop device.
    Loop(PathBuf),
    /// A directory with everything in it.
    Tree(PathBuf),
    /// A server that this program started; noted until it has been waited for.
    Process(u32),
}

/// The things that exist now and must be undone. The lock is held only to add or take one.
static NOTED: Mutex<Vec<UndoStep>> = Mutex::new(Vec::new());

pub(crate) struct UndoGuard;

impl Drop for UndoGuard {
    fn drop(&mut self) {
        undo_all();
    }
}

/// Returns a guard that undoes everything when it is dropped; a signal does so too.
pub(crate) fn undo_at_exit() -> Result<UndoGuard> {
    // The handler is installed before anything is noted.
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    std::thread::Builder::new()
        .name("undo".to_owned())
        .spawn(move || {
            if signals.forever().next().is_some() {
                eprintln!("\nstopped; cleaning up");
                undo_all();
                std::process::exit(130);
            }
        })?;
    Ok(UndoGuard)
}

/// Notes a thing that is about to exist.
pub(crate) fn note_undo(what: UndoStep) {
    let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    // A mount point may be noted again when it is mounted again.
    if !noted.contains(&what) {
        noted.push(what);
    }
}

fn undo_all() {
    // Steps are taken one by one, so that a second caller finds the list shorter and undoes nothing
    // twice.
    while let Some(what) = { NOTED.lock().unwrap_or_else(PoisonError::into_inner).pop() } {
        match &what {
            UndoStep::Mount(point) => run_quietly("umount", &["-l"], point),
            UndoStep::Loop(device) => run_quietly("losetup", &["-d"], device),
            UndoStep::Tree(tree) => drop(std::fs::remove_dir_all(tree)),
            UndoStep::Process(pid) => kill_process(*pid),
            UndoStep::Servers(point) => servers_of(point).into_iter().for_each(kill_process),
        }
    }
}

/// Forgets a thing that does not exist any more.
pub(crate) fn forget_undo(what: &UndoStep) {
    NOTED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .retain(|noted| noted != what);
}

/// Returns the processes that were started with `point` as one of their arguments.
pub(crate) fn servers_of(point: &Path) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_server = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0)
            .any(|word| word == point.as_os_str().as_encoded_bytes())
    };
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(is_server)
        .collect()
}

fn kill_process(pid: u32) {
    if let Some(pid) = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
    {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

fn run_quietly(program: &str, args: &[&str], last: &Path) {
    drop(
        Command::new(program)
            .args(args)
            .arg(last)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status(),
    );
}
