//! The control socket of a mount: one line of JSON asks, one line answers.
//!
//! | request | answer |
//! |---|---|
//! | `{"do":"status"}` | a [`Status`] |
//! | `{"do":"down"}` | `{"ok":true}` when everything is on the disk and the mount is gone |
//! | `{"do":"set","key":K,"value":N}` | `{"ok":true}` |
//! | `{"do":"record","file":F,"anonymous":B,"seconds":N}` | `{"ok":true}` when requests are being recorded into the new file |
//! | `{"do":"recordmark","text":T}` | `{"ok":true}` |
//! | `{"do":"recordprogress"}` | a [`RecordingStatus`] |
//! | `{"do":"token"}` | a token for one machine, where the server listens, its fingerprint |
//! | `{"do":"flush"}` | `{"ok":true}` when the server has all that was only here |
//! | `{"do":"conflicts"}` | the open conflicts |
//! | `{"do":"resolve","id":N}`, `{"do":"revoke","replica":N}` | `{"ok":true}` |
//! | `{"do":"deviceadd",…}`, `{"do":"devicedetach","name":N,"fast":B}`, `{"do":"devicerm","name":N}` | `{"ok":true}` |
//! | `{"do":"deviceattach","path":P}` | `{"ok":true}`, or the name of the drive if it was attached already |
//! | `{"do":"devicels"}` | the drives of the volume, and why the server could not be asked for all of them |
//! | `{"do":"affinityadd","object":N,"drive":D,"sticky":B}` | how many files have affinity, and their bytes |
//! | `{"do":"affinityls","drive":D}`, `{"do":"affinityrm","object":N,"drive":D}` | what has affinity; `{"ok":true}` |
//! | `{"do":"pin","object":N}` | how many files are always here, their bytes, and how many of those are missing |
//! | `{"do":"free","object":N}` | how many files were given back, their bytes, and what stays |
//! | `{"do":"where","object":N}` | where an object's content is |
//! | `{"do":"recordend"}` | a [`RecordingStatus`], when everything is written |
//!
//! A failure answers `{"error":"…"}`.

use crate::paths;
use crate::say::plain;
use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::PidfdFlags;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long an answer may take; unmounting may have much to write.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longest request taken.
const LINE_MAX: u64 = 4096;

/// What may be asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Ask {
    Status,
    Down,
    Set { key: String, value: u64 },
    Record { file: PathBuf, anonymous: bool, seconds: Option<u64> },
    RecordMark { text: String },
    RecordProgress,
    RecordEnd,
    Token,
    Flush,
    Conflicts,
    Resolve { id: u64 },
    Revoke { replica: u32 },
    DeviceAdd { path: PathBuf, size: Option<u64>, name: String, portable: bool, profile: String, force: bool },
    DeviceLs,
    DeviceAttach { path: PathBuf },
    DeviceDetach { name: String, fast: bool },
    DeviceRm { name: String },
    Where { object: u64 },
    Pin { object: u64 },
    Free { object: u64 },
    AffinityAdd { object: u64, drive: String, sticky: bool },
    AffinityLs { drive: String },
    AffinityRm { object: u64, drive: String },
}

/// Something that is always to be on a drive.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct AffinityLine {
    pub(crate) path: String,
    pub(crate) bytes: u64,
    /// Of all of it.
    pub(crate) size: u64,
    pub(crate) sticky: bool,
    /// The rest of it has found no room.
    pub(crate) short: bool,
}

/// A drive of the volume, as it is shown.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct DeviceLine {
    pub(crate) device: u32,
    pub(crate) name: String,
    pub(crate) portable: bool,
    pub(crate) profile: String,
    /// Of its store.
    pub(crate) bytes: u64,
    /// Where it is, if it is attached here.
    pub(crate) place: Option<String>,
    /// The machine that has it attached, as far as the server knows.
    pub(crate) attached_to: Option<String>,
    /// It was attached here, and is another machine's since: what is said of that.
    pub(crate) superseded: Option<String>,
    /// What content can take on it; this and what follows of one that is attached here.
    pub(crate) total_bytes: u64,
    pub(crate) free_bytes: Option<u64>,
    pub(crate) objects: Option<u64>,
    /// Nothing on it is older than this commit.
    pub(crate) position: Option<u64>,
    pub(crate) queued: u64,
    pub(crate) queued_bytes: u64,
    /// Files with affinity that found no room on it, and how many bytes of them.
    pub(crate) short: u64,
    pub(crate) short_bytes: u64,
    /// It has not come back from what it was asked.
    pub(crate) late: bool,
    pub(crate) counts: Vec<(String, u64)>,
}

/// Where an object's content is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct WhereLine {
    pub(crate) path: String,
    pub(crate) size: u64,
    /// It is always here, because this is pinned.
    pub(crate) pinned: Option<String>,
    /// In the order in which they would be asked.
    pub(crate) sources: Vec<SourceLine>,
}

/// A place where content may be.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SourceLine {
    pub(crate) name: String,
    /// The commit whose content it has.
    pub(crate) version: Option<u64>,
    pub(crate) bytes: u64,
    /// Until the first block, as predicted; this and what follows is `null` where nothing is known yet.
    pub(crate) microseconds: Option<u64>,
    /// Whether that was measured; otherwise it is of the drive's profile.
    pub(crate) is_measured: Option<bool>,
    /// What the machine and the source draw meanwhile, modelled.
    pub(crate) microjoules: Option<u64>,
    /// Weighted seconds and joules.
    pub(crate) cost: Option<f64>,
    pub(crate) why: String,
}

/// The state of a mount.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) mount_point: PathBuf,
    pub(crate) store: PathBuf,
    pub(crate) label: String,
    pub(crate) uuid: String,
    pub(crate) pid: u32,
    pub(crate) read_only: bool,
    /// Writing has ended after a failure of the disk.
    pub(crate) failed: bool,
    pub(crate) total_bytes: u64,
    pub(crate) free_bytes: u64,
    pub(crate) live_bytes: u64,
    pub(crate) objects: u64,
    /// Changes of the last seconds that are not on the disk yet.
    pub(crate) uncommitted: bool,
    pub(crate) orphans: u64,
    pub(crate) settings: Vec<(String, u64)>,
    pub(crate) counters: Vec<(String, u64)>,
    pub(crate) requests: Vec<(String, u64)>,
    /// Whether they come over io_uring, not over /dev/fuse.
    #[serde(default)]
    pub(crate) uring: bool,
    /// The recording that is on its way, or the last one.
    pub(crate) recording: Option<RecordingStatus>,
    /// What is between this mount and the server, if the volume has one.
    pub(crate) upstream: Option<UpstreamShown>,
    /// The drives that are attached here.
    #[serde(default)]
    pub(crate) drives: Vec<DriveHere>,
}

/// A drive that is attached here.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct DriveHere {
    pub(crate) name: String,
    pub(crate) place: String,
    /// Objects that wait to be copied to it.
    pub(crate) queued: u64,
}

/// The state of a recording.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RecordingStatus {
    pub(crate) file: PathBuf,
    pub(crate) events: u64,
    /// Events that came too fast.
    pub(crate) dropped: u64,
    pub(crate) bytes: u64,
    pub(crate) ended: bool,
    /// Why it ended early.
    pub(crate) failure: Option<String>,
}

/// A conflict, as it is shown.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ConflictShown {
    pub(crate) id: u64,
    pub(crate) kind: String,
    pub(crate) device: String,
    pub(crate) time: String,
    pub(crate) path: String,
    pub(crate) copy_path: String,
    pub(crate) lost: String,
}

/// Where a replica stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct UpstreamShown {
    /// Whether the server is in this process.
    pub(crate) served: Option<String>,
    pub(crate) replica: u32,
    pub(crate) incarnation: u32,
    /// The commit up to which history is applied.
    pub(crate) seen: u64,
    /// Objects of which something is only here.
    pub(crate) only_here: u64,
    pub(crate) only_here_bytes: u64,
    /// Why the server cannot be asked.
    pub(crate) trouble: Option<String>,
    pub(crate) denied: bool,
    /// Why the server, though it answers, does not take changes.
    pub(crate) stuck: Option<String>,
    pub(crate) live: bool,
    pub(crate) announcing: bool,
    pub(crate) last_flush_secs: Option<u64>,
    /// What is always to be here, and whether all of it is: `null`, or why not.
    pub(crate) pinned: Vec<String>,
    pub(crate) pinned_missing: Option<String>,
    pub(crate) counts: Vec<(String, u64)>,
    /// Machines of the volume, if it is served here.
    pub(crate) machines: Vec<MachineShown>,
    /// What the server has done since it was started, if it is here.
    pub(crate) server_counts: Vec<(String, u64)>,
}

/// Another machine, as its server sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct MachineShown {
    pub(crate) replica: u32,
    pub(crate) device: String,
    pub(crate) connected: bool,
    pub(crate) revoked: bool,
    /// The commit it has come to.
    pub(crate) position: u64,
    /// When it was last heard of.
    pub(crate) last_heard: String,
}

/// Any answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Answer {
    Error {
        error: String,
    },
    Done {
        ok: bool,
    },
    Token {
        token: String,
        address: String,
        fingerprint: String,
        minutes: u64,
    },
    Conflicts {
        conflicts: Vec<ConflictShown>,
    },
    /// A drive was attached before it was asked for.
    Already {
        already: String,
    },
    /// `trouble`: why the server cannot be asked for those that are not attached here.
    Devices {
        devices: Vec<DeviceLine>,
        trouble: Option<String>,
    },
    Where {
        whereabouts: WhereLine,
    },
    Affinities {
        affinities: Vec<AffinityLine>,
    },
    // Before those of which all fields are in it, too.
    Pinned {
        files: u64,
        bytes: u64,
        missing: u64,
    },
    Freed {
        files: u64,
        bytes: u64,
        stay: u64,
        stay_bytes: u64,
    },
    Marked {
        files: u64,
        bytes: u64,
    },
    Status(Box<Status>),
    // Behind the status, which has a field of this name, too.
    Recording {
        recording: RecordingStatus,
    },
}

fn socket_path(dir: &Path) -> Result<PathBuf> {
    Ok(paths::runtime_dir()?.join(format!("{}.sock", paths::key(dir))))
}

/// The listening end; removes its socket when dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: UnixListener,
    path: PathBuf,
}

impl Listener {
    /// Listens for the mount at `dir`. A socket of a daemon that is gone is replaced.
    pub(crate) fn bind(dir: &Path) -> Result<Self> {
        let path = socket_path(dir)?;
        if UnixStream::connect(&path).is_ok() {
            bail!("{} is served by another process already", dir.display());
        }
        let _ = std::fs::remove_file(&path);
        let socket = UnixListener::bind(&path).with_context(|| path.display().to_string())?;
        Ok(Self { socket, path })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Reads one request.
pub(crate) fn receive(stream: &UnixStream) -> Result<Ask> {
    use std::io::Read;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_MAX)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// Sends one answer; nobody may be listening any more.
pub(crate) fn answer(mut stream: &UnixStream, answer: &Answer) {
    let line = serde_json::to_string(answer).unwrap_or_default() + "\n";
    let _ = stream.write_all(line.as_bytes());
}

/// Asks the daemon of a mount; `None` when there is none.
pub(crate) fn ask(dir: &Path, ask: &Ask) -> Result<Option<Answer>> {
    ask_at(&socket_path(dir)?, ask)
}

/// Asks the daemon of a mount to end and waits until its process has: then the store's lock is free. `false` when there is none.
pub(crate) fn ask_down(dir: &Path) -> Result<bool> {
    let path = socket_path(dir)?;
    let Ok(stream) = UnixStream::connect(&path) else { return Ok(false) };
    let daemon = rustix::net::sockopt::socket_peercred(&stream).context("who is the daemon?")?.pid;
    // Taken while it lives, so that it means this process for ever.
    let daemon = rustix::process::pidfd_open(daemon, PidfdFlags::empty()).context("watching the daemon")?;
    let said = ask_on(stream, &Ask::Down);
    if said.is_err() && matches!(paths::look_at(dir), Ok(paths::Point::Mounted)) {
        // Busy: the daemon lives on.
        return said.map(|_| true);
    }
    let end = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    rustix::event::poll(&mut [PollFd::new(&daemon, PollFlags::IN)], Some(&end)).context("waiting for the daemon")?;
    said.map(|_| true)
}

fn ask_at(path: &Path, ask: &Ask) -> Result<Option<Answer>> {
    let Ok(stream) = UnixStream::connect(path) else { return Ok(None) };
    ask_on(stream, ask).map(Some)
}

fn ask_on(mut stream: UnixStream, ask: &Ask) -> Result<Answer> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all((serde_json::to_string(ask)? + "\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).context("the daemon does not answer")?;
    if line.is_empty() {
        bail!("the daemon ended without an answer");
    }
    match serde_json::from_str(&line).context("the daemon's answer cannot be understood")? {
        Answer::Error { error } => bail!("{}", plain(&error)),
        answer => Ok(answer),
    }
}

/// The status of every mount that answers.
pub(crate) fn all() -> Result<Vec<Status>> {
    let mut found = Vec::new();
    let dir = paths::runtime_dir()?;
    for entry in std::fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "sock")
            && let Ok(Some(Answer::Status(status))) = ask_at(&path, &Ask::Status)
        {
            found.push(*status);
        }
    }
    found.sort_by(|a, b| a.mount_point.cmp(&b.mount_point));
    Ok(found)
}
