//! Fetching what only the server has: the entries of directories, and content.
//!
//! # Guarantees
//! 1. *Not stale*: a listing is installed only at the position it was read at; content only while the note still means the commit it was
//!    read of.
//! 2. *Not empty*: what cannot be fetched is [`FsError::Unreachable`], at once if the server was out of reach a moment ago.
//! 3. *Ahead*: with a directory come the listings of directories in it, as far as one answer holds them; with a file come others beside
//!    it, below and above, as far as half an answer holds them; with a part of a large one comes what follows.

use super::ranges::Ranges;
use super::{Note, Replica, SyncError, unexpected};
use crate::seeded::{Bug, bug};
use crate::{Client, FsError, Seek};
use parking_lot::RwLockWriteGuard;
use std::collections::{HashSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::Duration;
use teal_log::{Cost, StoreError, note_cost};
use teal_proto::{Got, Listing, REPLY_BYTES, Reply, Request, WANTS_MAX, Want};
use teal_types::{FileType, Name, ObjectNo};

/// A server that did not answer a moment ago is not asked again for so long.
const GRACE: Duration = Duration::from_secs(5);
/// Directories asked for together with the one that is needed.
const WITH: usize = 32;
/// How often a listing may be overtaken before the operation fails.
const RETRIES: u32 = 16;
/// Content fetched at once, beginning with what is needed.
const AHEAD: u64 = 2 << 20;
/// Bytes that are fetched with others of their neighbourhood: more would make who reads one small file wait on a slow line.
const TOGETHER: u64 = REPLY_BYTES as u64 / 2;
/// Files with so many bytes come with others.
const SMALL: u64 = TOGETHER / 2;
/// Neighbours looked at.
const NEIGHBOURS: usize = 2048;

impl Client {
    /// Nothing is asked of a server that did not answer a moment ago. Where that took long, nobody waits for it but the thread that asks
    /// for news, which is told to try.
    fn try_reach(&self, replica: &Replica) -> Result<(), FsError> {
        let now = self.clock.monotonic();
        let mut state = replica.state.lock();
        let Some((words, since)) = &state.trouble else { return Ok(()) };
        let unreachable = FsError::Unreachable(words.clone());
        if state.is_denied || now.saturating_sub(*since) < GRACE {
            return Err(unreachable);
        }
        if state.is_slow && state.has_puller {
            state.probe = true;
            replica.changed.notify_all();
            return Err(unreachable);
        }
        Ok(())
    }

    /// Makes sure that a directory's entries are here.
    ///
    /// # Errors
    /// [`FsError::Unreachable`], [`FsError::Stale`].
    pub(crate) fn listed(&self, dir: ObjectNo) -> Result<(), FsError> {
        let Some(replica) = &self.replica else { return Ok(()) };
        if !self.note(dir)?.unlisted {
            return Ok(());
        }
        self.try_reach(replica)?;
        replica.counters.waits.fetch_add(1, Ordering::Relaxed);
        if replica.identity.lock().incarnation == 0 {
            // Whoever has never been welcomed has no numbers for what may be made in it.
            self.connect(replica)?;
        }
        Ok(self.list(replica, dir)?)
    }

    pub(crate) fn list(&self, replica: &Replica, dir: ObjectNo) -> Result<(), SyncError> {
        let _applying = replica.apply()?;
        for _ in 0..RETRIES {
            if !self.note(dir)?.unlisted {
                return Ok(());
            }
            let Some((head, listings)) = self.read_listings(replica, dir)? else { continue };
            if head > replica.seen() {
                self.pull_all(replica, None)?;
            }
            if head != replica.seen() {
                continue;
            }
            for listing in listings {
                self.install_listing(replica, listing)?;
            }
            return Ok(());
        }
        Err(FsError::Unreachable("the directory changes faster than it can be listed".into()).into())
    }

    /// The whole listing of a directory, and those of directories in it that came along; `None` when it changed between its parts.
    #[allow(clippy::type_complexity, reason = "a position and what was read at it")]
    fn read_listings(
        &self,
        replica: &Replica,
        dir: ObjectNo,
    ) -> Result<Option<(teal_types::CommitSeq, Vec<Listing>)>, SyncError> {
        let mut whole = Vec::new();
        let mut asked: VecDeque<(ObjectNo, Option<Name>)> = [(dir, None)].into();
        let mut partial: Option<Listing> = None;
        let mut at = None;
        while let Some((first, _)) = asked.front().cloned() {
            let request = Request::List { dirs: asked.iter().take(WITH).cloned().collect() };
            let Reply::Listings { head, dirs } = self.ask(replica, &request)? else {
                return Err(unexpected("to a listing").into());
            };
            if *at.get_or_insert(head) != head {
                return Ok(None);
            }
            if dirs.first().is_none_or(|listing| listing.dir != first) {
                return Err(unexpected("another directory").into());
            }
            let is_first = whole.is_empty() && partial.is_none();
            for listing in dirs {
                asked.pop_front();
                let mut listing = match partial.take() {
                    Some(mut begun) => {
                        if let (Some(entries), Some(more)) = (&mut begun.entries, listing.entries) {
                            entries.extend(more);
                        }
                        begun.more = listing.more;
                        begun
                    }
                    None => listing,
                };
                if listing.more {
                    let last =
                        listing.entries.as_ref().and_then(|entries| entries.last()).map(|(name, _)| name.clone());
                    asked.push_front((listing.dir, last));
                    partial = Some(listing);
                    break;
                }
                listing.more = false;
                whole.push(listing);
            }
            if partial.is_none() && !is_first {
                break;
            }
            if partial.is_none()
                && let Some(entries) = whole.first().and_then(|listing| listing.entries.as_ref())
            {
                // The directories in it come with one more request.
                let below = entries.iter().filter(|(_, version)| version.kind == FileType::Dir);
                let below: Vec<_> = below.map(|(_, version)| (version.object, None)).take(WITH).collect();
                asked.extend(below);
            }
        }
        Ok(at.map(|at| (at, whole)))
    }

    /// Enters a listing read at the position; under `applying`.
    fn install_listing(&self, replica: &Replica, listing: Listing) -> Result<(), SyncError> {
        let dir = listing.dir;
        match self.store.attr(dir) {
            Err(StoreError::NotFound(_)) => return Ok(()),
            attr => drop(attr?),
        }
        let unlisted = self.note(dir)?.unlisted;
        // A directory that is gone there comes back with what is here, or goes with the next pull.
        let Some(entries) = listing.entries.filter(|_| unlisted) else { return Ok(()) };
        *replica.listing.lock() = Some(dir);
        let entered = entries.iter().try_for_each(|(_, version)| self.install_version(replica, version, None, None));
        *replica.listing.lock() = None;
        entered?;
        // Only now may a name that is not there be called absent.
        let mut cost = Cost::names(1);
        cost.bytes += note_cost(4096);
        let op = self.begin(cost)?;
        let locked = op.lock(&[dir])?;
        let note = Note { unlisted: false, ..self.note(dir)? };
        self.set_note(&locked, dir, &note)?;
        replica.counters.listings.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Makes sure that content from `from` to `to` is here.
    ///
    /// # Errors
    /// [`FsError::Unreachable`], [`FsError::Stale`].
    pub(crate) fn present(&self, no: ObjectNo, from: u64, to: u64) -> Result<(), FsError> {
        let Some(replica) = &self.replica else { return Ok(()) };
        let mut tries = 0;
        while self.note(no)?.absent.touches(from, to) {
            if tries == 0 {
                self.try_reach(replica)?;
                replica.counters.waits.fetch_add(1, Ordering::Relaxed);
            }
            tries += 1;
            if tries > RETRIES {
                return Err(FsError::Unreachable("the content changes faster than it can be read".into()));
            }
            self.fetch(replica, no, from, to)?;
        }
        Ok(())
    }

    fn fetch(&self, replica: &Replica, no: ObjectNo, from: u64, to: u64) -> Result<(), SyncError> {
        self.room_for((to - from).max(AHEAD) + TOGETHER);
        let note = self.note(no)?;
        let needed = note.absent.within(from, to);
        let Some((first, _)) = needed.iter().next() else { return Ok(()) };
        let end = to.max(first + AHEAD);
        let mut wants: Vec<Want> = note
            .absent
            .within(first, end)
            .iter()
            .map(|(from, to)| Want { object: no, data_seq: note.data_seq, offset: from, len: to - from })
            .collect();
        let own = wants.iter().map(|want| want.len).sum();
        wants.extend(self.neighbours(no, TOGETHER.saturating_sub(own))?);
        wants.truncate(WANTS_MAX);
        let Reply::Data(got) = self.ask(replica, &Request::Read { wants: wants.clone() })? else {
            return Err(unexpected("to a read").into());
        };
        if got.is_empty() || got.len() > wants.len() {
            return Err(unexpected("as many answers as questions").into());
        }
        let mut is_stale = false;
        for (want, got) in wants.iter().zip(got) {
            match got {
                Got::Is { len, pieces } => {
                    let pieces = pieces.into_iter().map(|data| (data.offset, data.bytes.into_vec())).collect();
                    self.fill(replica, want, len, pieces)?;
                }
                Got::Stale => is_stale |= want.object == no,
                Got::Damaged if want.object == no => {
                    let damaged = StoreError::Corrupt { what: "content at the server", at: 0, object: Some(no) };
                    return Err(FsError::from(damaged).into());
                }
                Got::Damaged => {}
            }
        }
        if is_stale { self.fetch_stale(replica, no, &note, wants[0]) } else { Ok(()) }
    }

    /// The content there is another one by now. If this one has changed here, its old content comes from history; if not, the new state comes.
    fn fetch_stale(&self, replica: &Replica, no: ObjectNo, note: &Note, want: Want) -> Result<(), SyncError> {
        if note.pending.data.is_none() && note.flying.as_ref().is_none_or(|flying| flying.part.data.is_none()) {
            self.catch_up(replica)?;
            if self.note(no)?.data_seq == note.data_seq {
                // The position has it already, and here it did not arrive.
                let _applying = replica.apply()?;
                if let Some(version) = self.look_at(replica, &[no])?.pop().flatten() {
                    self.install_version(replica, &version, None, None)?;
                }
            }
            return Ok(());
        }
        let len = want.len.min(REPLY_BYTES as u64);
        let request = Request::ReadPast { object: no, at: note.data_seq, offset: want.offset, len };
        let Reply::Past { got: Got::Is { len, pieces }, .. } = self.ask(replica, &request)? else {
            return Err(unexpected("to a read of the past").into());
        };
        let pieces = pieces.into_iter().map(|data| (data.offset, data.bytes.into_vec())).collect();
        self.fill(replica, &want, len, pieces)
    }

    /// Content of other files that is not here, `room` bytes of it: of those beside this one, then below, then above.
    fn neighbours(&self, no: ObjectNo, mut room: u64) -> Result<Vec<Want>, SyncError> {
        let Some((beside, _)) = self.store.names(no)?.into_iter().next() else { return Ok(Vec::new()) };
        let mut above = self.store.names(beside)?.into_iter().next().map(|(above, _)| above);
        let (mut wants, mut looked): (Vec<Want>, usize) = (Vec::new(), 0);
        let (mut dirs, mut known) = (VecDeque::from([beside]), HashSet::from([beside]));
        while room > 0
            && let Some(dir) = dirs.pop_front().or_else(|| above.take())
        {
            let mut files = Vec::new();
            self.store.each_entry(dir, 0, &mut |_, child, kind, _| {
                looked += 1;
                match kind {
                    FileType::File if child != no => files.push(child),
                    FileType::Dir if known.insert(child) => dirs.push_back(child),
                    _ => {}
                }
                if looked < NEIGHBOURS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            for object in files {
                let note = self.note(object)?;
                let size: u64 = note.absent.iter().map(|(from, to)| to - from).sum();
                if size == 0 || size > SMALL.min(room) {
                    continue;
                }
                room -= size;
                let want = |(offset, to)| Want { object, data_seq: note.data_seq, offset, len: to - offset };
                wants.extend(note.absent.iter().map(want));
            }
            if looked >= NEIGHBOURS || wants.len() >= WANTS_MAX {
                break;
            }
        }
        Ok(wants)
    }

    /// Enters content that was read, where it is still absent and still means the same commit.
    fn fill(&self, replica: &Replica, want: &Want, len: u64, pieces: Vec<(u64, Vec<u8>)>) -> Result<(), SyncError> {
        let no = want.object;
        let end = want.offset.saturating_add(len.min(want.len));
        let _absence = replica.absence(no).write();
        let mut cost = Cost::data(pieces.iter().map(|(_, bytes)| bytes.len() as u64 + 8192).sum());
        cost.bytes += note_cost(self.note(no)?.encode().len() + 4096);
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
        replica.counters.fetched.fetch_add(missing.iter().map(|(from, to)| to - from).sum(), Ordering::Relaxed);
        self.set_note(&locked, no, &note)?;
        Ok(())
    }

    /// Content that is not here.
    pub(crate) fn absent(&self, no: ObjectNo) -> Result<Ranges, StoreError> {
        if self.replica.is_none() { Ok(Ranges::default()) } else { Ok(self.note(no)?.absent) }
    }

    /// Shuts readers of an object out, for changes of what is here.
    pub(crate) fn absence_of(&self, no: ObjectNo) -> Option<RwLockWriteGuard<'_, ()>> {
        self.replica.as_ref().map(|replica| replica.absence(no).write())
    }

    /// As [`Client::seek`] where some content is not here: it counts as data.
    pub(crate) fn seek_around(&self, no: ObjectNo, offset: u64, what: Seek, absent: &Ranges) -> Result<u64, FsError> {
        let size = self.store.attr(no)?.size;
        if offset >= size {
            return Err(FsError::BehindEnd);
        }
        let mut at = offset;
        if what == Seek::Data {
            let here = self.store.seek(no, at, false)?;
            let there = absent.within(at, size).iter().next().map(|(from, _)| from);
            return here.into_iter().chain(there).min().ok_or(FsError::BehindEnd);
        }
        while at < size {
            let hole = self.store.seek(no, at, true)?.unwrap_or(size);
            match absent.within(hole, size).iter().next().filter(|(from, _)| *from == hole) {
                Some((_, to)) => at = to,
                None => return Ok(hole),
            }
        }
        Ok(size)
    }
}
