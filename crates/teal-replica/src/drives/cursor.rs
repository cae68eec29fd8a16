//! What a drive is behind by, and how it catches up: in bursts.
//!
//! # Guarantees
//! 1. A burst first takes in all commits since the drive's position, then copies what has come here
//!    since the last one, then is durable. The position moves when all commits up to it are taken
//!    in, and nothing newer is copied.
//! 2. Content is copied as the server has it, and only while nothing of it is dirty here and the
//!    position is the one it was compared at.
//! 3. What cannot be copied now is not forgotten, while it waits for a source; what waits is
//!    bounded.

use super::super::{Note, Replica, SyncError, unexpected};
use super::affinity::REFETCH;
use super::attached::Attached;
use super::queue::Queue;
use super::set::Drives;
use super::skip::skip;
use crate::seeded::{Bug, bug};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use teal_device::{DriveLabel, Piece};
use teal_log::{DiskRequest, StoreError};
use teal_proto::{Change, Reply, Request, WANTS_MAX};
use teal_types::{CommitSeq, FileType, ObjectNo, Ranges, Version};
use teal_volume::FsError;

/// So many bytes that wait make a burst.
const BURST: u64 = 8 << 20;
/// Content is copied in such pieces.
const STEP: u64 = 1 << 20;
/// After a burst that failed.
const PAUSE: Duration = Duration::from_secs(5);

impl Attached {
    /// Returns what the drive does not have of content.
    fn lacks(&self, version: &Version) -> Result<Ranges, StoreError> {
        let held = self.drive.held(version.object)?.content;
        let held = held
            .filter(|content| content.data_seq == version.data_seq)
            .map(|content| content.present);
        let mut whole = Ranges::default();
        whole.add(0, version.size);
        Ok(whole.without(&held.unwrap_or_default()))
    }

    /// Damaged content is to be given up, and copied again.
    pub(super) fn spoils(
        &self,
        no: ObjectNo,
        data_seq: CommitSeq,
        spoiled: &Ranges,
        now: Duration,
    ) {
        let mut queue = self.queue.lock();
        if !bug(Bug::SpoiledKept) {
            queue.spoiled.push((no, data_seq, spoiled.clone()));
        }
        queue.add(no, 0, now);
        drop(queue);
        self.changed.notify_all();
    }

    /// How long until a burst is due; `None`: until something comes.
    fn due_in(&self, now: Duration, age: Duration) -> Option<Duration> {
        let queue = self.queue.lock();
        let since = queue.since?;
        Some(if queue.bytes >= BURST {
            Duration::ZERO
        } else {
            (since + age).saturating_sub(now)
        })
    }

    /// Waits for something to come; `false` when it is time to stop.
    fn wait(&self, at_most: Option<Duration>) -> bool {
        let mut queue = self.queue.lock();
        if !self.is_gone.load(Ordering::Acquire) {
            match at_most {
                Some(time) => drop(self.changed.wait_for(&mut queue, time)),
                None => self.changed.wait(&mut queue),
            }
        }
        !self.is_gone.load(Ordering::Acquire)
    }
}

impl Drives {
    /// Content has come here that the server has: drives get a copy, all but the one it came from.
    pub(crate) fn has_news(&self, no: ObjectNo, bytes: u64, now: Duration, from: Option<u32>) {
        for drive in self
            .attached
            .read()
            .iter()
            .filter(|drive| Some(drive.device) != from)
        {
            self.has_news_for(drive, no, bytes, now);
        }
    }

    pub(super) fn has_news_for(&self, drive: &Attached, no: ObjectNo, bytes: u64, now: Duration) {
        drive.queue.lock().add(no, bytes, now);
        drive.changed.notify_all();
    }
}

/// Flushes a drive when that is due, until it is gone.
pub(super) fn run(replica: &Weak<Replica>, attached: &Arc<Attached>) {
    if let Some(replica) = replica.upgrade()
        && let Err(e) = replica.want_incomplete(attached)
    {
        log::warn!("{}: what it lacks is not known: {e}", attached.name);
    }
    let mut wait = attached.is_untold.load(Ordering::Acquire).then_some(PAUSE);
    while attached.wait(wait) {
        let Some(replica) = replica.upgrade() else {
            return;
        };
        let age = replica.options.flush_age;
        wait = attached.due_in(replica.monotonic(), age);
        if attached.is_untold.load(Ordering::Acquire) {
            // The server is to hear of it, once it can.
            wait = Some(if replica.state.lock().is_connected {
                Duration::ZERO
            } else {
                PAUSE
            });
        }
        if attached.has_affinity.load(Ordering::Acquire) {
            let last = *attached.last_burst.lock();
            let refetch = (last + REFETCH).saturating_sub(replica.monotonic());
            let is_behind = attached.drive.label().seen < replica.seen();
            let refetch = if is_behind || !refetch.is_zero() {
                refetch
            } else {
                REFETCH
            };
            wait = Some(wait.map_or(refetch, |wait| wait.min(refetch)));
        }
        if wait.is_none_or(|wait| !wait.is_zero()) {
            continue;
        }
        wait = match replica.burst(attached) {
            Ok(()) => attached.due_in(replica.monotonic(), age),
            Err(e) => {
                log::debug!("a burst to {}: {e}", attached.name);
                Some(PAUSE)
            }
        };
    }
}

impl Replica {
    /// Writes what waits for the drives that are attached, and brings them up to date; for whoever
    /// runs no threads.
    ///
    /// # Errors
    /// What [lies with the server](FsError::into_words_of_server), or what the store met.
    pub fn flush_drives(&self) -> Result<(), teal_volume::FsError> {
        for attached in self.drives.all() {
            self.burst(&attached)?;
        }
        Ok(())
    }

    /// One burst: commits, copies, durable.
    pub(super) fn burst(&self, attached: &Arc<Attached>) -> Result<(), SyncError> {
        let _flushing = attached.flushing.lock();
        if let Err(e) = attached.drive.is_there() {
            self.lose(attached, &e.to_string());
            return Err(StoreError::Io {
                doing: DiskRequest::Find,
                at: 0,
                source: Arc::new(e),
            }
            .into());
        }
        let taken = std::mem::take(&mut *attached.queue.lock());
        attached
            .ahead
            .store(taken.objects.len() as u64, Ordering::Relaxed);
        let done = self.burst_of(attached, &taken);
        attached.ahead.store(0, Ordering::Relaxed);
        if let Err(e) = &done {
            if let SyncError::Fs(teal_volume::FsError::Io(e)) = e {
                self.lose_if(attached, e);
            }
            let (mut queue, now) = (attached.queue.lock(), self.monotonic());
            taken.objects.iter().for_each(|no| queue.add(*no, 0, now));
            queue.spoiled.extend(taken.spoiled);
        }
        done
    }

    fn burst_of(&self, attached: &Arc<Attached>, taken: &Queue) -> Result<(), SyncError> {
        self.tell_attached(attached)?;
        self.is_still_here(attached)?;
        let drive = &attached.drive;
        *attached.last_burst.lock() = self.monotonic();
        attached.uses(self.monotonic());
        for (no, data_seq, spoiled) in &taken.spoiled {
            skip(drive.spoil(*no, *data_seq, spoiled))?;
        }
        let mut objects = taken.objects.clone();
        {
            let _marking = attached.marking.lock();
            objects.extend(self.adopt(attached)?);
        }
        objects.extend(attached.short_again(false));
        objects.extend(self.advance(attached)?);
        let objects: Vec<ObjectNo> = objects.into_iter().collect();
        attached
            .ahead
            .store(objects.len() as u64, Ordering::Relaxed);
        for objects in objects.chunks(WANTS_MAX) {
            let (seen, versions) = {
                let _applying = self.apply()?;
                (self.seen(), self.look_at(objects)?)
            };
            let (now, position) = (self.monotonic(), drive.label().seen);
            for (no, version) in objects.iter().zip(versions) {
                attached.ahead.fetch_sub(1, Ordering::Relaxed);
                if attached.is_gone.load(Ordering::Acquire) {
                    // It is let go as it is.
                    return Ok(());
                }
                let Some(version) = version else {
                    attached.falls_short(*no, 0);
                    continue;
                };
                let is_affine = self.inherits(attached, &version)?;
                if version.data_seq > position {
                    // It has come since. What is not newer than the position is the newest as of
                    // it.
                    self.drives.has_news_for(attached, version.object, 0, now);
                } else if version.kind == FileType::File {
                    self.copy_to(attached, &version, (seen, is_affine))?;
                }
            }
        }
        drive.sync()?;
        attached.says_short();
        attached.counters.bursts.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Takes in what was committed since the drive's position; what of it is to be on the drive.
    pub(super) fn advance(&self, attached: &Attached) -> Result<Vec<ObjectNo>, SyncError> {
        self.tell_attached(attached)?;
        let DriveLabel {
            seen: since,
            digest,
            ..
        } = attached.drive.label();
        let (mut after, mut wanted) = (None, Vec::new());
        loop {
            let incarnation = self.identity.lock().incarnation;
            let request = Request::Pull {
                incarnation,
                since,
                digest,
                filter: 0,
                after,
                wait_ms: 0,
            };
            let Reply::Pulled(pulled) = self.ask(&request)? else {
                return Err(unexpected("to a pull").into());
            };
            attached.is_checked.store(true, Ordering::Release);
            if pulled.to <= since {
                return Ok(wanted);
            }
            if bug(Bug::DrivePositionTooEarly) {
                self.relabel(attached, |label| {
                    (label.seen, label.digest) = (pulled.to, pulled.digest)
                })?;
                attached.drive.sync()?;
            }
            for change in pulled.changes {
                match change {
                    Change::Is { version, ranges } => {
                        if version.kind == FileType::File && !bug(Bug::DriveMissesNews) {
                            let state = (version.data_seq, version.size);
                            skip(
                                attached
                                    .drive
                                    .changed(version.object, state, ranges.as_deref()),
                            )?;
                        }
                        if self.inherits(attached, &version)? {
                            wanted.push(version.object);
                        }
                    }
                    Change::Gone { object } => skip(attached.drive.gone(object))?,
                }
            }
            match pulled.more {
                Some(behind) => {
                    after = Some((behind, pulled.to));
                    // What was taken in does not gather in memory, however much was missed.
                    attached.drive.sync()?;
                }
                None => {
                    let server = self.identity.lock().server;
                    self.relabel(attached, |label| {
                        (label.seen, label.digest, label.server) =
                            (pulled.to, pulled.digest, server);
                    })?;
                    return Ok(wanted);
                }
            }
        }
    }

    /// Changes what a drive says of itself, with the proof that this client knows the volume.
    pub(super) fn relabel(
        &self,
        attached: &Attached,
        change: impl FnOnce(&mut DriveLabel),
    ) -> Result<(), SyncError> {
        super::label::sign(self, &attached.drive, change)
    }

    /// Copies what is here of an object, as the server has it, where the drive does not have it;
    /// and what is not here, if it is always to be there.
    fn copy_to(
        &self,
        attached: &Attached,
        version: &Version,
        (seen, is_affine): (CommitSeq, bool),
    ) -> Result<(), SyncError> {
        let copied = self.copy_parts(attached, version, (seen, is_affine));
        let lacks = match copied {
            Err(SyncError::Fs(FsError::NoSpace)) => {
                attached.counters.full.fetch_add(1, Ordering::Relaxed);
                // A part of it may be there.
                self.drives
                    .enodes
                    .remove(&(attached.device, version.object));
                attached.has_now(version.object);
                if is_affine {
                    attached.lacks(version)?.len()
                } else {
                    0
                }
            }
            copied => copied.map(|()| 0)?,
        };
        attached.falls_short(version.object, lacks);
        Ok(())
    }

    fn copy_parts(
        &self,
        attached: &Attached,
        version: &Version,
        (mut seen, is_affine): (CommitSeq, bool),
    ) -> Result<(), SyncError> {
        let (no, drive) = (version.object, &attached.drive);
        'ranges: for (from, to) in attached.lacks(version)?.iter() {
            let mut at = from;
            while at < to {
                let stop = (at / STEP + 1).saturating_mul(STEP).min(to);
                let Some(parts) = self.as_committed(version, &mut seen, (at, stop))? else {
                    break 'ranges;
                };
                for (range, pieces) in parts {
                    let bytes: u64 = pieces.iter().map(|(_, bytes)| bytes.len() as u64).sum();
                    match drive.install(no, (version.data_seq, version.size), range, &pieces) {
                        Ok(true) => drop(
                            attached
                                .counters
                                .written_bytes
                                .fetch_add(bytes, Ordering::Relaxed),
                        ),
                        Ok(false) => return Ok(()),
                        Err(StoreError::Corrupt { .. }) => return Ok(()),
                        Err(e) => return Err(e.into()),
                    }
                }
                at = stop;
            }
        }
        if is_affine {
            self.copy_rest(attached, version)?;
        }
        self.drives.enodes.remove(&(attached.device, no));
        attached.has_now(no);
        Ok(())
    }

    /// Has what is not here fetched to the drive.
    fn copy_rest(&self, attached: &Attached, version: &Version) -> Result<(), SyncError> {
        for (from, to) in attached.lacks(version)?.iter() {
            let mut at = from;
            while at < to {
                match self.refetch(attached, version, (at, to))? {
                    Some(end) => at = end,
                    None => return Ok(()),
                }
            }
        }
        Ok(())
    }

    /// What is here of content that is as the server has it since `version`; `None`: it is not any
    /// more. `seen`: the position at which that was looked at last.
    #[allow(
        clippy::type_complexity,
        reason = "ranges, and what of them is not zeros"
    )]
    fn as_committed(
        &self,
        version: &Version,
        seen: &mut CommitSeq,
        (from, to): (u64, u64),
    ) -> Result<Option<Vec<((u64, u64), Vec<Piece>)>>, SyncError> {
        let no = version.object;
        // The position stays, and with it what the note means.
        let _applying = self.apply()?;
        if self.seen() != *seen {
            let now = self.look_at(&[no])?.pop().flatten();
            if now.is_none_or(|now| now.data_seq != version.data_seq) {
                return Ok(None);
            }
            *seen = self.seen();
        }
        let _here = self.content_lock(no).read();
        let note = self.note(no)?;
        let attr = match self.store().attr(no) {
            Err(StoreError::NotFound(_)) => return Ok(None),
            attr => attr?,
        };
        let is_as_there = (attr.size, attr.mtime) == (version.size, version.attributes.mtime)
            || bug(Bug::DriveGetsPending);
        if !is_servers(&note, version.data_seq) || !is_as_there || version.data_seq > *seen {
            return Ok(None);
        }
        let mut here = Ranges::default();
        here.add(from, to);
        let mut parts = Vec::new();
        for (from, to) in here.without(&note.absent).iter() {
            let (mut at, mut pieces) = (from, Vec::new());
            while let Some(data) = self.store().seek(no, at, false)?.filter(|data| *data < to) {
                at = self
                    .store()
                    .seek(no, data, true)?
                    .map_or(to, |hole| hole.min(to));
                pieces.push((data, self.store().read(no, data, (at - data) as usize)?));
            }
            parts.push(((from, to), pieces));
        }
        Ok(Some(parts))
    }
}

/// Returns whether what is here of content is of this commit, as far as the note tells.
fn is_servers(note: &Note, data_seq: CommitSeq) -> bool {
    (!note.is_ours() || bug(Bug::DriveGetsPending))
        && !note.needs_look
        && (note.absent.is_empty() || note.data_seq == data_seq)
}
