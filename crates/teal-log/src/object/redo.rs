//! Roll-forward: applies the deltas of committed records to the state as the checkpoint left it.
//!
//! # Invariants
//! 1. Redone, a batch leaves the state that sealing it left: the same maps, the same usage, byte
//!    for byte.
//! 2. Counts of shared extents are what the batch says; what the files' own deltas take away does
//!    not change them.
//! 3. Every object that is newer than its record stays in memory until the next checkpoint folds
//!    it.
//!
//! # How
//! 1. [`Store::redo`] goes through a record when the store is opened: what it says of the store is
//!    done, and what it brings to the disk lives from now on. What it says of objects
//!    [waits](crate::object::deferred).
//! 2. [`ObjectRedo`] does that later, to one object.

use crate::error::StoreError;
use crate::format::checksum::crc;
use crate::format::delta::{Delta, decode_body};
use crate::format::extent::{Extent, MappedExtent};
use crate::format::imap::RecordHome;
use crate::format::inode::{DirectoryEntry, InodeCore};
use crate::object::deferred::DeferredDelta;
use crate::object::directory::{DirectoryContent, DirectoryEntries};
use crate::object::extents::FileExtents;
use crate::object::losses::DoubtfulContent;
use crate::object::state::{BlockContent, LoggedState, ObjectContent, ObjectState};
use crate::seeded::{Bug, bug};
use crate::tree::freed::FreedSpace;
use crate::tree::reader::CachedReader;
use teal_types::{FileType, Lsn, ObjectNo, SECTOR};

/// One object while its changes are made, and what that does to the store's tables.
pub(crate) struct ObjectRedo<'s> {
    src: &'s CachedReader,
    no: ObjectNo,
    /// `None`: it is not there.
    pub(crate) state: Option<ObjectState>,
    /// Extents that have come to live beside those in the log's own deltas.
    pub(crate) born: Vec<Extent>,
    pub(crate) freed: Vec<FreedSpace>,
    /// The new entry of the inode map, if there is one.
    pub(crate) map: Option<Option<RecordHome>>,
    /// What is not known of its content because records are lost.
    doubt: DoubtfulContent,
}

impl<'s> ObjectRedo<'s> {
    pub(crate) fn new(src: &'s CachedReader, no: ObjectNo, state: Option<ObjectState>) -> Self {
        Self {
            src,
            no,
            state,
            born: Vec::new(),
            freed: Vec::new(),
            map: None,
            doubt: DoubtfulContent::default(),
        }
    }

    /// Checks that no lost record can have changed the content, but for what was seen since.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    pub(crate) fn check_losses(&self) -> Result<(), StoreError> {
        self.doubt
            .check_content(self.src, self.no, self.state.as_ref())
    }

    /// Makes one change.
    pub(crate) fn redo_delta(&mut self, due: &DeferredDelta) -> Result<(), StoreError> {
        let damaged = StoreError::Corrupt {
            what: "a record",
            at: due.byte / SECTOR,
            object: Some(self.no),
        };
        // The body was decoded once at opening, so this delta is whole.
        let placed = due
            .delta_bytes()
            .and_then(|delta| decode_body(delta, 1).next())
            .and_then(Result::ok);
        let Some(placed) = placed else {
            return Err(damaged);
        };
        self.doubt
            .pass_losses(self.src, self.no, due.losses, self.state.as_ref())?;
        self.apply_delta(&placed.delta, due.lsn, due.byte)?
            .ok_or(damaged)?;
        self.doubt.note_change(&placed.delta, self.state.as_ref());
        Ok(())
    }

    /// Applies a delta. Returns `Ok(None)` when it contradicts the state.
    fn apply_delta(
        &mut self,
        delta: &Delta<'_>,
        lsn: Lsn,
        byte: u64,
    ) -> Result<Option<()>, StoreError> {
        match delta {
            Delta::Inode(bytes) => {
                let home = RecordHome {
                    byte,
                    len: bytes.len() as u32,
                    // The checksum is computed anew: the map will hold it.
                    crc: crc(bytes),
                    lsn,
                };
                return self.redo_inode(bytes, home);
            }
            Delta::Head(bytes) => return Ok(self.redo_head(bytes)),
            Delta::Attributes(bytes) => return Ok(self.redo_attributes(bytes)),
            Delta::Extent { block, extent } => self.redo_extent(*block, extent)?,
            Delta::Hole { block, count } => self.redo_hole(*block, *count)?,
            Delta::EntrySet {
                cookie,
                child,
                kind,
                name,
            } => {
                let entry = DirectoryEntry {
                    child: *child,
                    kind: *kind,
                    name: name.clone(),
                };
                return self.redo_entry(*cookie, Some(entry));
            }
            Delta::EntryGone { cookie } => return self.redo_entry(*cookie, None),
            Delta::Free => {
                // The space goes with the object.
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
            old.free_content(self.src, self.no, &mut self.freed)?;
            self.freed.extend(old.home.map(FreedSpace::of_home));
        }
        Ok(())
    }

    fn redo_inode(&mut self, record: &[u8], home: RecordHome) -> Result<Option<()>, StoreError> {
        let Some(mut state) = ObjectState::decode(self.no, Some(home), record) else {
            return Ok(None);
        };
        match &mut self.state {
            // The record has the roots of the tree that is in memory with its later changes: they
            // stay.
            Some(old) if same_tree(&old.content, &state.content) => {
                state.content = std::mem::replace(&mut old.content, ObjectContent::None);
                self.freed.extend(old.home.map(FreedSpace::of_home));
            }
            _ => {
                self.drop_all()?;
                self.born.extend(state.few_extents().cloned());
            }
        }
        self.state = Some(state);
        // The newest whole record is the object's home.
        self.map = Some(Some(home));
        Ok(Some(()))
    }

    fn redo_attributes(&mut self, bytes: &[u8]) -> Option<()> {
        // Attributes of an object that is not there contradict the log.
        let state = self.state.as_mut()?;
        let core = InodeCore::decode(bytes)?;
        state.logged = LoggedState::Deltas;
        state.take_core(core)
    }

    fn redo_head(&mut self, head: &[u8]) -> Option<()> {
        let mut state = ObjectState::decode(self.no, None, head)?;
        match &mut self.state {
            Some(old) => {
                // Another type under the same number contradicts the log.
                old.take_core(state.core)?;
                old.links = state.links;
                old.xattrs = state.xattrs;
                old.logged = LoggedState::Deltas;
            }
            // A head for an object without a record is the beginning of a new one.
            None => {
                state.logged = LoggedState::Deltas;
                self.state = Some(state);
            }
        }
        Some(())
    }

    fn redo_extent(&mut self, block: u64, extent: &MappedExtent) -> Result<(), StoreError> {
        if self.state.is_none() {
            // The whole record of a new object, later in the same batch, brings its extents with
            // it.
            self.freed
                .extend(extent.as_own().map(|_| FreedSpace::of_extent(extent)));
            return Ok(());
        }
        let src = self.src;
        let no = self.no;
        self.change_blocks(|blocks, freed| {
            blocks
                .extents
                .replace_range(src, no, block, extent.clone(), freed)?;
            blocks.extents.move_to_tree(src, no)
        })
    }

    fn redo_hole(&mut self, block: u64, count: u64) -> Result<(), StoreError> {
        // The whole record of a new object, later in the same batch, brings its holes with it.
        if self.state.is_none() || bug(Bug::HolesNotRedone) {
            return Ok(());
        }
        let src = self.src;
        let no = self.no;
        self.change_blocks(|blocks, freed| {
            blocks.extents.remove_range(src, no, block, count, freed)
        })
    }

    fn change_blocks(
        &mut self,
        change: impl FnOnce(&mut BlockContent, &mut Vec<FreedSpace>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let Some(state) = self
            .state
            .as_mut()
            // Only files have blocks.
            .filter(|state| state.core.kind == FileType::File)
        else {
            return Err(StoreError::Corrupt {
                what: "a delta in a record",
                at: 0,
                object: Some(self.no),
            });
        };
        // A whole record with inline content is no longer the newest state.
        state.move_to_blocks();
        change(state.blocks_mut(), &mut self.freed)?;
        state.take_freed_pages(&mut self.freed);
        state.logged = LoggedState::Deltas;
        Ok(())
    }

    fn redo_entry(
        &mut self,
        cookie: u64,
        entry: Option<DirectoryEntry>,
    ) -> Result<Option<()>, StoreError> {
        let Some(state) = &mut self.state else {
            return Ok(None);
        };
        let ObjectContent::Dir(dir) = &mut state.content else {
            return Ok(None);
        };
        match entry {
            Some(entry) => dir.set_entry(self.src, self.no, cookie, entry)?,
            None => dir.remove_entry(self.src, self.no, cookie)?,
        };
        // The log has these changes already.
        dir.changed.clear();
        state.take_freed_pages(&mut self.freed);
        state.logged = LoggedState::Deltas;
        Ok(Some(()))
    }
}

fn same_tree(old: &ObjectContent, new: &ObjectContent) -> bool {
    match (old, new) {
        (
            ObjectContent::Blocks(BlockContent {
                extents: FileExtents::Tree(a),
                ..
            }),
            ObjectContent::Blocks(BlockContent {
                extents: FileExtents::Tree(b),
                ..
            }),
        )
        | (
            ObjectContent::Dir(DirectoryContent {
                entries: DirectoryEntries::Tree(a),
                ..
            }),
            ObjectContent::Dir(DirectoryContent {
                entries: DirectoryEntries::Tree(b),
                ..
            }),
            // One root page on the disk means one content.
        ) => a.root().is_some() && a.root() == b.root(),
        _ => false,
    }
}
