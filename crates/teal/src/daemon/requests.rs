//! The requests of the control socket, and their answers.
//!
//! Requests that may wait for the server or a drive are answered on a thread of their own, so that
//! `teal status` never waits.

use super::report;
use super::volume::ServedVolume;
use crate::config;
use crate::control::{self, ControlAnswer, ControlRequest, DamagedFileShown, ServerCheckShown};
use crate::replica;
use anyhow::{Context, Result, anyhow, bail};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use teal_command::say::{shell_quoted, shown_path, with_causes};
use teal_posix::{FileSystem, FsError};
use teal_replica::{FreedContent, PinRefused, PinSummary, Replica};
use teal_types::ObjectNo;
use teal_volume::Residency as _;

/// Reads the request of a connection, and answers it.
pub(super) fn answer_connection(volume: &Arc<ServedVolume>, stream: UnixStream) {
    let ask = match control::read_request(&stream) {
        Ok(ask) => ask,
        Err(error) => return control::send_answer(&stream, &error_answer(&error)),
    };
    // The requests matched here need neither the server nor a drive, so this thread answers them.
    let answer = match ask {
        ControlRequest::Status => ControlAnswer::Status(Box::new(report::mount_status(volume))),
        ControlRequest::Set { key, value } => change_setting(&volume.client, &key, value),
        ControlRequest::Down => return unmount(volume, stream),
        ControlRequest::Record {
            file,
            anonymous,
            seconds,
        } => match volume.begin_recording(&file, anonymous, seconds) {
            Ok(()) => ControlAnswer::Done,
            Err(error) => error_answer(&error),
        },
        ControlRequest::RecordMark { text } if volume.recordings.mark(&text) => ControlAnswer::Done,
        ControlRequest::RecordMark { .. } => not_recorded(),
        ControlRequest::RecordProgress => recording_answer(volume.recordings.progress()),
        ControlRequest::RecordEnd => recording_answer(volume.recordings.end()),
        ask => return serve_on_a_thread(volume, stream, ask),
    };
    control::send_answer(&stream, &answer);
}

fn error_answer(error: &anyhow::Error) -> ControlAnswer {
    ControlAnswer::Error {
        error: with_causes(error),
    }
}

fn not_recorded() -> ControlAnswer {
    ControlAnswer::Error {
        error: "nothing is being recorded".into(),
    }
}

fn recording_answer(found: Option<control::RecordingStatus>) -> ControlAnswer {
    found.map_or_else(not_recorded, |recording| ControlAnswer::Recording {
        recording,
    })
}

/// Changes a setting of the mount.
fn change_setting(client: &FileSystem, key: &str, value: u64) -> ControlAnswer {
    let store = client.store();
    // Settings are replaced as a whole; after a refused change this writes back what was there.
    let mut settings = store.settings();
    let done = config::change_setting(client, &mut settings, key, value);
    store.set_settings(settings);
    // The commit thread may be asleep for the old interval.
    client.settings_changed();
    match done {
        Ok(()) => ControlAnswer::Done,
        Err(error) => ControlAnswer::Error { error },
    }
}

/// Unmounts, and answers when the store is closed.
fn unmount(volume: &Arc<ServedVolume>, stream: UnixStream) {
    // The connection is answered here only if the mount stays; otherwise the end of the mount
    // answers it.
    if let Err((stream, error)) = volume.end_for(stream) {
        let error = format!(
            "{error}: a program has files open there or works in it (try `fuser -vm {}`)",
            volume.args.dir.display()
        );
        control::send_answer(&stream, &ControlAnswer::Error { error });
    }
}

/// Answers a request that may wait for the server.
fn serve_on_a_thread(volume: &Arc<ServedVolume>, stream: UnixStream, ask: ControlRequest) {
    // The socket's own thread has to stay free for `teal status`.
    let volume = Arc::clone(volume);
    let answering = move || {
        let done = answer_about_server(&volume, &ask);
        control::send_answer(&stream, &done.unwrap_or_else(|error| error_answer(&error)));
    };
    let named = std::thread::Builder::new().name("teal-asked".into());
    if let Err(error) = named.spawn(answering) {
        log::error!("a thread for a request of the control socket: {error}");
    }
}

/// Carries out what concerns the server, the drives, or what is kept on this machine.
fn answer_about_server(volume: &ServedVolume, ask: &ControlRequest) -> Result<ControlAnswer> {
    let client = &volume.client;
    match ask {
        // The answer comes only when the server has everything.
        ControlRequest::Flush => flush_upstream(volume)?,
        ControlRequest::CheckServer => return check_server(volume),
        ControlRequest::Conflicts => {
            let conflicts = replica::open_conflicts(client)?;
            return Ok(ControlAnswer::Conflicts { conflicts });
        }
        ControlRequest::Resolve { id } => {
            // Without a server there are no conflicts.
            let replica = client.replica().ok_or(FsError::NotFound)?;
            replica.resolve_conflict(*id)?;
        }
        ControlRequest::Pin { object } => {
            return Ok(pinned_answer(
                &keeping_replica(client)?.pin(ObjectNo::new(*object))?,
            ));
        }
        ControlRequest::Free { object } => {
            return Ok(freed_answer(
                &keeping_replica(client)?.free(ObjectNo::new(*object))?,
            ));
        }
        // Only the process that serves a volume can invite, shut out and readmit machines.
        ControlRequest::Token | ControlRequest::Revoke { .. } | ControlRequest::Readmit { .. } => {
            return volume.with_server(|serving| {
                let serving = serving.context("this volume is not served here")?;
                match ask {
                    ControlRequest::Revoke { replica } => {
                        serving.server.revoke(serving.volume(), *replica)?
                    }
                    ControlRequest::Readmit { replica } => {
                        serving.server.readmit(serving.volume(), *replica)?
                    }
                    _ => return serving.make_invitation(),
                }
                Ok(ControlAnswer::Done)
            });
        }
        _ => return volume.drives.answer_request(ask),
    }
    Ok(ControlAnswer::Done)
}

/// Checks the data of the server in this process, and mends what this machine's own store has.
fn check_server(volume: &ServedVolume) -> Result<ControlAnswer> {
    // The lock is released before the check, which may take hours.
    let found = volume.with_server(|serving| {
        serving.map(|serving| (Arc::clone(&serving.server), serving.volume()))
    });
    let (server, served) = found.context("this volume is not served here")?;
    let client = &volume.client;
    let checked = server.check_data(&|of, object, range| {
        // Another volume of the same server has its content elsewhere.
        (of == served).then(|| content_here(client, object, range))?
    });
    let report = checked.map_err(|refusal| anyhow!(refusal.words))?;
    let mut files = Vec::new();
    for file in &report.files {
        files.push(DamagedFileShown {
            path: file.path.clone(),
            object: file.object.get(),
            present_pieces: file.present_pieces,
            past_pieces: file.past_pieces,
        });
    }
    Ok(ControlAnswer::ServerChecked {
        checked: Box::new(ServerCheckShown {
            packs: report.packs,
            chunks: report.chunks,
            pieces: report.pieces,
            mended: report.mended,
            problems: report.problems,
            problem_count: report.problem_count,
            files,
            file_count: report.file_count,
        }),
    })
}

/// Reads a range of a file from this machine's store; `None` unless all of it is here.
fn content_here(client: &FileSystem, object: ObjectNo, range: Range<u64>) -> Option<Vec<u8>> {
    let replica = client.replica()?;
    // While this lock is held, no content becomes absent.
    let _reading = replica.lock_for_reading(object);
    let absent = replica.absent_ranges(object).ok()?;
    if absent.overlaps(range.start, range.end) {
        return None;
    }
    let len = usize::try_from(range.end - range.start).ok()?;
    let content = client.store().read(object, range.start, len).ok()?;
    (content.len() == len).then_some(content)
}

/// Sends everything that is only here to the server, and says what stayed behind.
fn flush_upstream(volume: &ServedVolume) -> Result<()> {
    let dir = shown_path(&volume.args.dir);
    let Some(replica) = volume.client.replica() else {
        let dir = shell_quoted(&dir);
        bail!(
            "the volume on {dir} has no server to send anything to; give it one: teal serve {dir}"
        );
    };
    // A mount may have a server and not ask it, for example if it is read-only.
    if !volume.asks_server() {
        let why = volume.why_server_is_not_asked();
        bail!("nothing was sent to the server of {dir}: {why}");
    }
    // Changes that could not be sent are still safe on this machine; people need only the reason.
    replica
        .flush_upstream()
        .map_err(|e| match e.into_words_of_server() {
            Ok(why) => anyhow!("not everything is at the server: {why}"),
            Err(e) => e.into(),
        })
}

/// Returns what keeps content on this machine and gives it back; a volume without a server keeps
/// all of it.
fn keeping_replica(client: &FileSystem) -> Result<&Arc<Replica>, PinRefused> {
    client.replica().ok_or(PinRefused::Alone)
}

fn pinned_answer(pinned: &PinSummary) -> ControlAnswer {
    ControlAnswer::Pinned {
        files: pinned.files,
        bytes: pinned.bytes,
        missing: pinned.missing,
    }
}

fn freed_answer(freed: &FreedContent) -> ControlAnswer {
    ControlAnswer::Freed {
        files: freed.files,
        bytes: freed.bytes,
        stay: freed.only_here,
        stay_bytes: freed.only_here_bytes,
    }
}
