//! Reading content that is not here from a drive.
//!
//! # Guarantees
//! 1. *The answer first*: a reader is answered with what the drive gave, before that is entered in
//!    the home log; what is entered, and noted as being here, is checked against the note again.
//! 2. *What is asked for*: a reader waits for that, and for what follows only where it reads on
//!    from what is here.

use super::super::Replica;
use super::attached::AttachedDrive;
use super::attached_drives::ContentSource;
use super::choice::to_span;
use crate::seeded::{Bug, bug};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use teal_device::FoundContent;
use teal_log::ScatteredBytes;
use teal_proto::WantedRange;
use teal_types::{Attr, CommitSeq, DriveNo, ObjectNo};
use teal_volume::FsError;

/// Content read at once, beginning with what is needed.
const AHEAD: u64 = 1 << 20;
/// While another source has the content, a drive has this time, ...
pub(super) const PATIENCE: Duration = Duration::from_millis(250);
/// ... or so many times what was predicted; ...
const TIMES: u32 = 8;
/// ... and otherwise this.
pub(super) const PATIENCE_MAX: Duration = Duration::from_secs(30);

/// Content of an object since a commit that a drive gave, and that is not entered here yet.
#[derive(Debug)]
pub(crate) struct UnstoredContent {
    no: ObjectNo,
    data_seq: CommitSeq,
    found: FoundContent,
    device: DriveNo,
}

impl UnstoredContent {
    /// All of it from `from` to `to`, if that was found.
    fn whole_range(&self, from: u64, to: u64) -> Option<ScatteredBytes> {
        let is_whole = self.found.present.clipped_to(from, to).byte_count() == to - from;
        let mut whole = vec![0; usize::try_from(to - from).ok().filter(|_| is_whole)?];
        for (at, bytes) in &self.found.pieces {
            let (first, last) = (from.max(*at), to.min(at + bytes.len() as u64));
            if first < last {
                let bytes = &bytes[(first - at) as usize..(last - at) as usize];
                whole[(first - from) as usize..(last - from) as usize].copy_from_slice(bytes);
            }
        }
        Some(ScatteredBytes::from(whole))
    }
}

impl Replica {
    /// Reads content that is not here from a drive, if one is to be asked first and has all of it.
    /// The caller then enters it in the home log.
    pub(crate) fn read_from_drive(
        &self,
        attr: &Attr,
        (from, to): (u64, u64),
    ) -> Result<Option<(ScatteredBytes, UnstoredContent)>, FsError> {
        if self.drive_set().is_empty() {
            return Ok(None);
        }
        let (no, to) = (attr.object, to.min(attr.size));
        let is_absent =
            from < to && self.note_of(no)?.absent.clipped_to(from, to).byte_count() == to - from;
        if !is_absent {
            return Ok(None);
        }
        let Some(fresh) = self.ask_drives(no, (from, to), true)? else {
            return Ok(None);
        };
        if let Some(parts) = fresh.whole_range(from, to) {
            return Ok(Some((parts, fresh)));
        }
        self.store_content(fresh)?;
        Ok(None)
    }

    /// Brings absent content from a drive, if one is to be asked before the server: `true` if some
    /// of it is here now.
    pub(in super::super) fn fetch_from_drives(
        &self,
        no: ObjectNo,
        range: (u64, u64),
        has_server: bool,
    ) -> Result<bool, FsError> {
        if self.drive_set().is_empty() {
            return Ok(false);
        }
        let Some(first) = self
            .note_of(no)?
            .absent
            .clipped_to(range.0, range.1)
            .iter()
            .next()
        else {
            return Ok(true);
        };
        let Some(fresh) = self.ask_drives(no, range, has_server)? else {
            return Ok(false);
        };
        self.store_content(fresh)?;
        Ok(!self.note_of(no)?.absent.overlaps(first.0, first.0 + 1))
    }

    /// Asks drives for content, as long as one is to be asked before the server: what the first
    /// gave that has its beginning.
    fn ask_drives(
        &self,
        no: ObjectNo,
        (from, to): (u64, u64),
        has_server: bool,
    ) -> Result<Option<UnstoredContent>, FsError> {
        let note = self.note_of(no)?;
        let Some((first, _)) = note.absent.clipped_to(from, to).iter().next() else {
            return Ok(None);
        };
        let goes_on = first > 0 && !note.absent.overlaps(first - 1, first);
        let ahead = if goes_on { to.max(first + AHEAD) } else { to };
        let last = note
            .absent
            .clipped_to(first, ahead)
            .iter()
            .last()
            .map_or(to, |(_, last)| last);
        let has_server = has_server && self.state().is_up();
        let bytes = to.saturating_sub(first).min(AHEAD);
        for source in self.drive_set().ordered_sources(
            (no, note.data_seq),
            bytes,
            has_server,
            (self.clock(), true),
        ) {
            let ContentSource::Drive(drive) = source else {
                return Ok(None);
            };
            let Some(fresh) =
                self.ask_drive(&drive, (no, note.data_seq), (first, last), has_server)
            else {
                continue;
            };
            if fresh.found.present.overlaps(first, first + 1) {
                return Ok(Some(fresh));
            }
            self.store_content(fresh)?;
        }
        Ok(None)
    }

    /// Returns what one drive has of it.
    fn ask_drive(
        &self,
        attached: &Arc<AttachedDrive>,
        (no, data_seq): (ObjectNo, CommitSeq),
        (from, to): (u64, u64),
        has_other: bool,
    ) -> Option<UnstoredContent> {
        let predicted = attached
            .meter()
            .predict_time(to - from)
            .map_or(Duration::ZERO, |time| Duration::from_nanos(time.get()));
        let patience = if has_other {
            PATIENCE.max(predicted * TIMES)
        } else {
            PATIENCE_MAX
        };
        let (begun, drive) = (self.monotonic(), Arc::clone(&attached.drive));
        let is_busy = attached.is_busy();
        let read = move || {
            let held = drive
                .held_object(no)?
                .content
                .filter(|_| bug(Bug::DriveStale));
            drive.read(
                no,
                held.map_or(data_seq, |content| content.data_seq),
                from,
                to,
            )
        };
        let Some(found) = attached.reader.run_with_deadline(patience, read) else {
            attached.counters.late.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let found = found
            .inspect_err(|e| self.drop_if_failed(attached, e))
            .ok()?;
        let now = self.monotonic();
        attached.note_use(now);
        self.note_found(
            attached,
            (no, data_seq),
            found,
            (to_span(now.saturating_sub(begun)), is_busy),
        )
    }

    /// Takes in what a drive's answer tells of it.
    fn note_found(
        &self,
        attached: &AttachedDrive,
        (no, data_seq): (ObjectNo, CommitSeq),
        mut found: FoundContent,
        (time, is_busy): (teal_types::TimeSpan, bool),
    ) -> Option<UnstoredContent> {
        let spoiled = std::mem::take(&mut found.damaged);
        if bug(Bug::SpoiledServed) {
            spoiled
                .iter()
                .for_each(|(from, to)| found.present.add(from, to));
        }
        if !spoiled.is_empty() {
            let bytes = spoiled.iter().map(|(from, to)| to - from).sum();
            log::warn!(
                "{}: {bytes} bytes of {} are damaged there",
                attached.name,
                self.store().path_of(no)
            );
            attached
                .counters
                .spoiled
                .fetch_add(bytes, Ordering::Relaxed);
            attached
                .queue
                .add_spoiled(no, data_seq, &spoiled, self.monotonic());
        }
        if found.present.is_empty() {
            if spoiled.is_empty() {
                self.drive_set().set_lacks(attached, no, data_seq);
            }
            return None;
        }
        let bytes = found.present.byte_count();
        {
            let mut meter = attached.meter();
            if is_busy {
                meter.note_busy_read(bytes, time)
            } else {
                meter.note_read(bytes, time)
            }
        }
        self.drive_set().server_waits(time);
        attached.counters.reads.fetch_add(1, Ordering::Relaxed);
        attached
            .counters
            .read_bytes
            .fetch_add(bytes, Ordering::Relaxed);
        Some(UnstoredContent {
            no,
            data_seq,
            found,
            device: attached.device,
        })
    }

    /// Enters what a drive gave, where it still means what is absent here.
    pub(crate) fn store_content(&self, fresh: UnstoredContent) -> Result<(), FsError> {
        let UnstoredContent {
            no,
            data_seq,
            found,
            device,
        } = fresh;
        let (bytes, mut pieces) = (found.present.byte_count(), found.pieces);
        self.room_for(bytes);
        for (from, to) in found.present.iter() {
            let rest = pieces.split_off(pieces.partition_point(|(at, _)| *at < to));
            let want = WantedRange {
                object: no,
                data_seq,
                offset: from,
                len: to - from,
            };
            self.store_fetched(&want, to - from, std::mem::replace(&mut pieces, rest))?;
        }
        self.drive_set()
            .queue_content(no, bytes, self.monotonic(), Some(device));
        Ok(())
    }
}
