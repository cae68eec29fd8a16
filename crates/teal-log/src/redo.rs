//! Roll-forward: applies the deltas of a committed record to the state as the checkpoint left it.
//!
//! # Invariants
//! 1. Redone, a batch leaves the state that sealing it left: the same maps, the same usage, byte for byte.
//! 2. Counts of shared extents are what the batch says; what the files' own deltas take away does not change them.
//! 3. Every object a delta touches stays in memory until the next checkpoint folds it.

use crate::codec::COUNTER_LIMIT;
use crate::error::StoreError;
use crate::extents::{Extents, Freed};
use crate::format::crc;
use crate::format::delta::{Delta, Placed, decode_body};
use crate::format::extent::Mapped;
use crate::format::imap::Home;
use crate::format::inode::{Core, Entry};
use crate::object::{Blocks, Content, Object, ObjectRef, State};
use crate::open::Link;
use crate::seeded::{Bug, bug};
use crate::shared::Logged;
use crate::store::Store;
use std::sync::atomic::Ordering::Relaxed;
use teal_types::{FileType, Lsn, ObjectNo, SECTOR};

impl Store {
    /// Redoes a record; `is_entry`: the record before lies in another segment.
    pub(crate) fn redo(&self, link: &Link, is_entry: bool) -> Result<(), StoreError> {
        {
            let mut segments = self.segments.lock();
            if is_entry {
                segments.start_anew(link.at);
            }
            segments.enter(link.at, link.header.seq);
        }
        let damaged = || StoreError::Corrupt { what: "a record", at: link.at.get(), object: None };
        let body_byte = link.at.byte() + SECTOR * (1 + u64::from(link.header.payload));
        for placed in decode_body(&link.body, link.header.deltas) {
            let placed = placed.map_err(|_| damaged())?;
            let lsn = Lsn::new(link.header.lsn.get() + u64::from(placed.lsn_offset));
            self.next_lsn.fetch_max(lsn.get() + 1, Relaxed);
            if placed.object.get() >= COUNTER_LIMIT {
                return Err(damaged());
            }
            self.next_object.fetch_max(placed.object.get() + 1, Relaxed);
            self.redo_one(&placed, lsn, body_byte + placed.at as u64)?.ok_or_else(damaged)?;
        }
        Ok(())
    }

    /// `Ok(None)` when the delta contradicts the state.
    fn redo_one(&self, placed: &Placed<'_>, lsn: Lsn, byte: u64) -> Result<Option<()>, StoreError> {
        let no = placed.object;
        match &placed.delta {
            Delta::Inode(bytes) => {
                let home = Home { byte, len: bytes.len() as u32, crc: crc(bytes), lsn };
                let Some(state) = State::decode(no, Some(home), bytes) else { return Ok(None) };
                self.redo_inode(no, state, home)?;
            }
            Delta::Head(bytes) => {
                let Some(state) = State::decode(no, None, bytes) else { return Ok(None) };
                return self.redo_head(no, state);
            }
            Delta::Attributes(bytes) => {
                let (Some(object), Some(core)) = (self.known(no)?, Core::decode(bytes)) else { return Ok(None) };
                if object.state.write().take_core(core).is_none() {
                    return Ok(None);
                }
                self.keep(&object);
            }
            Delta::Extent { block, extent } => self.redo_extent(no, *block, extent)?,
            Delta::Hole { block, count } => {
                // A new object whose whole record follows in the same batch brings its holes with it.
                let Some(object) = self.known(no)? else { return Ok(Some(())) };
                if bug(Bug::HolesNotRedone) {
                    return Ok(Some(()));
                }
                let mut freed = Vec::new();
                self.blocks_of(
                    &object,
                    |blocks, freed| blocks.extents.remove(&self.reader, no, *block, *count, freed),
                    &mut freed,
                )?;
                self.account_redone(&freed);
            }
            Delta::EntrySet { cookie, child, kind, name } => {
                let entry = Entry { child: *child, kind: *kind, name: name.clone() };
                return self.redo_entry(no, *cookie, Some(entry));
            }
            Delta::EntryGone { cookie } => return self.redo_entry(no, *cookie, None),
            Delta::Free => self.redo_free(no)?,
            Delta::Orphan(orphan) => self.change_orphans(no, *orphan)?,
            Delta::Note { piece, value } => self.redo_note(no, *piece, Some(value))?,
            Delta::NoteGone { piece } => self.redo_note(no, *piece, None)?,
            Delta::SharedSet { id, shared } => return self.redo_shared(*id, &Logged::Set(shared.clone())),
            Delta::SharedCount { id, count } => return self.redo_shared(*id, &Logged::Count(*count)),
            Delta::SharedGone { id } => return self.redo_shared(*id, &Logged::Gone),
            Delta::Page { .. } | Delta::Roots(_) | Delta::Ignored => {}
        }
        Ok(Some(()))
    }

    fn known(&self, no: ObjectNo) -> Result<Option<ObjectRef>, StoreError> {
        match self.object(no) {
            Ok(object) => Ok(Some(object)),
            Err(StoreError::NotFound(_)) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn keep(&self, object: &ObjectRef) {
        let mut state = object.state.write();
        state.unfolded = true;
        self.unfolded.lock().insert(object, &state);
    }

    fn redo_inode(&self, no: ObjectNo, mut state: State, home: Home) -> Result<(), StoreError> {
        let mut freed = Vec::new();
        let existing = self.known(no)?;
        if let Some(object) = &existing {
            let mut old = object.state.write();
            if let Some(home) = old.home {
                freed.push(Freed::home(home));
            }
            if same_tree(&old.content, &state.content) {
                state.content = std::mem::replace(&mut old.content, Content::None);
            } else {
                old.drop_content(&self.reader, no, &mut freed)?;
                self.add_extents(&state);
            }
            *old = state;
        } else {
            self.add_extents(&state);
            self.table.add(Object::new(no, state, 0));
            self.objects.fetch_add(1, Relaxed);
        }
        self.segments.lock().add_live(home.byte, u64::from(home.len), home.lsn);
        self.account_redone(&freed);
        self.imap.write().set(no, Some(home));
        self.unfolded.lock().remove(no);
        Ok(())
    }

    fn add_extents(&self, state: &State) {
        let mut segments = self.segments.lock();
        for extent in state.few_extents() {
            segments.add_live(extent.addr.byte(), extent.bytes(), extent.born);
        }
    }

    fn redo_head(&self, no: ObjectNo, state: State) -> Result<Option<()>, StoreError> {
        let object = match self.known(no)? {
            Some(object) => {
                let mut old = object.state.write();
                if old.take_core(state.core).is_none() {
                    return Ok(None);
                }
                old.links = state.links;
                old.xattrs = state.xattrs;
                drop(old);
                object
            }
            None => {
                self.objects.fetch_add(1, Relaxed);
                self.table.add(Object::new(no, state, 0))
            }
        };
        object.state.write().logged = true;
        object.state.write().head_changed = false;
        self.keep(&object);
        Ok(Some(()))
    }

    fn blocks_of(
        &self,
        object: &ObjectRef,
        change: impl FnOnce(&mut Blocks, &mut Vec<Freed>) -> Result<(), StoreError>,
        freed: &mut Vec<Freed>,
    ) -> Result<(), StoreError> {
        let mut state = object.state.write();
        if state.core.kind != FileType::File {
            return Err(StoreError::Corrupt { what: "a delta in a record", at: 0, object: Some(object.no) });
        }
        state.is_in_blocks();
        let done = change(state.blocks(), freed);
        state.pages_freed(freed);
        drop(state);
        self.keep(object);
        done
    }

    fn redo_extent(&self, no: ObjectNo, block: u64, extent: &Mapped) -> Result<(), StoreError> {
        // A new object whose whole record follows in the same batch brings its extents with it.
        let Some(object) = self.known(no)? else { return Ok(()) };
        let mut freed = Vec::new();
        if let Mapped::Own(own) = extent {
            self.segments.lock().add_live(own.addr.byte(), own.bytes(), own.born);
        }
        self.blocks_of(
            &object,
            |blocks, freed| {
                blocks.extents.replace(&self.reader, no, block, extent.clone(), freed)?;
                blocks.extents.outgrow(&self.reader, no)
            },
            &mut freed,
        )?;
        self.account_redone(&freed);
        Ok(())
    }

    fn redo_entry(&self, no: ObjectNo, cookie: u64, entry: Option<Entry>) -> Result<Option<()>, StoreError> {
        let Some(object) = self.known(no)? else { return Ok(None) };
        let mut freed = Vec::new();
        {
            let mut state = object.state.write();
            let Content::Dir(dir) = &mut state.content else { return Ok(None) };
            match entry {
                Some(entry) => dir.set(&self.reader, no, cookie, entry)?,
                None => dir.remove(&self.reader, no, cookie)?,
            };
            dir.changed.clear();
            state.pages_freed(&mut freed);
        }
        self.account_redone(&freed);
        self.keep(&object);
        Ok(Some(()))
    }

    fn redo_free(&self, no: ObjectNo) -> Result<(), StoreError> {
        if let Some(object) = self.known(no)? {
            let mut freed = Vec::new();
            let mut state = object.state.write();
            state.drop_content(&self.reader, no, &mut freed)?;
            if let Some(home) = state.home.take() {
                freed.push(Freed::home(home));
            }
            state.gone = true;
            drop(state);
            self.account_redone(&freed);
            self.objects.fetch_sub(1, Relaxed);
        }
        self.imap.write().set(no, None);
        self.unfolded.lock().remove(no);
        self.table.remove(no);
        self.change_orphans(no, false)
    }
}

fn same_tree(old: &Content, new: &Content) -> bool {
    match (old, new) {
        (
            Content::Blocks(Blocks { extents: Extents::Tree(a), .. }),
            Content::Blocks(Blocks { extents: Extents::Tree(b), .. }),
        )
        | (
            Content::Dir(crate::dir::Dir { entries: crate::dir::Entries::Tree(a), .. }),
            Content::Dir(crate::dir::Dir { entries: crate::dir::Entries::Tree(b), .. }),
        ) => a.root().is_some() && a.root() == b.root(),
        _ => false,
    }
}
