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
use crate::format::extent::{Extent, Mapped};
use crate::format::imap::Home;
use crate::format::inode::{Core, Entry};
use crate::object::deferred::DeferredDelta;
use crate::object::directory::{Dir, Entries};
use crate::object::extents::Extents;
use crate::object::state::{Blocks, Content, State};
use crate::seeded::{Bug, bug};
use crate::tree::freed::Freed;
use crate::tree::reader::Reader;
use teal_types::{FileType, Lsn, ObjectNo, SECTOR};

/// One object while its changes are made, and what that does to the store's tables.
pub(crate) struct ObjectRedo<'s> {
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

impl<'s> ObjectRedo<'s> {
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
    pub(crate) fn redo(&mut self, due: &DeferredDelta) -> Result<(), StoreError> {
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
