//! The control socket of a mount: one line of JSON asks, one line answers.
//!
//! The module `messages` has the requests and the answers, `states` and `verdicts` what they mean.

mod messages;
mod states;
mod verdicts;

pub(crate) use messages::*;
pub(crate) use states::{MountPhase, RequestTransport, SyncReach};
pub(crate) use verdicts::{MachineState, SafetyVerdict, ServerState, StoreState, count_of};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::PidfdFlags;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use teal_command::path_context::PathContext as _;
use teal_command::paths;
use teal_command::say::escape_control;

/// The longest time that an answer may take; unmounting may have much to write.
const PATIENCE: Duration = Duration::from_secs(120);
/// The seconds in which a daemon whose mount was taken away lets go of its socket.
const ENDING_SECS: i64 = 30;
/// Longest request taken.
const LINE_MAX: u64 = 4096;

fn socket_path(dir: &Path) -> Result<PathBuf> {
    Ok(paths::runtime_dir()?.join(format!("{}.sock", paths::mount_key(dir))))
}

/// The listening end; removes its socket when dropped.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    pub(crate) listener: UnixListener,
    path: PathBuf,
}

impl ControlSocket {
    /// Listens for the mount at `dir`. A socket of a daemon that is gone is replaced.
    pub(crate) fn bind(dir: &Path) -> Result<Self> {
        let path = socket_path(dir)?;
        // A socket that accepts connections belongs to a live daemon; any other was left by one
        // that died.
        if let Ok(stream) = UnixStream::connect(&path)
            && !has_let_go(stream)
        {
            bail!("{} is served by another process already", dir.display());
        }
        // A failure to remove it shows in `bind`.
        let _ = std::fs::remove_file(&path);
        let socket = UnixListener::bind(&path).with_path(&path)?;
        Ok(Self {
            listener: socket,
            path,
        })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Waits for the daemon at the other end if its mount has been taken away; returns whether it has
/// ended, or has at least removed its socket.
fn has_let_go(stream: UnixStream) -> bool {
    let Ok(daemon) = daemon_of(&stream) else {
        return false;
    };
    match ask_on(stream, &ControlRequest::Status, PATIENCE) {
        Ok(ControlAnswer::Status(status)) if status.phase == MountPhase::Serving => false,
        // A daemon that ends closes the connection, at the latest with its process.
        Ok(ControlAnswer::Status(_)) | Err(_) => {
            wait_for_end(&daemon, ENDING_SECS).unwrap_or(false)
        }
        Ok(_) => false,
    }
}

/// Returns the process at the other end of a connection.
fn daemon_of(stream: &UnixStream) -> Result<OwnedFd> {
    let pid = rustix::net::sockopt::socket_peercred(stream)
        .context("the process of the daemon is not known")?
        .pid;
    // Taken while it lives, so that it means this process for ever.
    rustix::process::pidfd_open(pid, PidfdFlags::empty())
        .context("the daemon's process cannot be watched")
}

/// Waits for the end of a process; returns whether it came in time.
fn wait_for_end(process: &OwnedFd, seconds: i64) -> Result<bool> {
    let end = Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    let ended = rustix::event::poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&end))
        .context("the end of the daemon cannot be awaited")?;
    Ok(ended > 0)
}

/// Reads one request.
pub(crate) fn read_request(stream: &UnixStream) -> Result<ControlRequest> {
    use std::io::Read;
    // A client that connects and sends nothing must not hold up the thread of the control socket.
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_MAX)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// Sends one answer. A failure is ignored, because the other side may have gone away.
pub(crate) fn send_answer(mut stream: &UnixStream, answer: &ControlAnswer) {
    let line = serde_json::to_string(answer)
        .unwrap_or_else(|e| format!(r#"{{"error":"the answer cannot be written: {e}"}}"#));
    debug_assert!(!line.contains('\n'), "an answer is one line");
    let line = line + "\n";
    let _ = stream.write_all(line.as_bytes());
}

/// Asks the daemon of a mount; `None` when there is none.
pub(crate) fn ask(dir: &Path, ask: &ControlRequest) -> Result<Option<ControlAnswer>> {
    ask_at(&socket_path(dir)?, ask)
}

/// Asks the daemon of a mount, which has `patience` to answer; `None` when there is none.
pub(crate) fn ask_within(
    dir: &Path,
    ask: &ControlRequest,
    patience: Duration,
) -> Result<Option<ControlAnswer>> {
    let Ok(stream) = UnixStream::connect(socket_path(dir)?) else {
        return Ok(None);
    };
    ask_on(stream, ask, patience).map(Some)
}

/// Asks the daemon of a mount to end and waits until its process has: then the store's lock is
/// free. `None` when there is no daemon.
pub(crate) fn ask_down(dir: &Path) -> Result<Option<ControlAnswer>> {
    let path = socket_path(dir)?;
    // A daemon that has ended leaves no socket that accepts a connection.
    let Ok(stream) = UnixStream::connect(&path) else {
        return Ok(None);
    };
    // The kernel knows the process at the other end of the socket.
    let daemon = rustix::net::sockopt::socket_peercred(&stream)
        .context("the process of the daemon is not known")?
        .pid;
    let process = daemon_of(&stream)?;
    let said = ask_on(stream, &ControlRequest::Down, PATIENCE);
    if said.is_err()
        && matches!(
            paths::inspect_mount_point(dir),
            Ok(paths::MountPointState::Mounted)
        )
    {
        // Busy: the daemon lives on.
        return said.map(Some);
    }
    // Waits for the process even where no answer came: the store's lock is free only when it has
    // ended.
    let has_ended = wait_for_end(&process, PATIENCE.as_secs().cast_signed())?;
    let is_dead = matches!(
        paths::inspect_mount_point(dir),
        Ok(paths::MountPointState::Dead)
    );
    // The daemon was being killed when it was asked: there is none any more.
    if said.is_err() && has_ended && is_dead {
        return Ok(None);
    }
    let answer = said?;
    if !has_ended {
        let pid = daemon.as_raw_nonzero();
        bail!(
            "{} is unmounted, but its daemon (process {pid}) has not ended and still holds the \
             store",
            dir.display()
        );
    }
    Ok(Some(answer))
}

fn ask_at(path: &Path, ask: &ControlRequest) -> Result<Option<ControlAnswer>> {
    let Ok(stream) = UnixStream::connect(path) else {
        return Ok(None);
    };
    ask_on(stream, ask, PATIENCE).map(Some)
}

fn ask_on(
    mut stream: UnixStream,
    ask: &ControlRequest,
    patience: Duration,
) -> Result<ControlAnswer> {
    stream.set_read_timeout(Some(patience))?;
    stream.write_all((serde_json::to_string(ask)? + "\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(&stream)
        .read_line(&mut line)
        .context("the daemon does not answer")?;
    // A daemon that is killed closes the connection without a word.
    if line.is_empty() {
        bail!("the daemon ended without an answer");
    }
    match serde_json::from_str(&line).context(
        "the daemon's answer cannot be understood: it may be of another version of teal; \
         `umount` ends it",
    )? {
        ControlAnswer::Error { error } => bail!("{}", escape_control(&error)),
        answer => Ok(answer),
    }
}

/// Returns the status of every mount that answers.
pub(crate) fn all_statuses() -> Result<Vec<MountStatus>> {
    let mut found = Vec::new();
    let dir = paths::runtime_dir()?;
    for entry in std::fs::read_dir(&dir).with_path(&dir)? {
        let path = entry?.path();
        // Sockets of daemons that died are passed over: they refuse the connection.
        if path.extension().is_some_and(|e| e == "sock")
            && let Ok(Some(ControlAnswer::Status(status))) = ask_at(&path, &ControlRequest::Status)
        {
            found.push(*status);
        }
    }
    // Sorted, so that the list has the same order every time.
    found.sort_by(|a, b| a.mount_point.cmp(&b.mount_point));
    Ok(found)
}
