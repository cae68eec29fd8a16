//! Fetching content that only the server has.
//!
//! # Guarantees
//! 1. *Not stale*: content is installed only while the note still means the commit it was read of.
//! 2. *Not empty*: content that cannot be fetched is [`FsError::Unreachable`], at once if the
//!    server was out of reach a moment ago.
//! 3. *Prefetch*: with a part of a file comes the content behind it; with all of it come other
//!    files near it, in so small an amount ([`BESIDE`]) that a reader hardly notices. More comes
//!    while the reader goes on (`prefetch`). Nothing comes twice ([`FetchClaim`]).
//! 4. Prefetching does no harm: if prefetched content is damaged at the server, or its request
//!    fails, the needed content is here all the same.

use super::prefetch_window::FetchClaim;
use super::{ObjectNote, Replica, SyncError, unexpected};
use crate::seeded::{Bug, bug};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use teal_log::{Cost, LockedObjects, StoreError};
use teal_proto::{
    ClientRequest, ContentAnswer, REPLY_BYTES, ReplyPiece, ServerReply, WANTS_MAX, WantedRange,
};
use teal_types::ranges::{ByteRanges, CONTENT_END};
use teal_types::{FileType, ObjectNo};
use teal_volume::FsError;

/// The most times that content may change while it is fetched before the operation fails.
const RETRIES: u32 = 16;
/// The content that comes together with a needed range. More of it would make the reader of one
/// small file wait on a slow line.
const BESIDE: u64 = 64 << 10;
/// With drives attached, so many times as much is looked at: most of it may be on them.
const BEHIND: u64 = 4;
/// Content asked for in one request; what it takes beside its bytes has room in the reply, too.
pub(super) const PART: u64 = REPLY_BYTES as u64 - (64 << 10);

/// Returns requests for these ranges of an object, in the state that its note means.
pub(super) fn wants_for(
    object: ObjectNo,
    note: &ObjectNote,
    ranges: &ByteRanges,
) -> Vec<WantedRange> {
    let want = |(offset, to)| WantedRange {
        object,
        data_seq: note.data_seq,
        offset,
        len: to - offset,
    };
    debug_assert!(ranges.iter().all(|(from, to)| from < to));
    ranges.iter().map(want).collect()
}

/// Returns the pieces of an answer as they are stored: each with its place in the file.
pub(super) fn own_pieces(pieces: Vec<ReplyPiece>) -> Vec<(u64, Vec<u8>)> {
    let mut own = Vec::new();
    for piece in pieces {
        own.push((piece.offset, piece.bytes.into_vec()));
    }
    own
}

/// Divides requests into groups, each of which one reply can hold.
fn in_replies(wants: &[WantedRange]) -> Vec<Vec<WantedRange>> {
    // Requests are filled one after the other, each up to the size of one reply.
    let mut parts: Vec<Vec<WantedRange>> = Vec::new();
    let mut room = 0;
    for want in wants {
        let mut want = *want;
        while want.len > 0 {
            // A reply is full by bytes or by the number of wants.
            let is_full = |part: &Vec<WantedRange>| room == 0 || part.len() == WANTS_MAX;
            if parts.last().is_none_or(is_full) {
                parts.push(Vec::new());
                room = PART;
            }
            let len = want.len.min(room);
            if let Some(part) = parts.last_mut() {
                part.push(WantedRange { len, ..want });
            }
            debug_assert!(len > 0 && len <= want.len, "a want is not divided further");
            want.offset += len;
            want.len -= len;
            room -= len;
        }
    }
    parts
}

impl Replica {
    /// Fails if the server did not answer a moment ago. If it took long to find that out, only the
    /// thread that asks for news tries again, and is told to.
    pub(super) fn try_reach(&self) -> Result<(), FsError> {
        self.state().try_reach(self.monotonic())
    }

    /// Does what an operation has to wait for the server for.
    pub(super) fn count_waiting<T>(
        &self,
        what: std::fmt::Arguments<'_>,
        work: impl FnOnce() -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let begun = self.monotonic();
        let done = work();
        let time = self.monotonic().saturating_sub(begun);
        self.counters().waits.fetch_add(1, Ordering::Relaxed);
        self.counters()
            .waited_us
            .fetch_add(time.as_micros() as u64, Ordering::Relaxed);
        log::debug!("a reader waited {time:?} for {what}");
        done
    }

    /// Makes sure that content from `from` to `to` is here.
    ///
    /// # Errors
    /// [`FsError::Unreachable`], [`FsError::Stale`].
    pub(crate) fn ensure_present(&self, no: ObjectNo, from: u64, to: u64) -> Result<(), FsError> {
        let is_absent = || Ok::<_, FsError>(self.note_of(no)?.absent.overlaps(from, to));
        // Drives are asked first, as long as each brings a part.
        while is_absent()? && self.fetch_from_drives(no, (from, to), true)? {}
        if !is_absent()? {
            return Ok(());
        }
        self.try_reach()?;
        self.count_waiting(format_args!("{no} from {from} to {to}"), || {
            // Each round waits for other fetches, and then fetches what is left.
            for _ in 0..RETRIES {
                while self.flights().wait_for_others(no, from, to) {
                    // The other thread may have found out that the server cannot be reached.
                    self.try_reach()?;
                }
                if !is_absent()? {
                    return Ok(());
                }
                // A drive that was too slow before is better than no source.
                if let Err(e) = self.retry_after_greeting(|| self.fetch_range(no, from, to))
                    && !self.fetch_from_drives(no, (from, to), false)?
                {
                    return Err(e.into());
                }
            }
            Err(FsError::Unreachable(
                "the content changes faster than it can be read".into(),
            ))
        })
    }

    fn fetch_range(&self, no: ObjectNo, from: u64, to: u64) -> Result<(), SyncError> {
        debug_assert!(from <= to);
        let ahead = &self.content_ahead();
        // Before the server's speed is known, a small question measures its latency.
        let window = if self.drive_set().is_server_unknown() {
            0
        } else {
            ahead.note_wait().min(BESIDE)
        };
        // Room for the largest answer that is asked for.
        self.room_for((to - from).saturating_add(window));
        let mut range = ByteRanges::default();
        let end = to.max(from.saturating_add(window));
        range.add(from, end);
        // From here on no other thread fetches these bytes.
        let mut flight = self.flights().begin_claim();
        let (note, absent) = self.take_absent(no, &range, &mut flight)?;
        let needed = absent.clipped_to(from, to);
        let more = absent.clipped_to(to, CONTENT_END);
        // Prefetched content counts as used when the reader goes on behind `to`.
        ahead.note_prefetched(no, to, more.byte_count());
        let mut wants = wants_for(no, &note, &needed);
        wants.extend(wants_for(no, &note, &more));
        let Some(first) = wants.first().copied() else {
            return Ok(());
        };
        // The rest of the window goes to neighbours.
        let room = window.saturating_sub(absent.byte_count());
        wants.extend(self.neighbour_wants(no, room, window, &mut flight)?);
        self.lookout().set_place((no, end));
        let begun = self.monotonic();
        let is_stale = self.read_content((no, to), &wants)?;
        ahead.note_duration(self.monotonic().saturating_sub(begun));
        // Threads that wait for these bytes go on.
        drop(flight);
        if is_stale {
            self.fetch_stale(no, &note, first)
        } else {
            Ok(())
        }
    }

    /// Claims the ranges that no other thread fetches. Returns the object's note, and the claimed
    /// ranges that are absent by it.
    pub(super) fn take_absent(
        &self,
        no: ObjectNo,
        ranges: &ByteRanges,
        flight: &mut FetchClaim<'_>,
    ) -> Result<(ObjectNote, ByteRanges), SyncError> {
        let free = flight.claim_ranges(no, ranges);
        // The note is read after the claim: it has the content of fetches that ended until then.
        let note = self.note_of(no)?;
        let absent = note.absent.intersection(&free);
        Ok((note, absent))
    }

    /// Reads and enters all that is wanted; whether the object's content is another one by now. It
    /// is needed up to `to`.
    pub(super) fn read_content(
        &self,
        (no, to): (ObjectNo, u64),
        wants: &[WantedRange],
    ) -> Result<bool, SyncError> {
        let parts = in_replies(wants);
        let mut requests = Vec::new();
        for wants in &parts {
            requests.push(ClientRequest::Read {
                wants: wants.clone(),
            });
        }
        let replies = self.call_all(&requests, self.options().deadline);
        let mut is_stale = false;
        for (at, (wants, reply)) in parts.iter().zip(replies).enumerate() {
            let got = match reply {
                // The server may leave out wants at the end of a reply that is full.
                Ok(ServerReply::Data(got)) if !got.is_empty() && got.len() <= wants.len() => got,
                Ok(_) => return Err(unexpected("to a read").into()),
                // The first reply holds the needed content.
                Err(_) if at > 0 => break,
                Err(e) => return Err(e.into()),
            };
            for (want, got) in wants.iter().zip(got) {
                match got {
                    ContentAnswer::Is { len, pieces } => {
                        self.store_fetched(want, len, own_pieces(pieces))?;
                        self.drive_set()
                            .queue_content(want.object, len, self.monotonic(), None);
                    }
                    ContentAnswer::Stale => is_stale |= want.object == no,
                    // Prefetched content that is damaged at the server is no error of this read.
                    ContentAnswer::Damaged if want.object == no && want.offset < to => {
                        let damaged = StoreError::Corrupt {
                            what: "content at the server",
                            at: 0,
                            object: Some(no),
                        };
                        return Err(FsError::from(damaged).into());
                    }
                    ContentAnswer::Damaged => {}
                }
            }
        }
        Ok(is_stale)
    }

    /// Fetches content that the server has in another version by now. If the content is dirty here,
    /// the old version comes from history; otherwise the new state is installed.
    fn fetch_stale(
        &self,
        no: ObjectNo,
        note: &ObjectNote,
        want: WantedRange,
    ) -> Result<(), SyncError> {
        // The base of dirty content stays: the server is asked for the past. Clean content moves
        // on.
        if note.dirty.data.is_none()
            && note
                .in_flight
                .as_ref()
                .is_none_or(|in_flight| in_flight.components.data.is_none())
        {
            self.catch_up()?;
            // The change was seen and not installed: the object is taken over by itself.
            if self.note_of(no)?.data_seq == note.data_seq {
                // The position has it already, and here it did not arrive.
                let _applying = self.lock_applying()?;
                if let Some(version) = self.versions_at_server(&[no])?.pop().flatten() {
                    self.install_version(&version, None, None)?;
                }
            }
            return Ok(());
        }
        let len = want.len.min(REPLY_BYTES as u64);
        let request = ClientRequest::ReadPast {
            object: no,
            at: note.data_seq,
            offset: want.offset,
            len,
        };
        let ServerReply::Past {
            got: ContentAnswer::Is { len, pieces },
            ..
        } = self.ask_server(&request)?
        else {
            return Err(unexpected("to a read of the past").into());
        };
        self.store_fetched(&want, len, own_pieces(pieces))
    }

    /// Returns requests for `room` bytes of absent content of other files, in the order of a walk
    /// over the tree, without files that a drive serves at less cost. No file may take more than
    /// half of the window.
    pub(super) fn neighbour_wants(
        &self,
        no: ObjectNo,
        mut room: u64,
        window: u64,
        flight: &mut FetchClaim<'_>,
    ) -> Result<Vec<WantedRange>, SyncError> {
        debug_assert!(room <= window);
        // Small files around are fetched with the one that is needed.
        let mut found = Vec::new();
        if room == 0 {
            return Ok(found);
        }
        let mut take = |object, absent: &ByteRanges| {
            let (note, absent) = self.take_absent(object, absent, flight)?;
            found.extend(wants_for(object, &note, &absent));
            self.content_ahead()
                .note_prefetched(object, 0, absent.byte_count());
            Ok::<_, SyncError>(absent.byte_count())
        };
        let mut near = Vec::new();
        let has_drives = !self.drive_set().is_empty();
        let (mut left, most) = (
            if has_drives { room * BEHIND } else { room },
            // No file may take more than half of the window.
            room.min(window / 2),
        );
        self.visit_neighbours::<SyncError>(no, &mut |object, kind| {
            if kind == FileType::File {
                let note = self.note_of(object)?;
                let size = note.absent.byte_count();
                if size > 0 && size <= most.min(left) {
                    // Drives are asked in one go, after the walk.
                    left -= if has_drives {
                        size
                    } else {
                        take(object, &note.absent)?
                    };
                    near.extend(has_drives.then_some((object, note.data_seq, note.absent)));
                }
            }
            // For the rest it is not worth looking at more.
            Ok(if left > window / 16 {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            })
        })?;
        // Content that a drive has cheaper is left to the drive.
        for (object, _, absent) in self.drive_set().without_cheaper(near, self.monotonic()) {
            if absent.byte_count() <= room {
                room -= take(object, &absent)?;
            }
        }
        Ok(found)
    }

    /// Enters content that was read, where it is still absent and still means the same commit.
    pub(super) fn store_fetched(
        &self,
        want: &WantedRange,
        len: u64,
        pieces: Vec<(u64, Vec<u8>)>,
    ) -> Result<(), SyncError> {
        let no = want.object;
        let end = want.offset.saturating_add(len.min(want.len));
        // Readers of this object wait until the note and the content agree.
        let _content = self.residency_lock(no).write();
        let cost = self.cost_of_fetched(no, &pieces)?;
        let op = self.begin_operation(cost)?;
        let mut locked = match op.lock(&[no]) {
            Err(StoreError::NotFound(_)) => return Ok(()),
            locked => locked?,
        };
        // Looked at again under the lock: the content may be another version now.
        let mut note = self.note_of(no)?;
        if note.data_seq != want.data_seq && !bug(Bug::StaleFetched) {
            return Ok(());
        }
        debug_assert!(want.offset <= end);
        // Only bytes that are still absent are written: the others are newer.
        let missing = note.absent.clipped_to(want.offset, end);
        write_missing(&mut locked, no, &missing, &pieces)?;
        note.absent = note.absent.difference(&missing);
        let fetched = missing.byte_count();
        self.counters()
            .fetched
            .fetch_add(fetched, Ordering::Relaxed);
        // Note and content change in one operation: after a crash either both or neither.
        self.set_note(&locked, no, &note)?;
        Ok(())
    }

    /// Returns the cost of an operation that enters pieces of content that were read.
    fn cost_of_fetched(&self, no: ObjectNo, pieces: &[(u64, Vec<u8>)]) -> Result<Cost, SyncError> {
        let head = self.store().head_bytes(no).unwrap_or(0);
        let note = self.note_of(no)?.encode().len() + 4096;
        let mut cost = Cost::write(0).with_note(note).with_head(head);
        for (_, bytes) in pieces {
            cost = cost.with_piece(bytes.len() as u64);
        }
        Ok(cost)
    }
}

/// Writes what of the pieces lies within the missing ranges of a file.
fn write_missing(
    locked: &mut LockedObjects<'_>,
    no: ObjectNo,
    missing: &ByteRanges,
    pieces: &[(u64, Vec<u8>)],
) -> Result<(), StoreError> {
    for (at, bytes) in pieces {
        let end = at.saturating_add(bytes.len() as u64);
        for (from, to) in missing.clipped_to(*at, end).iter() {
            debug_assert!(from >= *at && to - at <= bytes.len() as u64);
            let part = (from - at) as usize..(to - at) as usize;
            locked.write(no, from, &bytes[part])?;
        }
    }
    Ok(())
}
