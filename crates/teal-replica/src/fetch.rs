//! Fetching content that only the server has.
//!
//! # Guarantees
//! 1. *Not stale*: content is installed only while the note still means the commit it was read of.
//! 2. *Not empty*: what cannot be fetched is [`FsError::Unreachable`], at once if the server was
//!    out of reach a moment ago.
//! 3. *Ahead*: with a part of a file comes what follows; with all of it come other files
//!    [`around`](Client::around) it: as much as nearly nobody notices ([`BESIDE`]). More comes
//!    while whoever waited goes on (`fetch_ahead`). Nothing comes twice ([`Flight`]).
//! 4. What comes ahead takes nothing away: if it is damaged there, or its request fails, what is
//!    needed is still here.

use super::ahead::Flight;
use super::trouble::{Trouble, TroubleKind};
use super::{Note, Replica, SyncError, unexpected};
use crate::seeded::{Bug, bug};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::Duration;
use teal_log::{Cost, StoreError};
use teal_proto::{Got, REPLY_BYTES, Reply, Request, WANTS_MAX, Want};
use teal_types::ranges::{END, Ranges};
use teal_types::{FileType, ObjectNo};
use teal_volume::FsError;

/// A server that did not answer a moment ago is not asked again for so long.
const GRACE: Duration = Duration::from_secs(5);
/// How often content may be another one before the operation fails.
const RETRIES: u32 = 16;
/// As much of it comes with what is needed: more would make who reads one small file wait on a slow
/// line.
const BESIDE: u64 = 64 << 10;
/// With drives attached, so many times as much is looked at: most of it may be on them.
const BEHIND: u64 = 4;
/// Content asked for in one request; what it takes beside its bytes has room in the reply, too.
pub(super) const PART: u64 = REPLY_BYTES as u64 - (64 << 10);

/// Content of an object in the state that its note means.
pub(super) fn wants(object: ObjectNo, note: &Note, ranges: &Ranges) -> Vec<Want> {
    let want = |(offset, to)| Want {
        object,
        data_seq: note.data_seq,
        offset,
        len: to - offset,
    };
    ranges.iter().map(want).collect()
}

/// The same in parts each of which one reply has room for.
fn in_replies(wants: &[Want]) -> Vec<Vec<Want>> {
    let mut parts: Vec<Vec<Want>> = Vec::new();
    let mut room = 0;
    for want in wants {
        let mut want = *want;
        while want.len > 0 {
            let is_full = |part: &Vec<Want>| room == 0 || part.len() == WANTS_MAX;
            if parts.last().is_none_or(is_full) {
                parts.push(Vec::new());
                room = PART;
            }
            let len = want.len.min(room);
            if let Some(part) = parts.last_mut() {
                part.push(Want { len, ..want });
            }
            (want.offset, want.len, room) = (want.offset + len, want.len - len, room - len);
        }
    }
    parts
}

impl Replica {
    /// Nothing is asked of a server that did not answer a moment ago. Where that took long, nobody
    /// waits for it but the thread that asks for news, which is told to try.
    pub(super) fn try_reach(&self) -> Result<(), FsError> {
        let now = self.monotonic();
        let mut state = self.state.lock();
        let Some(Trouble { kind, why, since }) = &state.trouble else {
            return Ok(());
        };
        let unreachable = FsError::Unreachable(why.clone());
        match kind {
            TroubleKind::Denied => Err(FsError::Denied(why.clone())),
            _ if now.saturating_sub(*since) < GRACE => Err(unreachable),
            TroubleKind::Silent if state.has_puller => {
                state.probe = true;
                self.changed.notify_all();
                Err(unreachable)
            }
            TroubleKind::Silent | TroubleKind::Away => Ok(()),
        }
    }

    /// Does what an operation has to wait for the server for.
    pub(super) fn waiting<T>(
        &self,
        what: std::fmt::Arguments<'_>,
        work: impl FnOnce() -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let begun = self.monotonic();
        let done = work();
        let time = self.monotonic().saturating_sub(begun);
        self.counters.waits.fetch_add(1, Ordering::Relaxed);
        self.counters
            .waited_us
            .fetch_add(time.as_micros() as u64, Ordering::Relaxed);
        log::debug!("somebody waited {time:?} for {what}");
        done
    }

    /// Makes sure that content from `from` to `to` is here.
    ///
    /// # Errors
    /// [`FsError::Unreachable`], [`FsError::Stale`].
    pub(crate) fn present(&self, no: ObjectNo, from: u64, to: u64) -> Result<(), FsError> {
        let is_absent = || Ok::<_, FsError>(self.note(no)?.absent.touches(from, to));
        while is_absent()? && self.read_drives(no, (from, to), true)? {}
        if !is_absent()? {
            return Ok(());
        }
        self.try_reach()?;
        self.waiting(format_args!("{no} from {from} to {to}"), || {
            for _ in 0..RETRIES {
                while self.flights.wait(no, from, to) {
                    // Whoever fetched it may have met that the server is out of reach.
                    self.try_reach()?;
                }
                if !is_absent()? {
                    return Ok(());
                }
                if let Err(e) = self.greeted(|| self.fetch(no, from, to))
                    && !self.read_drives(no, (from, to), false)?
                {
                    return Err(e.into());
                }
            }
            Err(FsError::Unreachable(
                "the content changes faster than it can be read".into(),
            ))
        })
    }

    fn fetch(&self, no: ObjectNo, from: u64, to: u64) -> Result<(), SyncError> {
        let ahead = &self.content_ahead;
        let window = if self.drives.is_server_unknown() {
            0
        } else {
            ahead.open().min(BESIDE)
        };
        self.room_for((to - from).saturating_add(window));
        let mut range = Ranges::default();
        let end = to.max(from.saturating_add(window));
        range.add(from, end);
        let mut flight = self.flights.begin();
        let (note, absent) = self.take_absent(no, &range, &mut flight)?;
        let (needed, more) = (absent.within(from, to), absent.within(to, END));
        ahead.came(no, to, more.len());
        let mut wants: Vec<Want> = [&needed, &more]
            .into_iter()
            .flat_map(|of| wants(no, &note, of))
            .collect();
        let Some(first) = wants.first().copied() else {
            return Ok(());
        };
        let room = window.saturating_sub(absent.len());
        wants.extend(self.neighbours(no, room, window, &mut flight)?);
        self.lookout.give((no, end));
        let begun = self.monotonic();
        let is_stale = self.read_content((no, to), &wants)?;
        ahead.took(self.monotonic().saturating_sub(begun));
        drop(flight);
        if is_stale {
            self.fetch_stale(no, &note, first)
        } else {
            Ok(())
        }
    }

    /// Returns what of these ranges is absent and nobody else fetches, and the note that says so.
    pub(super) fn take_absent(
        &self,
        no: ObjectNo,
        ranges: &Ranges,
        flight: &mut Flight<'_>,
    ) -> Result<(Note, Ranges), SyncError> {
        let free = flight.take(no, ranges);
        // What others were fetching until then is in it.
        let note = self.note(no)?;
        let absent = note.absent.common(&free);
        Ok((note, absent))
    }

    /// Reads and enters all that is wanted; whether the object's content is another one by now. It
    /// is needed up to `to`.
    pub(super) fn read_content(
        &self,
        (no, to): (ObjectNo, u64),
        wants: &[Want],
    ) -> Result<bool, SyncError> {
        let parts = in_replies(wants);
        let requests: Vec<Request> = parts
            .iter()
            .map(|wants| Request::Read {
                wants: wants.clone(),
            })
            .collect();
        let replies = self.call_all(&requests, self.options.deadline);
        let mut is_stale = false;
        for (at, (wants, reply)) in parts.iter().zip(replies).enumerate() {
            let got = match reply {
                Ok(Reply::Data(got)) if !got.is_empty() && got.len() <= wants.len() => got,
                Ok(_) => return Err(unexpected("to a read").into()),
                // What is needed is in the first.
                Err(_) if at > 0 => break,
                Err(e) => return Err(e.into()),
            };
            for (want, got) in wants.iter().zip(got) {
                match got {
                    Got::Is { len, pieces } => {
                        let pieces = pieces
                            .into_iter()
                            .map(|data| (data.offset, data.bytes.into_vec()))
                            .collect();
                        self.fill(want, len, pieces)?;
                        self.drives
                            .has_news(want.object, len, self.monotonic(), None);
                    }
                    Got::Stale => is_stale |= want.object == no,
                    Got::Damaged if want.object == no && want.offset < to => {
                        let damaged = StoreError::Corrupt {
                            what: "content at the server",
                            at: 0,
                            object: Some(no),
                        };
                        return Err(FsError::from(damaged).into());
                    }
                    Got::Damaged => {}
                }
            }
        }
        Ok(is_stale)
    }

    /// The content there is another one by now. If this one has changed here, its old content comes
    /// from history; if not, the new state comes.
    fn fetch_stale(&self, no: ObjectNo, note: &Note, want: Want) -> Result<(), SyncError> {
        if note.dirty.data.is_none()
            && note
                .in_flight
                .as_ref()
                .is_none_or(|in_flight| in_flight.part.data.is_none())
        {
            self.catch_up()?;
            if self.note(no)?.data_seq == note.data_seq {
                // The position has it already, and here it did not arrive.
                let _applying = self.apply()?;
                if let Some(version) = self.look_at(&[no])?.pop().flatten() {
                    self.install_version(&version, None, None)?;
                }
            }
            return Ok(());
        }
        let len = want.len.min(REPLY_BYTES as u64);
        let request = Request::ReadPast {
            object: no,
            at: note.data_seq,
            offset: want.offset,
            len,
        };
        let Reply::Past {
            got: Got::Is { len, pieces },
            ..
        } = self.ask(&request)?
        else {
            return Err(unexpected("to a read of the past").into());
        };
        let pieces = pieces
            .into_iter()
            .map(|data| (data.offset, data.bytes.into_vec()))
            .collect();
        self.fill(&want, len, pieces)
    }

    /// Content of other files that is not here, `room` bytes of it: what a walk over the tree would
    /// come to, but for what is read from a drive at less cost. None that is more than half of the
    /// window.
    pub(super) fn neighbours(
        &self,
        no: ObjectNo,
        mut room: u64,
        window: u64,
        flight: &mut Flight<'_>,
    ) -> Result<Vec<Want>, SyncError> {
        let mut found = Vec::new();
        if room == 0 {
            return Ok(found);
        }
        let mut take = |object, absent: &Ranges| {
            let (note, absent) = self.take_absent(object, absent, flight)?;
            found.extend(wants(object, &note, &absent));
            self.content_ahead.came(object, 0, absent.len());
            Ok::<_, SyncError>(absent.len())
        };
        let (mut near, has_drives) = (Vec::new(), !self.drives.is_empty());
        let (mut left, most) = (
            if has_drives { room * BEHIND } else { room },
            room.min(window / 2),
        );
        self.around::<SyncError>(no, &mut |object, kind| {
            if kind == FileType::File {
                let note = self.note(object)?;
                let size = note.absent.len();
                if size > 0 && size <= most.min(left) {
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
        for (object, _, absent) in self.drives.without_cheaper(near, self.monotonic()) {
            if absent.len() <= room {
                room -= take(object, &absent)?;
            }
        }
        Ok(found)
    }

    /// Enters content that was read, where it is still absent and still means the same commit.
    pub(super) fn fill(
        &self,
        want: &Want,
        len: u64,
        pieces: Vec<(u64, Vec<u8>)>,
    ) -> Result<(), SyncError> {
        let no = want.object;
        let end = want.offset.saturating_add(len.min(want.len));
        let _content = self.content_lock(no).write();
        let head = self.store().head_bytes(no).unwrap_or(0);
        let note = self.note(no)?.encode().len() + 4096;
        let cost = pieces.iter().fold(
            Cost::write(0).with_note(note).with_head(head),
            |cost, (_, bytes)| cost.with_piece(bytes.len() as u64),
        );
        let op = self.begin(cost)?;
        let mut locked = match op.lock(&[no]) {
            Err(StoreError::NotFound(_)) => return Ok(()),
            locked => locked?,
        };
        let mut note = self.note(no)?;
        if note.data_seq != want.data_seq && !bug(Bug::StaleFetched) {
            return Ok(());
        }
        let missing = note.absent.within(want.offset, end);
        for (at, bytes) in pieces {
            let here = missing.within(at, at.saturating_add(bytes.len() as u64));
            for (from, to) in here.iter() {
                locked.write(no, from, &bytes[(from - at) as usize..(to - at) as usize])?;
            }
        }
        note.absent = note.absent.without(&missing);
        self.counters.fetched.fetch_add(
            missing.iter().map(|(from, to)| to - from).sum(),
            Ordering::Relaxed,
        );
        self.set_note(&locked, no, &note)?;
        Ok(())
    }
}
