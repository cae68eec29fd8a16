//! Reading content that is not here from a drive.
//!
//! # Guarantees
//! 1. *The answer first*: a reader is answered with the drive's content before that is stored in
//!    the home log. Content that is stored, and noted as present, is checked against the note
//!    again.
//! 2. *No more than needed*: a reader waits for the range it asked for. The drive reads further
//!    only where the reader goes on from content that is here.

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
use teal_types::{Attr, CommitSeq, ObjectNo};
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
    device: u32,
}

impl UnstoredContent {
    /// Returns the whole range from `from` to `to`, if all of it was found.
    fn whole_range(&self, from: u64, to: u64) -> Option<ScatteredBytes> {
        debug_assert!(from <= to);
        // Only content that the drive has completely can answer the reader at once.
        let is_whole = self.found.present.clipped_to(from, to).byte_count() == to - from;
        let mut whole = vec![0; usize::try_from(to - from).ok().filter(|_| is_whole)?];
        for (at, bytes) in &self.found.pieces {
            let first = from.max(*at);
            let last = to.min(at + bytes.len() as u64);
            if first < last {
                let bytes = &bytes[(first - at) as usize..(last - at) as usize];
                whole[(first - from) as usize..(last - from) as usize].copy_from_slice(bytes);
            }
        }
        Some(ScatteredBytes::from(whole))
    }
}

impl Replica {
    /// Reads absent content from a drive, if a drive is to be asked first and has all of it. The
    /// caller stores the content after it has answered the reader.
    pub(crate) fn read_from_drive(
        &self,
        attr: &Attr,
        (from, to): (u64, u64),
    ) -> Result<Option<(ScatteredBytes, UnstoredContent)>, FsError> {
        if self.drive_set().is_empty() {
            return Ok(None);
        }
        let no = attr.object;
        let to = to.min(attr.size);
        let is_absent =
            // The shortcut is for reads that are absent as a whole.
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
        // A part of the content came: it is entered, and the reader fetches the rest.
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
        // The reader can go on if at least the first absent byte has come.
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
        debug_assert!(from <= to);
        let note = self.note_of(no)?;
        let Some((first, _)) = note.absent.clipped_to(from, to).iter().next() else {
            return Ok(None);
        };
        // A reader that goes on in a file gets more at once; a drive reads ahead cheaply.
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
            // The server is next by cost: the caller asks it.
            let ContentSource::Drive(drive) = source else {
                return Ok(None);
            };
            let Some(fresh) =
                self.ask_drive(&drive, (no, note.data_seq), (first, last), has_server)
            else {
                continue;
            };
            // The reader waits for the first byte that is absent.
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
            .latency_model
            .lock()
            .predict_time(to - from)
            .map_or(Duration::ZERO, |time| Duration::from_nanos(time.get()));
        // With another source at hand, a slow drive costs little time. Without one, even a sleeping
        // disk is waited for.
        let patience = if has_other {
            PATIENCE.max(predicted * TIMES)
        } else {
            PATIENCE_MAX
        };
        let begun = self.monotonic();
        let drive = Arc::clone(&attached.drive);
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
        // The drive goes on reading on its own thread, and is not asked meanwhile.
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
            for (from, to) in spoiled.iter() {
                found.present.add(from, to);
            }
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
            // The drive drops the damaged ranges and gets them again, from another source.
            attached.queue_spoiled(no, data_seq, &spoiled, self.monotonic());
        }
        if found.present.is_empty() {
            if spoiled.is_empty() {
                self.drive_set()
                    .enodes
                    // The drive has nothing of this version: it is not asked again for the same.
                    .insert((attached.device, no), data_seq);
            }
            return None;
        }
        let bytes = found.present.byte_count();
        {
            let mut meter = attached.latency_model.lock();
            // A read behind a write measures the write too.
            if is_busy {
                meter.note_busy_read(bytes, time)
            } else {
                meter.note_read(bytes, time)
            }
        }
        // The server was not asked meanwhile: its figures grow old.
        self.drive_set().server.lock().note_other_time(time);
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
        let bytes = found.present.byte_count();
        let mut pieces = found.pieces;
        // Room is made first: an operation that finds none fails.
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
        // Other drives may want the content as well.
        self.drive_set()
            .queue_content(no, bytes, self.monotonic(), Some(device));
        Ok(())
    }
}
