//! Roll-forward: applies the deltas of committed records to the state as the checkpoint left it.
//!
//! # Invariants
//! 1. Redone, a batch leaves the state that sealing it left: the same maps, the same usage, byte for byte.
//! 2. Counts of shared extents are what the batch says; what the files' own deltas take away does not change them.
//! 3. Every object that is newer than its record stays in memory until the next checkpoint folds it.
//!
//! # How
//! 1. [`Store::redo`] goes through a record when the store is opened: what it says of the store is done, and what it brings to the disk
//!    lives from now on. What it says of objects [waits](crate::deferred).
//! 2. [`Redone`] does that later, to one object.

use crate::codec::COUNTER_LIMIT;
use crate::deferred::{Due, Dues};
use crate::dir::{Dir, Entries};
use crate::error::StoreError;
use crate::extents::{Extents, Freed};
use crate::format::crc;
use crate::format::delta::{Delta, KEPT, PREFIX, Placed, decode_body};
use crate::format::extent::{Extent, Mapped};
use crate::format::imap::Home;
use crate::format::inode::{Core, Entry};
use crate::object::{Blocks, Content, State};
use crate::open::Link;
use crate::reader::Reader;
use crate::seeded::{Bug, bug};
use crate::shared::Logged;
use crate::store::Store;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use teal_types::{FileType, Lsn, ObjectNo, SECTOR};

impl Store {
    /// Redoes a record; `is_entry`: the record before lies in another segment. What it says of objects goes into `dues`.
    pub(crate) fn redo(
        &self,
        link: &Link,
        is_entry: bool,
        dues: &mut Dues,
    ) -> Result<(), StoreError> {
        {
            let mut segments = self.segments.lock();
            if is_entry {
                segments.start_anew(link.at);
            }
            segments.enter(link.at, link.header.seq);
        }
        let damaged = || StoreError::Corrupt {
            what: "a record",
            at: link.at.get(),
            object: None,
        };
        let byte = link.at.byte() + SECTOR * (1 + u64::from(link.header.payload));
        for placed in decode_body(&link.body, link.header.deltas) {
            let placed = placed.map_err(|_| damaged())?;
            let no = placed.object;
            let lsn = Lsn::new(link.header.lsn.get() + u64::from(placed.lsn_offset));
            self.next_lsn.fetch_max(lsn.get() + 1, Relaxed);
            if no.get() >= COUNTER_LIMIT {
                return Err(damaged());
            }
            self.next_object.fetch_max(no.get() + 1, Relaxed);
            if self
                .redo_at_once(&placed, lsn, byte + placed.at as u64)?
                .ok_or_else(damaged)?
            {
                let at = u32::try_from(placed.at).map_err(|_| damaged())?;
                let byte = byte + placed.at as u64;
                dues.entry(no).or_default().push(Due {
                    body: Arc::clone(&link.body),
                    byte,
                    at,
                    lsn,
                });
            }
        }
        Ok(())
    }

    /// Takes over what a record of the last checkpoint keeps.
    pub(crate) fn redo_kept(&self, link: &Link, dues: &mut Dues) -> Result<(), StoreError> {
        let damaged = || StoreError::Corrupt {
            what: "a record",
            at: link.at.get(),
            object: None,
        };
        for placed in decode_body(&link.body, link.header.deltas) {
            let placed = placed.map_err(|_| damaged())?;
            if let Delta::Kept { lsn, byte, .. } = placed.delta {
                let at = u32::try_from(placed.at + KEPT + PREFIX).map_err(|_| damaged())?;
                dues.entry(placed.object).or_default().push(Due {
                    body: Arc::clone(&link.body),
                    byte,
                    at,
                    lsn,
                });
            }
        }
        Ok(())
    }

    /// Says whether the delta changes an object; `Ok(None)` when it contradicts the state.
    fn redo_at_once(
        &self,
        placed: &Placed<'_>,
        lsn: Lsn,
        byte: u64,
    ) -> Result<Option<bool>, StoreError> {
        let no = placed.object;
        let done = |redone: Option<()>| redone.map(|()| false);
        match &placed.delta {
            Delta::Inode(bytes) => self.segments.lock().add_live(byte, bytes.len() as u64, lsn),
            Delta::Extent {
                extent: Mapped::Own(own),
                ..
            } => {
                self.segments
                    .lock()
                    .add_live(own.addr.byte(), own.bytes(), own.born);
            }
            Delta::Free => self.change_orphans(no, false)?,
            Delta::Head(_)
            | Delta::Attributes(_)
            | Delta::Extent { .. }
            | Delta::Hole { .. }
            | Delta::EntrySet { .. }
            | Delta::EntryGone { .. } => {}
            Delta::Orphan(orphan) => return self.change_orphans(no, *orphan).map(|()| Some(false)),
            Delta::Note { piece, value } => {
                return self
                    .redo_note(no, *piece, Some(value))
                    .map(|()| Some(false));
            }
            Delta::NoteGone { piece } => {
                return self.redo_note(no, *piece, None).map(|()| Some(false));
            }
            Delta::SharedSet { id, shared } => {
                return self
                    .redo_shared(*id, &Logged::Set(shared.clone()))
                    .map(done);
            }
            Delta::SharedCount { id, count } => {
                return self.redo_shared(*id, &Logged::Count(*count)).map(done);
            }
            Delta::SharedGone { id } => return self.redo_shared(*id, &Logged::Gone).map(done),
            // What a checkpoint keeps is taken from the last one only.
            Delta::Page { .. } | Delta::Roots(_) | Delta::Kept { .. } | Delta::Ignored => {
                return Ok(Some(false));
            }
        }
        Ok(Some(true))
    }
}

/// One object while its changes are made, and what that does to the store's tables.
pub(crate) struct Redone<'s> {
    src: &'s Reader,
    no: ObjectNo,
    /// `None`: it is not there.
    pub(crate) state: Option<State>,
    /// What has come to live beside what the log's own deltas say.
    pub(crate) born: Vec<Extent>,
    pub(crate) freed: Vec<Freed>,
    /// What the inode map has to say from now on, if that is new.
    pub(crate) map: Option<Option<Home>>,
}

impl<'s> Redone<'s> {
    pub(crate) fn new(src: &'s Reader, no: ObjectNo, state: Option<State>) -> Self {
        Self {
            src,
            no,
            state,
            born: Vec::new(),
            freed: Vec::new(),
            map: None,
        }
    }

    /// Makes one change.
    pub(crate) fn redo(&mut self, due: &Due) -> Result<(), StoreError> {
        let damaged = StoreError::Corrupt {
            what: "a record",
            at: due.byte / SECTOR,
            object: Some(self.no),
        };
        let placed = due
            .delta()
            .and_then(|delta| decode_body(delta, 1).next())
            .and_then(Result::ok);
        let Some(placed) = placed else {
            return Err(damaged);
        };
        self.apply(&placed.delta, due.lsn, due.byte)?.ok_or(damaged)
    }

    /// `Ok(None)` when the delta contradicts the state.
    fn apply(&mut self, delta: &Delta<'_>, lsn: Lsn, byte: u64) -> Result<Option<()>, StoreError> {
        match delta {
            Delta::Inode(bytes) => {
                let home = Home {
                    byte,
                    len: bytes.len() as u32,
                    crc: crc(bytes),
                    lsn,
                };
                match State::decode(self.no, Some(home), bytes) {
                    Some(state) => self.inode(state, home)?,
                    None => return Ok(None),
                }
            }
            Delta::Head(bytes) => {
                return Ok(State::decode(self.no, None, bytes).and_then(|state| self.head(state)));
            }
            Delta::Attributes(bytes) => {
                let (Some(state), Some(core)) = (&mut self.state, Core::decode(bytes)) else {
                    return Ok(None);
                };
                state.unfolded = true;
                return Ok(state.take_core(core));
            }
            Delta::Extent { block, extent } => self.extent(*block, extent)?,
            Delta::Hole { block, count } => self.hole(*block, *count)?,
            Delta::EntrySet {
                cookie,
                child,
                kind,
                name,
            } => {
                let entry = Entry {
                    child: *child,
                    kind: *kind,
                    name: name.clone(),
                };
                return self.entry(*cookie, Some(entry));
            }
            Delta::EntryGone { cookie } => return self.entry(*cookie, None),
            Delta::Free => {
                self.drop_all()?;
                self.map = Some(None);
            }
            _ => {}
        }
        Ok(Some(()))
    }

    /// Gives back all of what is there.
    fn drop_all(&mut self) -> Result<(), StoreError> {
        if let Some(mut old) = self.state.take() {
            old.drop_content(self.src, self.no, &mut self.freed)?;
            self.freed.extend(old.home.map(Freed::home));
        }
        Ok(())
    }

    fn inode(&mut self, mut state: State, home: Home) -> Result<(), StoreError> {
        match &mut self.state {
            Some(old) if same_tree(&old.content, &state.content) => {
                state.content = std::mem::replace(&mut old.content, Content::None);
                self.freed.extend(old.home.map(Freed::home));
            }
            _ => {
                self.drop_all()?;
                self.born.extend(state.few_extents().cloned());
            }
        }
        self.state = Some(state);
        self.map = Some(Some(home));
        Ok(())
    }

    fn head(&mut self, mut state: State) -> Option<()> {
        match &mut self.state {
            Some(old) => {
                old.take_core(state.core)?;
                old.links = state.links;
                old.xattrs = state.xattrs;
                old.unfolded = true;
            }
            None => {
                state.logged = true;
                self.state = Some(state);
            }
        }
        Some(())
    }

    fn extent(&mut self, block: u64, extent: &Mapped) -> Result<(), StoreError> {
        if self.state.is_none() {
            // A new object whose whole record follows in the same batch brings its extents with it.
            self.freed
                .extend(extent.own().map(|_| Freed::extent(extent)));
            return Ok(());
        }
        let (src, no) = (self.src, self.no);
        self.blocks(|blocks, freed| {
            blocks
                .extents
                .replace(src, no, block, extent.clone(), freed)?;
            blocks.extents.outgrow(src, no)
        })
    }

    fn hole(&mut self, block: u64, count: u64) -> Result<(), StoreError> {
        // A new object whose whole record follows in the same batch brings its holes with it.
        if self.state.is_none() || bug(Bug::HolesNotRedone) {
            return Ok(());
        }
        let (src, no) = (self.src, self.no);
        self.blocks(|blocks, freed| blocks.extents.remove(src, no, block, count, freed))
    }

    fn blocks(
        &mut self,
        change: impl FnOnce(&mut Blocks, &mut Vec<Freed>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let Some(state) = self
            .state
            .as_mut()
            .filter(|state| state.core.kind == FileType::File)
        else {
            return Err(StoreError::Corrupt {
                what: "a delta in a record",
                at: 0,
                object: Some(self.no),
            });
        };
        state.is_in_blocks();
        change(state.blocks(), &mut self.freed)?;
        state.pages_freed(&mut self.freed);
        state.unfolded = true;
        Ok(())
    }

    fn entry(&mut self, cookie: u64, entry: Option<Entry>) -> Result<Option<()>, StoreError> {
        let Some(state) = &mut self.state else {
            return Ok(None);
        };
        let Content::Dir(dir) = &mut state.content else {
            return Ok(None);
        };
        match entry {
            Some(entry) => dir.set(self.src, self.no, cookie, entry)?,
            None => dir.remove(self.src, self.no, cookie)?,
        };
        dir.changed.clear();
        state.pages_freed(&mut self.freed);
        state.unfolded = true;
        Ok(Some(()))
    }
}

fn same_tree(old: &Content, new: &Content) -> bool {
    match (old, new) {
        (
            Content::Blocks(Blocks {
                extents: Extents::Tree(a),
                ..
            }),
            Content::Blocks(Blocks {
                extents: Extents::Tree(b),
                ..
            }),
        )
        | (
            Content::Dir(Dir {
                entries: Entries::Tree(a),
                ..
            }),
            Content::Dir(Dir {
                entries: Entries::Tree(b),
                ..
            }),
        ) => a.root().is_some() && a.root() == b.root(),
        _ => false,
    }
}
