//! The cursor of a drive: the changes that the drive lacks are written to it in bursts.
//!
//! # Guarantees
//! 1. A burst first takes in all commits since the drive's position, then copies what has come here
//!    since the last one, then is durable. The position moves when all commits up to it are taken
//!    in, and nothing newer is copied.
//! 2. Content is copied as the server has it, and only while nothing of it is dirty here and the
//!    position is the one it was compared at.
//! 3. Content that cannot be copied now is not forgotten while it waits for a source. The queue is
//!    bounded.

use super::super::{ObjectNote, Replica, SyncError, unexpected};
use super::affinity::REFETCH;
use super::attached::AttachedDrive;
use super::attached_drives::AttachedDrives;
use super::damage::skip_damaged;
use super::queue::DriveQueue;
use crate::seeded::{Bug, bug};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use teal_device::{DataPiece, DriveLabel};
use teal_log::{DiskRequest, StoreError};
use teal_proto::{ClientRequest, PulledObject, ServerReply, WANTS_MAX};
use teal_types::{ByteRanges, CommitSeq, FileType, ObjectNo, ObjectVersion};
use teal_volume::FsError;

/// A burst is due when this many bytes wait.
const BURST: u64 = 8 << 20;
/// Content is copied in such pieces.
const STEP: u64 = 1 << 20;
/// After a burst that failed.
const PAUSE: Duration = Duration::from_secs(5);

impl AttachedDrive {
    /// Returns what the drive does not have of content.
    fn missing_ranges(&self, version: &ObjectVersion) -> Result<ByteRanges, StoreError> {
        let held = self.drive.held_object(version.object)?.content;
        // A copy of another version is of no use: all of the content is lacking.
        let held = held
            .filter(|content| content.data_seq == version.data_seq)
            .map(|content| content.present);
        let mut whole = ByteRanges::default();
        whole.add(0, version.size);
        Ok(whole.difference(&held.unwrap_or_default()))
    }

    /// Has damaged content given up on the drive, and copied to it again.
    pub(super) fn queue_spoiled(
        &self,
        no: ObjectNo,
        data_seq: CommitSeq,
        spoiled: &ByteRanges,
        now: Duration,
    ) {
        let mut queue = self.queue.lock();
        if !bug(Bug::SpoiledKept) {
            // The queue keeps the damaged ranges: the thread that reads must not wait for the drive
            // to write.
            queue.spoiled.push((no, data_seq, spoiled.clone()));
        }
        queue.add(no, 0, now);
        drop(queue);
        self.changed.notify_all();
    }

    /// Returns how long it is until a burst is due; `None` if the queue is empty.
    fn due_in(&self, now: Duration, age: Duration) -> Option<Duration> {
        let queue = self.queue.lock();
        let since = queue.since?;
        // A full queue goes at once; otherwise the oldest news sets the time.
        Some(if queue.bytes >= BURST {
            Duration::ZERO
        } else {
            (since + age).saturating_sub(now)
        })
    }

    /// Waits for something to come; `false` when it is time to stop.
    fn wait_for_work(&self, at_most: Option<Duration>) -> bool {
        let mut queue = self.queue.lock();
        // Looked at under the lock, so that no signal is missed in between.
        if !self.is_gone.load(Ordering::Acquire) {
            match at_most {
                Some(time) => drop(self.changed.wait_for(&mut queue, time)),
                None => self.changed.wait(&mut queue),
            }
        }
        !self.is_gone.load(Ordering::Acquire)
    }
}

impl AttachedDrives {
    /// Queues content that the server has for all attached drives but the one it came from.
    pub(crate) fn queue_content(&self, no: ObjectNo, bytes: u64, now: Duration, from: Option<u32>) {
        for drive in self
            .attached
            .read()
            .iter()
            // The drive that the content was read from has it already.
            .filter(|drive| Some(drive.device) != from)
        {
            self.queue_content_for(drive, no, bytes, now);
        }
    }

    pub(super) fn queue_content_for(
        &self,
        drive: &AttachedDrive,
        no: ObjectNo,
        bytes: u64,
        now: Duration,
    ) {
        drive.queue.lock().add(no, bytes, now);
        drive.changed.notify_all();
    }
}

/// Flushes a drive when that is due, until it is gone.
pub(super) fn run(replica: &Weak<Replica>, attached: &Arc<AttachedDrive>) {
    // Marked objects may have lost their copies while the drive was away.
    if let Some(replica) = replica.upgrade()
        && let Err(e) = replica.want_incomplete(attached)
    {
        log::warn!("{}: what it lacks is not known: {e}", attached.name);
    }
    let mut wait = attached
        .is_unannounced
        .load(Ordering::Acquire)
        .then_some(PAUSE);
    while attached.wait_for_work(wait) {
        let Some(replica) = replica.upgrade() else {
            return;
        };
        let age = replica.options().flush_age;
        wait = attached.due_in(replica.monotonic(), age);
        // The server hears of an attachment as soon as it can.
        if attached.is_unannounced.load(Ordering::Acquire) {
            // The server is to hear of it, once it can.
            wait = Some(if replica.state().is_connected() {
                Duration::ZERO
            } else {
                PAUSE
            });
        }
        // A drive with affinity fetches content that this machine does not read itself.
        if attached.has_affinity.load(Ordering::Acquire) {
            let last = *attached.last_burst.lock();
            let refetch = (last + REFETCH).saturating_sub(replica.monotonic());
            let is_behind = attached.drive.label().position < replica.position();
            // Nothing has happened at the server since the last burst.
            let refetch = if is_behind || !refetch.is_zero() {
                refetch
            } else {
                REFETCH
            };
            wait = Some(wait.map_or(refetch, |wait| wait.min(refetch)));
        }
        // Woken by news that may still wait for more.
        if wait.is_none_or(|wait| !wait.is_zero()) {
            continue;
        }
        wait = match replica.run_burst(attached) {
            Ok(()) => attached.due_in(replica.monotonic(), age),
            Err(e) => {
                log::debug!("a burst to {}: {e}", attached.name);
                Some(PAUSE)
            }
        };
    }
}

impl Replica {
    /// Writes what waits for the drives that are attached, and brings them up to date. For programs
    /// that run no threads.
    ///
    /// # Errors
    /// [`FsError::Unreachable`], or errors of the store.
    pub fn flush_drives(&self) -> Result<(), teal_volume::FsError> {
        for attached in self.drive_set().attached_drives() {
            self.run_burst(&attached)?;
        }
        Ok(())
    }

    /// Carries out one burst: takes in commits, copies content, makes it durable.
    pub(super) fn run_burst(&self, attached: &Arc<AttachedDrive>) -> Result<(), SyncError> {
        // One burst at a time for each drive.
        let _flushing = attached.flushing.lock();
        // A disk that was pulled out answers nothing: better known before the queue is taken.
        if let Err(e) = attached.drive.check_present() {
            self.drop_lost_drive(attached, &e.to_string());
            return Err(StoreError::Io {
                doing: DiskRequest::Find,
                at: 0,
                source: Arc::new(e),
            }
            .into());
        }
        // News that arrives from here on belongs to the next burst.
        let taken = std::mem::take(&mut *attached.queue.lock());
        attached
            .burst_left
            .store(taken.objects.len() as u64, Ordering::Relaxed);
        let done = self.run_burst_of(attached, &taken);
        attached.burst_left.store(0, Ordering::Relaxed);
        // The news of a failed burst goes back into the queue.
        if let Err(e) = &done {
            if let SyncError::Fs(teal_volume::FsError::Io(e)) = e {
                self.drop_if_failed(attached, e);
            }
            let mut queue = attached.queue.lock();
            let now = self.monotonic();
            for no in taken.objects.iter() {
                queue.add(*no, 0, now);
            }
            queue.spoiled.extend(taken.spoiled);
        }
        done
    }

    fn run_burst_of(
        &self,
        attached: &Arc<AttachedDrive>,
        taken: &DriveQueue,
    ) -> Result<(), SyncError> {
        self.announce_late(attached)?;
        // A drive that was attached elsewhere must not be written. The server is asked first.
        self.check_still_attached(attached)?;
        let drive = &attached.drive;
        *attached.last_burst.lock() = self.monotonic();
        attached.note_use(self.monotonic());
        // Damaged ranges are dropped before they are copied again.
        for (no, data_seq, spoiled) in &taken.spoiled {
            skip_damaged(drive.drop_damaged(*no, *data_seq, spoiled))?;
        }
        let mut objects = taken.objects.clone();
        {
            // Affinity of renamed files passes to their successors first, so that this burst copies
            // them.
            let _marking = attached.marking.lock();
            objects.extend(self.apply_successions(attached)?);
        }
        objects.extend(attached.unplaced_to_retry(false));
        // The drive learns all changes up to the server's present position. Copies of older
        // versions are dropped on the way.
        objects.extend(self.apply_history(attached)?);
        let objects: Vec<ObjectNo> = objects.into_iter().collect();
        attached
            .burst_left
            .store(objects.len() as u64, Ordering::Relaxed);
        for objects in objects.chunks(WANTS_MAX) {
            let (seen, versions) = {
                // Position and versions belong together: nothing may be installed in between.
                let _applying = self.lock_applying()?;
                (self.position(), self.versions_at_server(objects)?)
            };
            let now = self.monotonic();
            let position = drive.label().position;
            for (no, version) in objects.iter().zip(versions) {
                attached.burst_left.fetch_sub(1, Ordering::Relaxed);
                // The drive was detached during the burst.
                if attached.is_gone.load(Ordering::Acquire) {
                    // The drive is let go in the state it has.
                    return Ok(());
                }
                let Some(version) = version else {
                    attached.set_unplaced(*no, 0);
                    continue;
                };
                let is_affine = self.inherits_affinity(attached, &version)?;
                if version.data_seq > position {
                    // Content newer than the drive's position waits for the next burst. Any other
                    // content is the newest as of that position.
                    self.drive_set()
                        .queue_content_for(attached, version.object, 0, now);
                } else if version.kind == FileType::File {
                    self.copy_to(attached, &version, (seen, is_affine))?;
                }
            }
        }
        // Durable before the drive counts as up to date.
        drive.sync()?;
        attached.report_unplaced();
        attached.counters.bursts.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Takes in what was committed since the drive's position; what of it is to be on the drive.
    pub(super) fn apply_history(
        &self,
        attached: &AttachedDrive,
    ) -> Result<Vec<ObjectNo>, SyncError> {
        self.announce_late(attached)?;
        let DriveLabel {
            position: since,
            digest,
            ..
        } = attached.drive.label();
        let mut after = None;
        let mut wanted = Vec::new();
        loop {
            // Page by page, from the drive's own position.
            let incarnation = self.identity().incarnation;
            let request = ClientRequest::Pull {
                incarnation,
                since,
                digest,
                filter: 0,
                // The first page goes from the position; each next one from behind the last.
                after,
                wait_ms: 0,
            };
            let ServerReply::Pulled(pulled) = self.ask_server(&request)? else {
                return Err(unexpected("to a pull").into());
            };
            attached.is_checked.store(true, Ordering::Release);
            // The drive knows everything already.
            if pulled.to <= since {
                return Ok(wanted);
            }
            if bug(Bug::DrivePositionTooEarly) {
                self.relabel(attached, |label| {
                    (label.position, label.digest) = (pulled.to, pulled.digest)
                })?;
                attached.drive.sync()?;
            }
            for change in pulled.changes {
                match change {
                    // Content that a change touches is dropped from the drive; the rest stays
                    // valid.
                    PulledObject::Is { version, ranges } => {
                        if version.kind == FileType::File && !bug(Bug::DriveMissesNews) {
                            let state = (version.data_seq, version.size);
                            skip_damaged(attached.drive.apply_change(
                                version.object,
                                state,
                                ranges.as_deref(),
                            ))?;
                        }
                        if self.inherits_affinity(attached, &version)? {
                            wanted.push(version.object);
                        }
                    }
                    PulledObject::Gone { object } => {
                        skip_damaged(attached.drive.remove_object(object))?
                    }
                }
            }
            match pulled.more {
                Some(behind) => {
                    after = Some((behind, pulled.to));
                    // A sync now and then bounds the memory that the changes take, however many
                    // were missed.
                    attached.drive.sync()?;
                }
                None => {
                    // The new position is written last: a crash before repeats the changes, which
                    // is harmless.
                    let server = self.identity().server;
                    self.relabel(attached, |label| {
                        label.position = pulled.to;
                        label.digest = pulled.digest;
                        label.server_incarnation = server;
                    })?;
                    return Ok(wanted);
                }
            }
        }
    }

    /// Changes what a drive says of itself, with the proof that this client knows the volume.
    pub(super) fn relabel(
        &self,
        attached: &AttachedDrive,
        change: impl FnOnce(&mut DriveLabel),
    ) -> Result<(), SyncError> {
        super::label::sign_label(self, &attached.drive, change)
    }

    /// Copies what is here of an object, as the server has it, where the drive does not have it;
    /// and what is not here, if it is always to be there.
    fn copy_to(
        &self,
        attached: &AttachedDrive,
        version: &ObjectVersion,
        (seen, is_affine): (CommitSeq, bool),
    ) -> Result<(), SyncError> {
        let copied = self.copy_parts(attached, version, (seen, is_affine));
        let lacks = match copied {
            // A full drive is no failure: the files that did not fit are reported and tried again.
            Err(SyncError::Fs(FsError::NoSpace)) => {
                attached.counters.full.fetch_add(1, Ordering::Relaxed);
                // A part of it may be there.
                self.drive_set()
                    .enodes
                    .remove(&(attached.device, version.object));
                attached.add_known_object(version.object);
                if is_affine {
                    attached.missing_ranges(version)?.byte_count()
                } else {
                    0
                }
            }
            copied => copied.map(|()| 0)?,
        };
        attached.set_unplaced(version.object, lacks);
        Ok(())
    }

    fn copy_parts(
        &self,
        attached: &AttachedDrive,
        version: &ObjectVersion,
        (mut seen, is_affine): (CommitSeq, bool),
    ) -> Result<(), SyncError> {
        let no = version.object;
        let drive = &attached.drive;
        'ranges: for (from, to) in attached.missing_ranges(version)?.iter() {
            let mut at = from;
            while at < to {
                // Steps end at multiples of their size, so that a drive gets the same runs each
                // time.
                let stop = (at / STEP + 1).saturating_mul(STEP).min(to);
                debug_assert!(at < stop, "an empty step does not end");
                // The content changed meanwhile: the next burst has the new version.
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
                        // The drive has newer content by now.
                        Ok(false) => return Ok(()),
                        // A damaged spot on the drive affects this file only.
                        Err(StoreError::Corrupt { .. }) => return Ok(()),
                        Err(e) => return Err(e.into()),
                    }
                }
                at = stop;
            }
        }
        // Content that is not in this store is fetched from the server for the drive.
        if is_affine {
            self.copy_rest(attached, version)?;
        }
        // A note says that the drive lacks the object: it is out of date now.
        self.drive_set().enodes.remove(&(attached.device, no));
        attached.add_known_object(no);
        Ok(())
    }

    /// Has what is not here fetched to the drive.
    fn copy_rest(
        &self,
        attached: &AttachedDrive,
        version: &ObjectVersion,
    ) -> Result<(), SyncError> {
        for (from, to) in attached.missing_ranges(version)?.iter() {
            let mut at = from;
            while at < to {
                match self.refetch_to_drive(attached, version, (at, to))? {
                    Some(end) => at = end,
                    None => return Ok(()),
                }
            }
        }
        Ok(())
    }

    /// Returns the content here that is still as the server has it since `version`, as ranges with
    /// their data; `None` if that has changed. `seen` is the position at which it was last
    /// compared.
    #[allow(
        clippy::type_complexity,
        reason = "ranges, and what of them is not zeros"
    )]
    fn as_committed(
        &self,
        version: &ObjectVersion,
        seen: &mut CommitSeq,
        (from, to): (u64, u64),
    ) -> Result<Option<Vec<((u64, u64), Vec<DataPiece>)>>, SyncError> {
        let no = version.object;
        // The position stays, and with it what the note means.
        let _applying = self.lock_applying()?;
        // The position has moved: the object may be another version.
        if self.position() != *seen {
            let now = self.versions_at_server(&[no])?.pop().flatten();
            if now.is_none_or(|now| now.data_seq != version.data_seq) {
                return Ok(None);
            }
            *seen = self.position();
        }
        // No reader may evict or replace the content while it is copied.
        let _here = self.residency_lock(no).read();
        let note = self.note_of(no)?;
        let attr = match self.store().attr(no) {
            Err(StoreError::NotFound(_)) => return Ok(None),
            attr => attr?,
        };
        // Size and time agree with the server's version, and no change of this store waits to be
        // sent.
        let is_as_there = (attr.size, attr.mtime) == (version.size, version.attributes.mtime)
            || bug(Bug::DriveGetsPending);
        if !is_servers(&note, version.data_seq) || !is_as_there || version.data_seq > *seen {
            return Ok(None);
        }
        let mut here = ByteRanges::default();
        here.add(from, to);
        let mut parts = Vec::new();
        // Absent ranges are zeros in the store, and must not be copied.
        for (from, to) in here.difference(&note.absent).iter() {
            let mut at = from;
            let mut pieces = Vec::new();
            // Holes are not written: the drive knows a range without data as zeros.
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
fn is_servers(note: &ObjectNote, data_seq: CommitSeq) -> bool {
    (!note.is_ours() || bug(Bug::DriveGetsPending))
        && !note.needs_look
        && (note.absent.is_empty() || note.data_seq == data_seq)
}
