//! Notes: what those above the store keep about an object, or about the whole, changed in the same
//! batch as the object itself.
//!
//! # Guarantees
//! 1. *Atomic*: a note set under an operation is there after a crash exactly if that operation's
//!    other changes are.
//! 2. *Opaque*: the store never looks into one. A note may outlive its object and may be there
//!    before it.
//! 3. *Bounded*: at most [`NOTE_MAX`] bytes each; object numbers with notes lie below
//!    [`REPLICATED_LIMIT`].
//!
//! # How
//! A tree of the whole store, keyed by object number and piece: a note is cut into pieces of
//! [`PIECE`] bytes, all but the last full. What the open batch has changed is held per key until
//! sealing writes it as deltas.

use crate::error::StoreError;
use crate::format::note_key::{PIECE, PIECE_BITS, note_key, split_key};
use crate::object::objects::ObjectStore;
use crate::object::open_batch::NotePiece;
use crate::object::state::ObjectContent;
use crate::space::cost::NOTE_ITEM;
use crate::space::ledger::SpaceCharge;
use crate::store::handle::Store;
use crate::store::locked::LockedObjects;
use crate::store::op::StoreOperation;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use teal_types::{Name, ObjectNo, REPLICATED_LIMIT};

/// Most bytes of one note.
pub const NOTE_MAX: usize = PIECE * (1 << PIECE_BITS);

impl StoreOperation<'_> {
    /// Sets the note of an object, or of a number that is none; `None` removes it.
    ///
    /// # Errors
    /// [`StoreError::TooBig`], or errors of reading the notes.
    pub fn set_note(&self, no: ObjectNo, note: Option<&[u8]>) -> Result<(), StoreError> {
        self.objects().change_note(no, note, self.space_charge())
    }
}

impl LockedObjects<'_> {
    /// Sets a note as [`StoreOperation::set_note`] does, under the operation these objects are
    /// locked for.
    ///
    /// # Errors
    /// As there.
    pub fn set_note(&self, no: ObjectNo, note: Option<&[u8]>) -> Result<(), StoreError> {
        self.objects().change_note(no, note, self.space_charge())
    }

    /// Returns where a locked symbolic link leads.
    pub fn target(&self, no: ObjectNo) -> Vec<u8> {
        match &self.state_of(no).content {
            ObjectContent::Inline(target) => target.to_vec(),
            _ => Vec::new(),
        }
    }

    /// Returns the names of a locked object's extended attributes.
    pub fn xattr_names(&self, no: ObjectNo) -> Vec<Vec<u8>> {
        self.state_of(no)
            .xattrs
            .keys()
            .map(|name| name.to_vec())
            .collect()
    }

    /// Returns all names of a locked object.
    pub fn names(&self, no: ObjectNo) -> Vec<(ObjectNo, Name)> {
        self.state_of(no)
            .links
            .iter()
            .map(|link| (link.parent, link.name.clone()))
            .collect()
    }
}

impl ObjectStore {
    fn change_note(
        &self,
        no: ObjectNo,
        note: Option<&[u8]>,
        charge: &SpaceCharge,
    ) -> Result<(), StoreError> {
        if note.is_some_and(|note| note.len() > NOTE_MAX) || no.get() >= REPLICATED_LIMIT {
            return Err(StoreError::TooBig("a note"));
        }
        let pieces: Vec<&[u8]> = match note {
            // An empty note is a note, unlike none.
            Some([]) => vec![&[]],
            Some(note) => note.chunks(PIECE).collect(),
            None => Vec::new(),
        };
        // Locked for the whole change, so that no reader sees a mixture of pieces.
        let mut tree = self.notes.lock();
        let pages = tree.mem_pages();
        let mut old = Vec::new();
        tree.range(
            &self.reader,
            note_key(no, 0),
            note_key(no, (1 << PIECE_BITS) - 1),
            &mut |key, value| {
                old.push((key, value.into()));
                Ok(ControlFlow::Continue(()))
            },
        )?;
        let old: Vec<(u64, Box<[u8]>)> = old;
        let mut changes: Vec<(u64, NotePiece)> = Vec::new();
        // Pieces that are the same stay: a small change of a large note writes little.
        for (at, piece) in pieces.iter().enumerate() {
            let key = note_key(no, at as u16);
            if old
                .get(at)
                .is_none_or(|(at, was)| *at != key || **was != **piece)
            {
                tree.insert(&self.reader, key, piece)?;
                changes.push((key, Some((*piece).into())));
            }
        }
        // The note became shorter.
        for (key, _) in old.iter().skip(pieces.len()) {
            tree.remove(&self.reader, *key)?;
            changes.push((*key, None));
        }
        charge.add_pages(pages, tree.mem_pages());
        let freed = tree.take_freed_space();
        // The segment table is locked without this tree.
        drop(tree);
        self.account_freed(&freed);
        self.log_notes(changes, charge);
        Ok(())
    }

    fn log_notes(&self, changes: Vec<(u64, NotePiece)>, charge: &SpaceCharge) {
        if changes.is_empty() {
            return;
        }
        let lsn = self.take_lsn();
        let takes =
            |value: &NotePiece| (NOTE_ITEM + value.as_ref().map_or(0, |value| value.len())) as i64;
        let mut bytes: i64 = changes.iter().map(|(_, piece)| takes(piece)).sum();
        self.open
            // Pieces that are replaced within the batch are written once.
            .add_notes(&*self.clock, lsn, changes, &mut |replaced| {
                bytes -= takes(replaced);
            });
        self.ledger.add_to_batch(bytes);
        charge.add(bytes);
    }
}

impl Store {
    /// Returns the note of an object.
    ///
    /// # Errors
    /// Errors of reading the notes.
    pub fn note(&self, no: ObjectNo) -> Result<Option<Vec<u8>>, StoreError> {
        // Volumes without a server may have larger numbers, and no notes.
        if no.get() >= REPLICATED_LIMIT {
            return Ok(None);
        }
        let mut found: Option<Vec<u8>> = None;
        let tree = self.objects().notes.lock();
        tree.range(
            &self.objects().reader,
            note_key(no, 0),
            note_key(no, (1 << PIECE_BITS) - 1),
            &mut |_, value| {
                found.get_or_insert_default().extend_from_slice(value);
                Ok(ControlFlow::Continue(()))
            },
        )?;
        Ok(found)
    }

    /// Visits numbers that have notes, ascending, from one on, with the first [`NOTE_HEAD`] bytes
    /// of each note, until `visit` says enough. It must not come back to the notes.
    ///
    /// # Errors
    /// Errors of reading the notes.
    pub fn each_note(
        &self,
        from: ObjectNo,
        visit: &mut dyn FnMut(ObjectNo, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        if from.get() >= REPLICATED_LIMIT {
            return Ok(());
        }
        self.objects().notes.lock().scan(
            &self.objects().reader,
            note_key(from, 0),
            &mut |key, value| {
                // Only the first piece of each note.
                let (no, piece) = split_key(key);
                Ok(if piece == 0 {
                    visit(no, &value[..value.len().min(NOTE_HEAD)])
                } else {
                    ControlFlow::Continue(())
                })
            },
        )
    }

    /// Returns whether the open batch gives this object back: until it is committed, no other can
    /// have its number.
    pub fn is_leaving(&self, no: ObjectNo) -> bool {
        self.objects()
            .cache
            .get(no)
            .is_some_and(|object| object.state.read().gone)
    }

    /// Returns the number after the highest that any object here has had.
    pub fn next_number(&self) -> u64 {
        self.objects().numbers.next_object()
    }

    /// Returns the numbers of at most `count` objects, ascending, from one on. Objects made
    /// meanwhile may be missing.
    ///
    /// # Errors
    /// Errors of reading the inode map, or [`Store::checkpoint`].
    pub fn objects_from(&self, from: ObjectNo, count: usize) -> Result<Vec<ObjectNo>, StoreError> {
        let objects = self.objects();
        let mut open: BTreeSet<ObjectNo> = objects.open.object_numbers().into_iter().collect();
        // Objects that the map does not know yet.
        open.extend(objects.unfolded.numbers());
        open.extend(objects.deferred.numbers(from));
        let imap = objects.inode_map.read();
        let mut found: BTreeSet<ObjectNo> = open.into_iter().filter(|no| *no >= from).collect();
        found.extend(
            imap.newer_than_tree()
                .filter(|(no, home)| *no >= from && home.is_some())
                .map(|(no, _)| no),
        );
        let mut seen = 0;
        imap.tree
            .scan(&self.objects().reader, from.get(), &mut |no, _| {
                found.insert(ObjectNo::new(no));
                seen += 1;
                Ok(if seen < count {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                })
            })?;
        // Looking at objects takes the map's lock.
        drop(imap);
        let mut alive = Vec::new();
        for no in found {
            // Removed objects may still be in memory or in the map.
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
}

/// Bytes of a note that [`Store::each_note`] shows.
pub const NOTE_HEAD: usize = 64;

#[cfg(test)]
mod tests;
