//! The daemon's side of a recording: requests become events, numbers become names.

use crate::control::RecordingStatus;
use anyhow::{Context, Result, bail};
use rustix::fs::RenameFlags;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use teal_env::{Clock as _, Entropy as _, SystemClock, SystemEntropy};
use teal_fuse::{Answer, Operation, Request, SetAttr};
use teal_mount::Watcher;
use teal_posix::FileSystem;
use teal_trace::{
    Action, Facts, Header, Level, Outcome, Progress, Recorder, Recording, Settings, Surroundings,
    Text,
};
use teal_types::{FileType, ObjectNo};

/// `ENOENT`.
const NO_ENTRY: u16 = 2;
/// `SEEK_HOLE`.
const SEEK_HOLE: u32 = 4;

/// The recording of a mount, if there is one or was one.
#[derive(Debug, Default)]
pub(crate) struct Recordings(Mutex<Option<(PathBuf, Recording)>>);

impl Recordings {
    /// Begins to record into a new file; `ended` is called at its end.
    pub(crate) fn start(
        &self,
        file: &Path,
        (anonymous, seconds): (bool, Option<u64>),
        observed: bool,
        (dir, client): (&Path, &Arc<FileSystem>),
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Arc<dyn Watcher>> {
        let mut present = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((file, recording)) = &*present
            && !recording.progress().ended
        {
            bail!(
                "{} is being recorded to {} already; --stop ends that",
                dir.display(),
                file.display()
            );
        }
        if file.starts_with(dir) {
            bail!(
                "{} is on the mount that is to be recorded; choose a place elsewhere",
                file.display()
            );
        }
        let out = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(file);
        let out = out.with_context(|| file.display().to_string())?;
        let clock = SystemClock;
        let source = if anonymous {
            "a mount of TealFS".into()
        } else {
            dir.display().to_string()
        };
        let header = Header {
            level: Level::File,
            anonymous,
            start: clock.civil(),
            machine: Text::cut(machine().as_bytes()),
            source: Text::cut(source.as_bytes()),
        };
        let limit = seconds.map(Duration::from_secs);
        let settings = Settings {
            header,
            root: ObjectNo::ROOT.get(),
            limit,
            key: SystemEntropy.id(),
        };
        let named = file.to_owned();
        let ended = move |progress: &Progress| {
            match &progress.failure {
                None => log::info!("recorded {} events to {}", progress.events, named.display()),
                Some(why) => log::error!("the recording to {} ended early: {why}", named.display()),
            }
            ended();
        };
        let around = Box::new(Around(Arc::clone(client)));
        let started = Recording::start(
            out,
            |out| out.sync_data(),
            settings,
            Arc::new(clock),
            around,
            ended,
        );
        let recording = started.inspect_err(|_| drop(std::fs::remove_file(file)));
        let recording = recording.with_context(|| file.display().to_string())?;
        let recorder = recording.recorder();
        *present = Some((file.to_owned(), recording));
        Ok(Arc::new(Eye { recorder, observed }))
    }

    /// Ends it, if there is one, and says what came of it.
    pub(crate) fn end(&self) -> Option<RecordingStatus> {
        let present = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        present
            .as_ref()
            .map(|(file, recording)| status(file, recording.end()))
    }

    /// How it is doing, or what came of the last one.
    pub(crate) fn progress(&self) -> Option<RecordingStatus> {
        let present = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        present
            .as_ref()
            .map(|(file, recording)| status(file, recording.progress()))
    }

    /// Sets a mark; `false` if nothing is being recorded.
    pub(crate) fn mark(&self, text: &str) -> bool {
        let present = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let running = present
            .as_ref()
            .filter(|(_, recording)| !recording.progress().ended);
        running.is_some_and(|(_, recording)| {
            recording.recorder().mark(Text::cut(text.as_bytes()));
            true
        })
    }
}

fn status(file: &Path, progress: Progress) -> RecordingStatus {
    let Progress {
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

fn machine() -> String {
    let name = rustix::system::uname();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let words = [name.sysname(), name.release(), name.machine()]
        .map(|word| word.to_string_lossy().into_owned());
    format!("{}, {processors} processors", words.join(" "))
}

/// What the recording asks about the things it records.
struct Around(Arc<FileSystem>);

impl Surroundings for Around {
    fn name(&mut self, object: u64) -> Option<(u64, Vec<u8>)> {
        let names = self.0.store().names(ObjectNo::new(object)).ok()?;
        names
            .into_iter()
            .next()
            .map(|(parent, name)| (parent.get(), name.as_bytes().to_vec()))
    }

    fn process(&mut self, id: u32) -> Option<Facts> {
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
        let session = String::from_utf8_lossy(&stat[behind + 1..])
            .split_whitespace()
            .nth(3)?
            .parse()
            .ok()?;
        let name = read("comm")?.trim_ascii_end().to_vec();
        Some(Facts {
            leader,
            session,
            name,
        })
    }
}

/// Sees requests and hands them to the recording.
#[derive(Debug)]
struct Eye {
    recorder: Recorder,
    /// The mount is observed; else the kernel asks once whether a file may be opened, and is told
    /// that it need not ask.
    observed: bool,
}

impl Watcher for Eye {
    fn saw(&self, request: &Request<'_>) -> Option<teal_fuse::Watcher> {
        if !self.observed && matches!(request.operation, Operation::Open { .. }) {
            return None;
        }
        let action = action(&request.operation)?;
        let is_lookup = matches!(action, Action::Lookup { .. });
        let ticket = self
            .recorder
            .begin(request.header.pid, request.header.node.get(), action)?;
        let recorder = self.recorder.clone();
        Some(Box::new(move |Answer { errno, value }| {
            let outcome = match errno {
                Some(errno) => Outcome::Failed(errno.raw_os_error() as u16),
                None if is_lookup && value == 0 => Outcome::Failed(NO_ENTRY),
                None => Outcome::Done(value),
            };
            recorder.end(ticket, outcome);
        }))
    }
}

fn setattr(set: &SetAttr) -> Action {
    match set.size {
        Some(size) => Action::Truncate { size },
        None => Action::Setattr {
            perm: set.perm.is_some(),
            owner: set.uid.is_some() || set.gid.is_some(),
            times: set.atime.is_some() || set.mtime.is_some() || set.ctime.is_some(),
        },
    }
}

/// The event of a request; `None` for what is no doing of programs, or not served here.
fn action(operation: &Operation<'_>) -> Option<Action> {
    names(operation).or_else(|| {
        Some(match *operation {
            Operation::Open { .. } => Action::Open {},
            Operation::Release { .. } => Action::Close {},
            Operation::Getattr { .. } | Operation::Statx { .. } => Action::Stat {},
            Operation::Setattr(ref set) => setattr(set),
            Operation::Readlink => Action::Readlink {},
            Operation::Read { offset, size, .. } => Action::Read {
                offset,
                length: size.into(),
            },
            Operation::Write { offset, data, .. } => Action::Write {
                offset,
                length: data.len() as u64,
            },
            Operation::Fsync { datasync, .. } | Operation::Fsyncdir { datasync, .. } => {
                Action::Fsync { data: datasync }
            }
            Operation::Syncfs => Action::Sync {},
            Operation::Statfs => Action::Statfs {},
            Operation::Getxattr { .. } => Action::Getxattr {},
            Operation::Setxattr { value, .. } => Action::Setxattr {
                length: value.len() as u64,
            },
            Operation::Listxattr { .. } => Action::Listxattr {},
            Operation::Removexattr { .. } => Action::Removexattr {},
            Operation::Readdir { size, .. } | Operation::Readdirplus { size, .. } => {
                Action::Readdir {
                    length: size.into(),
                }
            }
            Operation::Fallocate {
                offset,
                length,
                mode,
                ..
            } => Action::Allocate {
                offset,
                length,
                mode: mode.bits().into(),
            },
            Operation::Lseek { offset, whence, .. } => Action::Seek {
                offset,
                hole: whence == SEEK_HOLE,
            },
            Operation::CopyFileRange {
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

/// The event of a request about a name.
fn names(operation: &Operation<'_>) -> Option<Action> {
    Some(match *operation {
        Operation::Lookup { name } => Action::Lookup {
            name: Text::cut(name),
        },
        Operation::Mknod {
            name,
            kind: FileType::File,
            ..
        } => Action::Create {
            name: Text::cut(name),
        },
        Operation::Mknod { name, .. } => Action::Mknod {
            name: Text::cut(name),
        },
        Operation::Mkdir { name, .. } => Action::Mkdir {
            name: Text::cut(name),
        },
        Operation::Symlink { name, target } => Action::Symlink {
            name: Text::cut(name),
            length: target.len() as u64,
        },
        Operation::Link { target, name } => Action::Link {
            name: Text::cut(name),
            target: target.get(),
        },
        Operation::Tmpfile { .. } => Action::Tmpfile {},
        Operation::Unlink { name } => Action::Unlink {
            name: Text::cut(name),
        },
        Operation::Rmdir { name } => Action::Rmdir {
            name: Text::cut(name),
        },
        Operation::Rename {
            name,
            new_parent,
            new_name,
            flags,
        } => Action::Rename {
            name: Text::cut(name),
            to: new_parent.get(),
            new: Text::cut(new_name),
            exchange: flags.contains(RenameFlags::EXCHANGE),
        },
        _ => return None,
    })
}
