//! The daemon's side of a recording: requests become events, numbers become names.

use crate::control::RecordingStatus;
use anyhow::{Result, bail};
use rustix::fs::RenameFlags;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use teal_command::path_context::PathContext as _;
use teal_env::{Clock as _, Entropy as _, SystemClock, SystemEntropy};
use teal_fuse::{FuseOperation, KernelRequest, ReplyOutcome, SetattrRequest};
use teal_mount::RequestWatcher;
use teal_posix::FileSystem;
use teal_trace::{
    Action, EventOutcome, EventRecorder, Level, ProcessFacts, RecordingContext, RecordingProgress,
    RecordingSettings, Text, TraceHeader, TraceRecording,
};
use teal_types::{FileType, ObjectNo};

/// `ENOENT`.
const NO_ENTRY: u16 = 2;
/// `SEEK_HOLE`.
const SEEK_HOLE: u32 = 4;

/// The recording of a mount, if there is one or was one.
#[derive(Debug, Default)]
pub(crate) struct RecordingSlot(Mutex<Option<(PathBuf, TraceRecording)>>);

/// The recording that a person has asked for.
pub(crate) struct RecordingOrder<'a> {
    /// The new file of the trace.
    pub(crate) file: &'a Path,
    pub(crate) mount_point: &'a Path,
    /// True if names are hidden behind hashes.
    pub(crate) is_anonymous: bool,
    /// The time after which the recording ends; `None`: at a request or with the mount.
    pub(crate) limit: Option<Duration>,
    /// True if the kernel passes every access of a program on.
    pub(crate) is_observed: bool,
}

impl RecordingOrder<'_> {
    /// Refuses a trace on the mount itself: writing it would be recorded, too, without end.
    fn check_place(&self) -> Result<()> {
        if self.file.starts_with(self.mount_point) {
            bail!(
                "{} is on the mount that is to be recorded; choose a place elsewhere",
                self.file.display()
            );
        }
        Ok(())
    }

    /// Makes the file of the trace. Traces may hold names of files, so only their owner may read
    /// them.
    fn make_file(&self) -> Result<File> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(self.file);
        file.with_path(self.file)
    }

    fn trace_header(&self, clock: &SystemClock) -> TraceHeader {
        // An anonymous trace must not name the mount either.
        let source = if self.is_anonymous {
            "a mount of TealFS".into()
        } else {
            self.mount_point.display().to_string()
        };
        TraceHeader {
            level: Level::File,
            anonymous: self.is_anonymous,
            start: clock.civil_time(),
            machine: Text::truncated(describe_machine().as_bytes()),
            source: Text::truncated(source.as_bytes()),
        }
    }
}

impl RecordingSlot {
    /// Begins to record into a new file; `ended` is called at the end of the recording.
    pub(crate) fn start(
        &self,
        order: &RecordingOrder<'_>,
        client: &Arc<FileSystem>,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Arc<dyn RequestWatcher>> {
        // Held while the file is made, so that two recordings cannot begin at once.
        let mut present = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((file, recording)) = &*present
            && !recording.progress().ended
        {
            bail!(
                "{} is being recorded to {} already; --stop ends that",
                order.mount_point.display(),
                file.display()
            );
        }
        order.check_place()?;
        let out = order.make_file()?;
        let clock = SystemClock;
        let settings = RecordingSettings {
            header: order.trace_header(&clock),
            root: ObjectNo::ROOT.get(),
            limit: order.limit,
            key: SystemEntropy.random_id(),
        };
        let named = order.file.to_owned();
        let ended = move |progress: &RecordingProgress| {
            match &progress.failure {
                None => log::info!("recorded {} events to {}", progress.events, named.display()),
                Some(why) => log::error!("the recording to {} ended early: {why}", named.display()),
            }
            ended();
        };
        let surroundings = Box::new(MountSurroundings(Arc::clone(client)));
        let started = TraceRecording::start(
            out,
            |out| out.sync_data(),
            settings,
            Arc::new(clock),
            surroundings,
            ended,
        );
        // A file without a recording would look like an empty trace.
        let recording = started.inspect_err(|_| drop(std::fs::remove_file(order.file)));
        let recording = recording.with_path(order.file)?;
        let recorder = recording.recorder();
        *present = Some((order.file.to_owned(), recording));
        Ok(Arc::new(RecordingWatcher {
            recorder,
            observed: order.is_observed,
        }))
    }

    /// Ends it, if there is one, and says what came of it.
    pub(crate) fn end(&self) -> Option<RecordingStatus> {
        let present = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        present
            .as_ref()
            .map(|(file, recording)| recording_status(file, recording.finish()))
    }

    /// Returns the progress of the present recording, or the result of the last one.
    pub(crate) fn progress(&self) -> Option<RecordingStatus> {
        let present = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        present
            .as_ref()
            .map(|(file, recording)| recording_status(file, recording.progress()))
    }

    /// Sets a mark; `false` if nothing is being recorded.
    pub(crate) fn mark(&self, text: &str) -> bool {
        let present = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A mark in a recording that has ended would be lost.
        let running = present
            .as_ref()
            .filter(|(_, recording)| !recording.progress().ended);
        running.is_some_and(|(_, recording)| {
            recording
                .recorder()
                .set_mark(Text::truncated(text.as_bytes()));
            true
        })
    }
}

fn recording_status(file: &Path, progress: RecordingProgress) -> RecordingStatus {
    let RecordingProgress {
        events,
        dropped,
        bytes,
        ended,
        failure,
    } = progress;
    RecordingStatus {
        file: file.to_owned(),
        events,
        dropped,
        bytes,
        ended,
        failure,
    }
}

fn describe_machine() -> String {
    let name = rustix::system::uname();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let words = [name.sysname(), name.release(), name.machine()]
        .map(|word| word.to_string_lossy().into_owned());
    format!("{}, {processors} processors", words.join(" "))
}

/// Answers a recording's questions about the objects and processes it records.
struct MountSurroundings(Arc<FileSystem>);

impl RecordingContext for MountSurroundings {
    fn name_of(&mut self, object: u64) -> Option<(u64, Vec<u8>)> {
        let names = self.0.store().names(ObjectNo::new(object)).ok()?;
        // The first of several names is as good as the others.
        names
            .into_iter()
            .next()
            .map(|(parent, name)| (parent.get(), name.as_bytes().to_vec()))
    }

    fn process_facts(&mut self, id: u32) -> Option<ProcessFacts> {
        // The process may end between two readings; then there are no facts.
        let read = |name: &str| std::fs::read(format!("/proc/{id}/{name}")).ok();
        let status = String::from_utf8(read("status")?).ok()?;
        let leader = status
            .lines()
            .find_map(|line| line.strip_prefix("Tgid:"))?
            .trim()
            .parse()
            .ok()?;
        let stat = read("stat")?;
        // The name in brackets may hold anything; state, parent, group and session follow it.
        let behind = stat.iter().rposition(|b| *b == b')')?;
        // The session is the fourth word behind the name.
        let session = String::from_utf8_lossy(&stat[behind + 1..])
            .split_whitespace()
            .nth(3)?
            .parse()
            .ok()?;
        let name = read("comm")?.trim_ascii_end().to_vec();
        Some(ProcessFacts {
            leader,
            session,
            name,
        })
    }
}

/// Sees requests and hands them to the recording.
#[derive(Debug)]
struct RecordingWatcher {
    recorder: EventRecorder,
    /// The mount is observed; else the kernel asks once whether a file may be opened, and is told
    /// that it need not ask.
    observed: bool,
}

impl RequestWatcher for RecordingWatcher {
    fn observe_request(&self, request: &KernelRequest<'_>) -> Option<teal_fuse::ReplyWatcher> {
        if !self.observed && matches!(request.operation, FuseOperation::Open { .. }) {
            return None;
        }
        let action = action_of(&request.operation)?;
        let is_lookup = matches!(action, Action::Lookup { .. });
        let ticket =
            self.recorder
                .begin_event(request.header.pid, request.header.node.get(), action)?;
        let recorder = self.recorder.clone();
        Some(Box::new(move |ReplyOutcome { errno, value }| {
            let outcome = match errno {
                Some(errno) => EventOutcome::Failed(errno.raw_os_error() as u16),
                // A lookup that finds nothing answers with node 0 and no error.
                None if is_lookup && value == 0 => EventOutcome::Failed(NO_ENTRY),
                None => EventOutcome::Done(value),
            };
            recorder.end_event(ticket, outcome);
        }))
    }
}

fn setattr_action(set: &SetattrRequest) -> Action {
    // A change of the size is an event of its own, and the other attributes go with it.
    match set.size {
        Some(size) => Action::Truncate { size },
        None => Action::Setattr {
            perm: set.perm.is_some(),
            owner: set.uid.is_some() || set.gid.is_some(),
            times: set.atime.is_some() || set.mtime.is_some() || set.ctime.is_some(),
        },
    }
}

/// Returns the event of a request; `None` for a request that no program caused, or that is not
/// served here.
fn action_of(operation: &FuseOperation<'_>) -> Option<Action> {
    // Requests about names come first, because their events carry the names.
    named_action(operation).or_else(|| {
        Some(match *operation {
            FuseOperation::Open { .. } => Action::Open {},
            FuseOperation::Release { .. } => Action::Close {},
            FuseOperation::Getattr { .. } | FuseOperation::Statx { .. } => Action::Stat {},
            FuseOperation::Setattr(ref set) => setattr_action(set),
            FuseOperation::Readlink => Action::Readlink {},
            FuseOperation::Read { offset, size, .. } => Action::Read {
                offset,
                length: size.into(),
            },
            FuseOperation::Write { offset, data, .. } => Action::Write {
                offset,
                length: data.len() as u64,
            },
            FuseOperation::Fsync { datasync, .. } | FuseOperation::Fsyncdir { datasync, .. } => {
                Action::Fsync { data: datasync }
            }
            FuseOperation::Syncfs => Action::Sync {},
            FuseOperation::Statfs => Action::Statfs {},
            FuseOperation::Getxattr { .. } => Action::Getxattr {},
            FuseOperation::Setxattr { value, .. } => Action::Setxattr {
                length: value.len() as u64,
            },
            FuseOperation::Listxattr { .. } => Action::Listxattr {},
            FuseOperation::Removexattr { .. } => Action::Removexattr {},
            FuseOperation::Readdir { size, .. } | FuseOperation::Readdirplus { size, .. } => {
                Action::Readdir {
                    length: size.into(),
                }
            }
            FuseOperation::Fallocate {
                offset,
                length,
                mode,
                ..
            } => Action::Allocate {
                offset,
                length,
                mode: mode.bits().into(),
            },
            FuseOperation::Lseek { offset, whence, .. } => Action::Seek {
                offset,
                hole: whence == SEEK_HOLE,
            },
            FuseOperation::CopyFileRange {
                offset,
                to_node,
                to_offset,
                length,
                ..
            } => Action::Copy {
                offset,
                target: to_node.get(),
                to: to_offset,
                length,
            },
            _ => return None,
        })
    })
}

/// Returns the event of a request about a name.
fn named_action(operation: &FuseOperation<'_>) -> Option<Action> {
    Some(match *operation {
        FuseOperation::Lookup { name } => Action::Lookup {
            name: Text::truncated(name),
        },
        // The kernel makes regular files with this request; programs mean `creat`.
        FuseOperation::Mknod {
            name,
            kind: FileType::File,
            ..
        } => Action::Create {
            name: Text::truncated(name),
        },
        FuseOperation::Mknod { name, .. } => Action::Mknod {
            name: Text::truncated(name),
        },
        FuseOperation::Mkdir { name, .. } => Action::Mkdir {
            name: Text::truncated(name),
        },
        FuseOperation::Symlink { name, target } => Action::Symlink {
            name: Text::truncated(name),
            length: target.len() as u64,
        },
        FuseOperation::Link { target, name } => Action::Link {
            name: Text::truncated(name),
            target: target.get(),
        },
        FuseOperation::Tmpfile { .. } => Action::Tmpfile {},
        FuseOperation::Unlink { name } => Action::Unlink {
            name: Text::truncated(name),
        },
        FuseOperation::Rmdir { name } => Action::Rmdir {
            name: Text::truncated(name),
        },
        FuseOperation::Rename {
            name,
            new_parent,
            new_name,
            flags,
        } => Action::Rename {
            name: Text::truncated(name),
            to: new_parent.get(),
            new: Text::truncated(new_name),
            exchange: flags.contains(RenameFlags::EXCHANGE),
        },
        _ => return None,
    })
}
