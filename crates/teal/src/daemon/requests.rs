//! The requests of the control socket, and their answers.
//!
//! Requests that may wait for the server or a drive are answered on a thread of their own, so that
//! `teal status` never waits.

use super::report;
use super::volume::ServedVolume;
use crate::config;
use crate::control::{self, Answer, Ask};
use crate::replica;
use anyhow::{Context, Result, anyhow, bail};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use teal_command::say::{quoted, shown, with_causes};
use teal_posix::{FileSystem, FsError};
use teal_replica::{Freed, PinRefused, Pinned, Replica};
use teal_types::ObjectNo;

/// Reads the request of a connection, and answers it.
pub(super) fn serve(volume: &Arc<ServedVolume>, stream: UnixStream) {
    let ask = match control::receive(&stream) {
        Ok(ask) => ask,
        Err(error) => return control::answer(&stream, &failed(&error)),
    };
    let answer = match ask {
        Ask::Status => Answer::Status(Box::new(report::status(volume))),
        Ask::Set { key, value } => set(&volume.client, &key, value),
        Ask::Down => return down(volume, stream),
        Ask::Record {
            file,
            anonymous,
            seconds,
        } => match volume.record(&file, anonymous, seconds) {
            Ok(()) => Answer::Done,
            Err(error) => failed(&error),
        },
        Ask::RecordMark { text } if volume.recordings.mark(&text) => Answer::Done,
        Ask::RecordMark { .. } => not_recorded(),
        Ask::RecordProgress => recording(volume.recordings.progress()),
        Ask::RecordEnd => recording(volume.recordings.end()),
        ask => return serve_on_a_thread(volume, stream, ask),
    };
    control::answer(&stream, &answer);
}

fn failed(error: &anyhow::Error) -> Answer {
    Answer::Error {
        error: with_causes(error),
    }
}

fn not_recorded() -> Answer {
    Answer::Error {
        error: "nothing is being recorded".into(),
    }
}

fn recording(found: Option<control::RecordingStatus>) -> Answer {
    found.map_or_else(not_recorded, |recording| Answer::Recording { recording })
}

/// Changes a setting of the mount.
fn set(client: &FileSystem, key: &str, value: u64) -> Answer {
    let store = client.store();
    let mut settings = store.settings();
    let done = config::set(client, &mut settings, key, value);
    store.set_settings(settings);
    client.settings_changed();
    match done {
        Ok(()) => Answer::Done,
        Err(error) => Answer::Error { error },
    }
}

/// Unmounts; the answer comes when the store is closed.
fn down(volume: &Arc<ServedVolume>, stream: UnixStream) {
    if let Err((stream, error)) = volume.end_for(stream) {
        let error = format!(
            "{error}: a program has files open there or works in it (try `fuser -vm {}`)",
            volume.args.dir.display()
        );
        control::answer(&stream, &Answer::Error { error });
    }
}

/// Answers a request that may wait for the server.
fn serve_on_a_thread(volume: &Arc<ServedVolume>, stream: UnixStream, ask: Ask) {
    let volume = Arc::clone(volume);
    let answering = move || {
        let done = about_the_server(&volume, &ask);
        control::answer(&stream, &done.unwrap_or_else(|error| failed(&error)));
    };
    let named = std::thread::Builder::new().name("teal-asked".into());
    if let Err(error) = named.spawn(answering) {
        log::error!("a thread for a request of the control socket: {error}");
    }
}

/// Carries out what concerns the server, the drives, or what is kept on this machine.
fn about_the_server(volume: &ServedVolume, ask: &Ask) -> Result<Answer> {
    let client = &volume.client;
    match ask {
        Ask::Flush => flush(volume)?,
        Ask::Conflicts => {
            let conflicts = replica::conflicts(client)?;
            return Ok(Answer::Conflicts { conflicts });
        }
        Ask::Resolve { id } => {
            let replica = client.replica().ok_or(FsError::NotFound)?;
            replica.resolve_conflict(*id)?;
        }
        Ask::Pin { object } => return Ok(pinned(&keeping(client)?.pin(ObjectNo::new(*object))?)),
        Ask::Free { object } => return Ok(freed(&keeping(client)?.free(ObjectNo::new(*object))?)),
        Ask::Token | Ask::Revoke { .. } | Ask::Readmit { .. } => {
            return volume.with_server(|serving| {
                let serving = serving.context("this volume is not served here")?;
                match ask {
                    Ask::Revoke { replica } => serving.server.revoke(serving.volume(), *replica)?,
                    Ask::Readmit { replica } => {
                        serving.server.readmit(serving.volume(), *replica)?
                    }
                    _ => return serving.invitation(),
                }
                Ok(Answer::Done)
            });
        }
        _ => return volume.drives.answer(ask),
    }
    Ok(Answer::Done)
}

/// Sends everything that is only here to the server, and says what stayed behind.
fn flush(volume: &ServedVolume) -> Result<()> {
    let dir = shown(&volume.args.dir);
    let Some(replica) = volume.client.replica() else {
        let dir = quoted(&dir);
        bail!(
            "the volume on {dir} has no server to send anything to; give it one: teal serve {dir}"
        );
    };
    if !volume.asks_server() {
        let why = volume.why_alone();
        bail!("nothing was sent to the server of {dir}: {why}");
    }
    replica
        .flush_upstream()
        .map_err(|e| match e.into_words_of_server() {
            Ok(why) => anyhow!("not everything is at the server: {why}"),
            Err(e) => e.into(),
        })
}

/// Returns what keeps content on this machine and gives it back; a volume without a server keeps
/// all of it.
fn keeping(client: &FileSystem) -> Result<&Arc<Replica>, PinRefused> {
    client.replica().ok_or(PinRefused::Alone)
}

fn pinned(pinned: &Pinned) -> Answer {
    Answer::Pinned {
        files: pinned.files,
        bytes: pinned.bytes,
        missing: pinned.missing,
    }
}

fn freed(freed: &Freed) -> Answer {
    Answer::Freed {
        files: freed.files,
        bytes: freed.bytes,
        stay: freed.only_here,
        stay_bytes: freed.only_here_bytes,
    }
}
