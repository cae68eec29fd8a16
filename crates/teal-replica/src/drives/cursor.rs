//! The cursor of a drive, and the bursts in which the drive catches up.
//!
//! # Guarantees
//! 1. A burst first takes in all commits since the drive's position, then copies what has come here
//!    since the last one, then is durable. The position moves when all commits up to it are taken
//!    in, and nothing newer is copied.
//! 2. Content is copied as the server has it, and only while nothing of it is dirty here and the
//!    position is the one it was compared at.
//! 3. What cannot be copied now is not forgotten, while it waits for a source; what waits is
//!    bounded.

use super::super::{ObjectNote, Replica, SyncError, unexpected};
use super::affinity::REFETCH;
use super::attached::AttachedDrive;
use super::damage::skip_damaged;
use super::queue::Waiting;
use crate::seeded::{Bug, bug};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use teal_device::{DataPiece, DriveLabel};
use teal_log::{DiskRequest, StoreError};
use teal_proto::{ClientRequest, PulledChanges, PulledObject, ServerReply, WANTS_MAX};
use teal_types::{ByteRanges, CommitSeq, FileType, ObjectNo, ObjectVersion};
use teal_volume::FsError;

/// Content is copied in such pieces.
const STEP: u64 = 1 << 20;
/// After a burst that failed.
const PAUSE: Duration = Duration::from_secs(5);

/// A range of content that is here, and what of it is not zeros.
struct PresentPart {
    range: (u64, u64),
    pieces: Vec<DataPiece>,
}

impl AttachedDrive {
    /// Returns what the drive does not have of content.
    fn missing_ranges(&self, version: &ObjectVersion) -> Result<ByteRanges, StoreError> {
        let held = self.drive.held_object(version.object)?.content;
        let held = held
            .filter(|content| content.data_seq == version.data_seq)
            .map(|content| content.present);
        let mut whole = ByteRanges::default();
        whole.add(0, version.size);
        Ok(whole.difference(&held.unwrap_or_default()))
    }
}

/// Flushes a drive when that is due, until it is gone.
pub(super) fn run(replica: &Weak<Replica>, attached: &Arc<AttachedDrive>) {
    if let Some(replica) = replica.upgrade()
        && let Err(e) = replica.want_incomplete(attached)
    {
        log::warn!("{}: what it lacks is not known: {e}", attached.name);
    }
    let mut wait = attached.is_untold().then_some(PAUSE);
    while attached.queue.wait(wait) {
        let Some(replica) = replica.upgrade() else {
            return;
        };
        wait = replica.next_burst_in(attached);
        if wait.is_none_or(|wait| !wait.is_zero()) {
            continue;
        }
        let age = replica.options().flush_age;
        wait = match replica.run_burst(attached) {
            Ok(()) => attached.queue.due_in(replica.monotonic(), age),
            Err(e) => {
                log::debug!("a burst to {}: {e}", attached.name);
                Some(PAUSE)
            }
        };
    }
}

impl Replica {
    /// Writes what waits for the drives that are attached, and brings them up to date. It is for
    /// programs without background threads.
    ///
    /// # Errors
    /// What [lies with the server](FsError::into_words_of_server), or what the store met.
    pub fn flush_drives(&self) -> Result<(), teal_volume::FsError> {
        for attached in self.drive_set().attached_drives() {
            self.run_burst(&attached)?;
        }
        Ok(())
    }

    /// Returns the time until the next burst to a drive is due; `None` if nothing waits for it.
    fn next_burst_in(&self, attached: &AttachedDrive) -> Option<Duration> {
        let due_in = if attached.is_untold() {
            // The server is to hear of it, once it can.
            Some(if self.state().is_connected() {
                Duration::ZERO
            } else {
                PAUSE
            })
        } else {
            let age = self.options().flush_age;
            attached.queue.due_in(self.monotonic(), age)
        };
        if !attached.has_affinity() {
            return due_in;
        }
        let refetch_at = attached.last_burst() + REFETCH;
        let mut refetch_in = refetch_at.saturating_sub(self.monotonic());
        let is_behind = attached.drive.label().position < self.position();
        // A drive that has all commits lacks nothing that the server could send.
        if !is_behind && refetch_in.is_zero() {
            refetch_in = REFETCH;
        }
        Some(due_in.map_or(refetch_in, |due_in| due_in.min(refetch_in)))
    }

    /// One burst: commits, copies, durable.
    pub(super) fn run_burst(&self, attached: &Arc<AttachedDrive>) -> Result<(), SyncError> {
        let _flushing = attached.hold_burst();
        if let Err(e) = attached.drive.check_present() {
            self.drop_lost_drive(attached, &e.to_string());
            return Err(StoreError::Io {
                doing: DiskRequest::Find,
                at: 0,
                source: Arc::new(e),
            }
            .into());
        }
        let taken = attached.queue.take();
        let done = self.run_burst_of(attached, &taken);
        if let Err(SyncError::Fs(FsError::Io(e))) = &done {
            self.drop_if_failed(attached, e);
        }
        attached
            .queue
            .end_burst(taken, done.is_ok(), self.monotonic());
        done
    }

    fn run_burst_of(
        &self,
        attached: &Arc<AttachedDrive>,
        taken: &Waiting,
    ) -> Result<(), SyncError> {
        self.announce_late(attached)?;
        self.check_still_attached(attached)?;
        attached.burst_begins(self.monotonic());
        let objects = self.objects_of_burst(attached, taken)?;
        attached.queue.set_ahead(objects.len());
        for objects in objects.chunks(WANTS_MAX) {
            if self.copy_objects(attached, objects)?.is_break() {
                // The drive is let go as it is.
                return Ok(());
            }
        }
        attached.drive.sync()?;
        attached.report_unplaced();
        attached.counters.bursts.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Brings a drive up to the newest commit, and returns the objects whose content is to be
    /// copied to it.
    fn objects_of_burst(
        &self,
        attached: &AttachedDrive,
        taken: &Waiting,
    ) -> Result<Vec<ObjectNo>, SyncError> {
        for (no, data_seq, spoiled) in &taken.spoiled {
            skip_damaged(attached.drive.drop_damaged(*no, *data_seq, spoiled))?;
        }
        let mut objects = taken.objects.clone();
        {
            let _marking = attached.hold_marks();
            objects.extend(self.apply_successions(attached)?);
        }
        objects.extend(attached.unplaced_to_retry(false));
        objects.extend(self.apply_history(attached)?);
        Ok(objects.into_iter().collect())
    }

    /// Copies the content of a few objects to a drive; breaks off when it is gone.
    fn copy_objects(
        &self,
        attached: &AttachedDrive,
        objects: &[ObjectNo],
    ) -> Result<ControlFlow<()>, SyncError> {
        let (seen, versions) = {
            let _applying = self.lock_applying()?;
            (self.position(), self.versions_at_server(objects)?)
        };
        let now = self.monotonic();
        let position = attached.drive.label().position;
        for (no, version) in objects.iter().zip(versions) {
            attached.queue.pass_one();
            if attached.queue.is_gone() {
                return Ok(ControlFlow::Break(()));
            }
            let Some(version) = version else {
                attached.set_unplaced(*no, 0);
                continue;
            };
            let is_affine = self.inherits_affinity(attached, &version)?;
            if version.data_seq > position {
                // The content has come since. The next burst copies it.
                attached.queue.add(version.object, 0, now);
            } else if version.kind == FileType::File {
                self.copy_to(attached, &version, (seen, is_affine))?;
            }
        }
        Ok(ControlFlow::Continue(()))
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
        let (mut after, mut wanted) = (None, Vec::new());
        loop {
            let pulled = self.pull_for_drive((since, digest), after)?;
            attached.set_checked(true);
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
                wanted.extend(self.apply_change(attached, change)?);
            }
            match pulled.more {
                Some(behind) => {
                    after = Some((behind, pulled.to));
                    // Each page is made durable, so that memory stays bounded however much was
                    // missed.
                    attached.drive.sync()?;
                }
                None => {
                    let server = self.identity().server;
                    self.relabel(attached, |label| {
                        (label.position, label.digest, label.server_incarnation) =
                            (pulled.to, pulled.digest, server);
                    })?;
                    return Ok(wanted);
                }
            }
        }
    }

    /// Asks for everything that was committed since a position in history; `after` is the end of
    /// the page before.
    fn pull_for_drive(
        &self,
        (since, digest): (CommitSeq, [u8; 32]),
        after: Option<(ObjectNo, CommitSeq)>,
    ) -> Result<PulledChanges, SyncError> {
        let request = ClientRequest::Pull {
            incarnation: self.identity().incarnation,
            since,
            digest,
            filter: 0,
            after,
            wait_ms: 0,
        };
        match self.ask_server(&request)? {
            ServerReply::Pulled(pulled) => Ok(pulled),
            _ => Err(unexpected("to a pull").into()),
        }
    }

    /// Takes in one change; returns its object if that is to be on the drive.
    fn apply_change(
        &self,
        attached: &AttachedDrive,
        change: PulledObject,
    ) -> Result<Option<ObjectNo>, SyncError> {
        let (version, ranges) = match change {
            PulledObject::Is { version, ranges } => (version, ranges),
            PulledObject::Gone { object } => {
                skip_damaged(attached.drive.remove_object(object))?;
                return Ok(None);
            }
        };
        let object = version.object;
        if version.kind == FileType::File && !bug(Bug::DriveMissesNews) {
            let state = (version.data_seq, version.size);
            let applied = attached
                .drive
                .apply_change(object, state, ranges.as_deref());
            skip_damaged(applied)?;
        }
        let is_wanted = self.inherits_affinity(attached, &version)?;
        Ok(is_wanted.then_some(object))
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
            Err(SyncError::Fs(FsError::NoSpace)) => {
                attached.counters.full.fetch_add(1, Ordering::Relaxed);
                // A part of it may be there.
                self.drive_set().set_may_have(attached, version.object);
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
        let (no, drive) = (version.object, &attached.drive);
        'ranges: for (from, to) in attached.missing_ranges(version)?.iter() {
            let mut at = from;
            while at < to {
                let stop = (at / STEP + 1).saturating_mul(STEP).min(to);
                let Some(parts) = self.as_committed(version, &mut seen, (at, stop))? else {
                    break 'ranges;
                };
                for PresentPart { range, pieces } in parts {
                    let bytes: u64 = pieces.iter().map(|(_, bytes)| bytes.len() as u64).sum();
                    let written = &attached.counters.written_bytes;
                    match drive.install(no, (version.data_seq, version.size), range, &pieces) {
                        Ok(true) => drop(written.fetch_add(bytes, Ordering::Relaxed)),
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
        self.drive_set().set_may_have(attached, no);
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

    /// Returns the ranges here of content that is still as the server has it since `version`;
    /// `None`: it has changed. `seen`: the position at which that was looked at last.
    fn as_committed(
        &self,
        version: &ObjectVersion,
        seen: &mut CommitSeq,
        (from, to): (u64, u64),
    ) -> Result<Option<Vec<PresentPart>>, SyncError> {
        let no = version.object;
        // The position stays, and with it what the note means.
        let _applying = self.lock_applying()?;
        if self.position() != *seen {
            if !self.is_newest_content(version)? {
                return Ok(None);
            }
            *seen = self.position();
        }
        let _here = self.residency_lock(no).read();
        let note = self.note_of(no)?;
        let attr = match self.store().attr(no) {
            Err(StoreError::NotFound(_)) => return Ok(None),
            attr => attr?,
        };
        let is_as_there = (attr.size, attr.mtime) == (version.size, version.attributes.mtime)
            || bug(Bug::DriveGetsPending);
        if !is_servers(&note, version.data_seq) || !is_as_there || version.data_seq > *seen {
            return Ok(None);
        }
        let mut here = ByteRanges::default();
        here.add(from, to);
        let mut parts = Vec::new();
        for range in here.difference(&note.absent).iter() {
            let pieces = self.read_data(no, range)?;
            parts.push(PresentPart { range, pieces });
        }
        Ok(Some(parts))
    }

    /// Returns whether the server still has the content of an object that a version names.
    fn is_newest_content(&self, version: &ObjectVersion) -> Result<bool, SyncError> {
        let now = self.versions_at_server(&[version.object])?.pop().flatten();
        Ok(now.is_some_and(|now| now.data_seq == version.data_seq))
    }

    /// Reads what is not a hole in a range of a file that is here.
    fn read_data(
        &self,
        no: ObjectNo,
        (from, to): (u64, u64),
    ) -> Result<Vec<DataPiece>, StoreError> {
        let mut pieces = Vec::new();
        let mut at = from;
        while let Some(data) = self.store().seek(no, at, false)?.filter(|data| *data < to) {
            let hole = self.store().seek(no, data, true)?;
            at = hole.map_or(to, |hole| hole.min(to));
            let bytes = self.store().read(no, data, (at - data) as usize)?;
            pieces.push((data, bytes));
        }
        Ok(pieces)
    }
}

/// Returns whether what is here of content is of this commit, as far as the note tells.
fn is_servers(note: &ObjectNote, data_seq: CommitSeq) -> bool {
    (!note.is_ours() || bug(Bug::DriveGetsPending))
        && !note.needs_look
        && (note.absent.is_empty() || note.data_seq == data_seq)
}
