//! Notes: what those above the store keep about an object, or about the whole, changed in the same batch as the object itself.
//!
//! # Guarantees
//! 1. *Atomic*: a note set under an operation is there after a crash exactly if that operation's other changes are.
//! 2. *Opaque*: the store never looks into one. A note may outlive its object and may be there before it.
//! 3. *Bounded*: at most [`NOTE_MAX`] bytes each; object numbers with notes lie below [`REPLICATED_LIMIT`].
//!
//! # How
//! A tree of the whole store, keyed by object number and piece: a note is cut into pieces of [`PIECE`] bytes, all but the last full. What the
//! open batch has changed is held per key until sealing writes it as deltas.

use crate::commit::layout::{Layout, NoRoom};
use crate::error::StoreError;
use crate::format::delta::Delta;
use crate::format::note_key::{PIECE, PIECE_BITS, key, parts};
use crate::object::state::Content;
use crate::seeded::{Bug, bug};
use crate::store::Store;
use crate::store::op::{Locked, Op};
use crate::tree::freed::Freed;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use teal_types::{Lsn, Name, ObjectNo, REPLICATED_LIMIT};

/// Most bytes of one note.
pub const NOTE_MAX: usize = PIECE * (1 << PIECE_BITS);

/// Header of the delta, and an item in a half full page.
const TAKES: usize = 64 + 2 * 16;

/// What the open batch changed: by key the piece, or that there is none any more.
#[derive(Debug, Default)]
pub(crate) struct Changed(BTreeMap<u64, (Piece, Lsn)>);

/// A piece, or that there is none.
type Piece = Option<Box<[u8]>>;

impl Changed {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn lsns(&self) -> impl Iterator<Item = Lsn> + '_ {
        self.0.values().map(|(_, lsn)| *lsn)
    }

    /// Lays the changes out as deltas.
    pub(crate) fn seal(&self, layout: &mut Layout<'_>) -> Result<(), NoRoom> {
        for (key, (value, lsn)) in self.0.iter().filter(|_| !bug(Bug::NoteNotRecorded)) {
            let (object, piece) = parts(*key);
            let len = value.as_ref().map_or(0, |value| value.len());
            let delta = match value {
                Some(value) => Delta::Note { piece, value },
                None => Delta::NoteGone { piece },
            };
            layout.delta(object, *lsn, &delta, 2 + len)?;
        }
        Ok(())
    }
}

/// What setting a note of so many bytes takes in the log, at most: for [`Cost`](crate::Cost).
pub const fn note_cost(bytes: usize) -> u64 {
    let pieces = bytes / PIECE + 2;
    (2 * bytes + pieces * (TAKES + 4096 / 4)) as u64
}

impl Op<'_> {
    /// Sets the note of an object, or of a number that is none; `None` removes it.
    ///
    /// # Errors
    /// [`StoreError::TooBig`], or what reading the notes met.
    pub fn set_note(&self, no: ObjectNo, note: Option<&[u8]>) -> Result<(), StoreError> {
        self.store().change_note(no, note)
    }
}

impl Locked<'_> {
    /// As [`Op::set_note`]: under the operation these objects are locked for.
    ///
    /// # Errors
    /// As there.
    pub fn set_note(&self, no: ObjectNo, note: Option<&[u8]>) -> Result<(), StoreError> {
        self.store.change_note(no, note)
    }

    /// Where a locked symbolic link leads.
    pub fn target(&self, no: ObjectNo) -> Vec<u8> {
        match &self.peek(no).content {
            Content::Inline(target) => target.to_vec(),
            _ => Vec::new(),
        }
    }

    /// The names of a locked object's extended attributes.
    pub fn xattr_names(&self, no: ObjectNo) -> Vec<Vec<u8>> {
        self.peek(no)
            .xattrs
            .keys()
            .map(|name| name.to_vec())
            .collect()
    }

    /// All names of a locked object.
    pub fn names(&self, no: ObjectNo) -> Vec<(ObjectNo, Name)> {
        self.peek(no)
            .links
            .iter()
            .map(|link| (link.parent, link.name.clone()))
            .collect()
    }
}

impl Store {
    fn change_note(&self, no: ObjectNo, note: Option<&[u8]>) -> Result<(), StoreError> {
        let store = self;
        if note.is_some_and(|note| note.len() > NOTE_MAX) || no.get() >= REPLICATED_LIMIT {
            return Err(StoreError::TooBig("a note"));
        }
        let pieces: Vec<&[u8]> = match note {
            Some([]) => vec![&[]],
            Some(note) => note.chunks(PIECE).collect(),
            None => Vec::new(),
        };
        let mut tree = store.notes.lock();
        let mut old = Vec::new();
        tree.range(
            &store.reader,
            key(no, 0),
            key(no, (1 << PIECE_BITS) - 1),
            &mut |key, value| {
                old.push((key, value.into()));
                Ok(ControlFlow::Continue(()))
            },
        )?;
        let old: Vec<(u64, Box<[u8]>)> = old;
        let mut changes: Vec<(u64, Piece)> = Vec::new();
        for (at, piece) in pieces.iter().enumerate() {
            let key = key(no, at as u16);
            if old
                .get(at)
                .is_none_or(|(at, was)| *at != key || **was != **piece)
            {
                tree.insert(&store.reader, key, piece)?;
                changes.push((key, Some((*piece).into())));
            }
        }
        for (key, _) in old.iter().skip(pieces.len()) {
            tree.remove(&store.reader, *key)?;
            changes.push((*key, None));
        }
        let freed: Vec<_> = tree.take_freed().into_iter().map(Freed::page).collect();
        drop(tree);
        store.account(&freed);
        store.log_notes(changes);
        Ok(())
    }

    fn log_notes(&self, changes: Vec<(u64, Piece)>) {
        if changes.is_empty() {
            return;
        }
        let lsn = self.next_lsn();
        let takes = |value: &Piece| (TAKES + value.as_ref().map_or(0, |value| value.len())) as i64;
        let mut gathered = 0;
        let mut open = self.open.lock();
        for (key, value) in changes {
            gathered += takes(&value);
            if let Some((before, _)) = open.notes.0.insert(key, (value, lsn)) {
                gathered -= takes(&before);
            }
        }
        let is_first = open.since.is_none();
        open.since.get_or_insert_with(|| self.clock.monotonic());
        drop(open);
        self.gathers(gathered);
        if is_first {
            self.first_change();
        }
    }

    /// The note of an object.
    ///
    /// # Errors
    /// What reading the notes met.
    pub fn note(&self, no: ObjectNo) -> Result<Option<Vec<u8>>, StoreError> {
        if no.get() >= REPLICATED_LIMIT {
            return Ok(None);
        }
        let mut found: Option<Vec<u8>> = None;
        let tree = self.notes.lock();
        tree.range(
            &self.reader,
            key(no, 0),
            key(no, (1 << PIECE_BITS) - 1),
            &mut |_, value| {
                found.get_or_insert_default().extend_from_slice(value);
                Ok(ControlFlow::Continue(()))
            },
        )?;
        Ok(found)
    }

    /// Visits numbers that have notes, ascending, from one on, with the first [`NOTE_HEAD`] bytes of each note, until `visit` says
    /// enough. It must not come back to the notes.
    ///
    /// # Errors
    /// What reading the notes met.
    pub fn each_note(
        &self,
        from: ObjectNo,
        visit: &mut dyn FnMut(ObjectNo, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        if from.get() >= REPLICATED_LIMIT {
            return Ok(());
        }
        self.notes
            .lock()
            .scan(&self.reader, key(from, 0), &mut |key, value| {
                let (no, piece) = parts(key);
                Ok(if piece == 0 {
                    visit(no, &value[..value.len().min(NOTE_HEAD)])
                } else {
                    ControlFlow::Continue(())
                })
            })
    }

    /// Whether the open batch gives this object back: until it is committed, no other can have its number.
    pub fn is_leaving(&self, no: ObjectNo) -> bool {
        self.table
            .get(no)
            .is_some_and(|object| object.state.read().gone)
    }

    /// The number after the highest that any object here has had.
    pub fn next_number(&self) -> u64 {
        self.next_object.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// The numbers of at most `count` objects, ascending, from one on. Objects made meanwhile may be missing.
    ///
    /// # Errors
    /// What reading the inode map met, or [`Store::checkpoint`].
    pub fn objects_from(&self, from: ObjectNo, count: usize) -> Result<Vec<ObjectNo>, StoreError> {
        let mut open: BTreeSet<ObjectNo> = self
            .open
            .lock()
            .objects
            .iter()
            .map(|object| object.no)
            .collect();
        open.extend(self.unfolded.lock().numbers());
        open.extend(self.deferred.numbers(from));
        let imap = self.imap.read();
        let mut found: BTreeSet<ObjectNo> = open.into_iter().filter(|no| *no >= from).collect();
        found.extend(
            imap.overlay()
                .filter(|(no, home)| *no >= from && home.is_some())
                .map(|(no, _)| no),
        );
        let mut seen = 0;
        imap.tree.scan(&self.reader, from.get(), &mut |no, _| {
            found.insert(ObjectNo::new(no));
            seen += 1;
            Ok(if seen < count {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            })
        })?;
        drop(imap);
        let mut alive = Vec::new();
        for no in found {
            match self.attr(no) {
                Err(StoreError::NotFound(_)) => {}
                attr => attr.map(|_| alive.push(no))?,
            }
            if alive.len() >= count {
                break;
            }
        }
        Ok(alive)
    }

    /// Redoes what a batch said of a note.
    pub(crate) fn redo_note(
        &self,
        no: ObjectNo,
        piece: u16,
        value: Option<&[u8]>,
    ) -> Result<(), StoreError> {
        let mut tree = self.notes.lock();
        match value {
            Some(value) => drop(tree.insert(&self.reader, key(no, piece), value)?),
            None => drop(tree.remove(&self.reader, key(no, piece))?),
        }
        let freed: Vec<_> = tree.take_freed().into_iter().map(Freed::page).collect();
        drop(tree);
        self.account(&freed);
        Ok(())
    }
}

/// Bytes of a note that [`Store::each_note`] shows.
pub const NOTE_HEAD: usize = 64;

#[cfg(test)]
mod tests;
