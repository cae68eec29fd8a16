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
use crate::tree::Tree;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use teal_types::{Name, ObjectNo, REPLICATED_LIMIT};

/// Most bytes of one note.
pub const NOTE_MAX: usize = PIECE * (1 << PIECE_BITS);

/// A piece of a note, with its key in the tree of notes.
type KeyedPiece = (u64, Box<[u8]>);

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
        // Locked for the whole change, so that no reader sees a mixture of pieces.
        let mut tree = self.notes.lock();
        let pages = tree.mem_pages();
        let changes = self.replace_pieces(&mut tree, no, &cut_note(note))?;
        charge.add_pages(pages, tree.mem_pages());
        let freed = tree.take_freed_space();
        // The segment table is locked without this tree.
        drop(tree);
        self.account_freed(&freed);
        self.log_notes(changes, charge);
        Ok(())
    }

    /// Lets an object's note be these pieces. Returns the changes by key: pieces that are the same
    /// stay, so that a small change of a large note writes little.
    fn replace_pieces(
        &self,
        tree: &mut Tree,
        no: ObjectNo,
        pieces: &[&[u8]],
    ) -> Result<Vec<(u64, NotePiece)>, StoreError> {
        let old = self.pieces_of(tree, no)?;
        let mut changes = Vec::new();
        for (at, piece) in pieces.iter().enumerate() {
            let key = note_key(no, at as u16);
            let is_same = old
                .get(at)
                .is_some_and(|(at, was)| *at == key && **was == **piece);
            if !is_same {
                tree.insert(&self.reader, key, piece)?;
                changes.push((key, Some((*piece).into())));
            }
        }
        // The note became shorter.
        for (key, _) in old.iter().skip(pieces.len()) {
            tree.remove(&self.reader, *key)?;
            changes.push((*key, None));
        }
        Ok(changes)
    }

    /// Returns the pieces of an object's note by key, in their order.
    fn pieces_of(&self, tree: &Tree, no: ObjectNo) -> Result<Vec<KeyedPiece>, StoreError> {
        let mut pieces = Vec::new();
        let last = (1 << PIECE_BITS) - 1;
        tree.range(
            &self.reader,
            note_key(no, 0),
            note_key(no, last),
            &mut |key, value| {
                pieces.push((key, value.into()));
                Ok(ControlFlow::Continue(()))
            },
        )?;
        Ok(pieces)
    }

    fn log_notes(&self, changes: Vec<(u64, NotePiece)>, charge: &SpaceCharge) {
        if changes.is_empty() {
            return;
        }
        let lsn = self.take_lsn();
        let mut bytes = 0;
        for (_, piece) in &changes {
            bytes += piece_bytes(piece);
        }
        self.open
            // Pieces that are replaced within the batch are written once.
            .add_notes(&*self.clock, lsn, changes, &mut |replaced| {
                bytes -= piece_bytes(replaced);
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
        let found = self.known_numbers(from, count)?;
        let mut alive = Vec::new();
        for no in found {
            // Removed objects may still be in memory or in the map.
            match self.attr(no) {
                Err(StoreError::NotFound(_)) => {}
                Err(e) => return Err(e),
                Ok(_) => alive.push(no),
            }
            if alive.len() >= count {
                break;
            }
        }
        Ok(alive)
    }

    /// Returns numbers of objects from one on: at least the first `count` of those that are alive,
    /// and some that are removed.
    fn known_numbers(
        &self,
        from: ObjectNo,
        count: usize,
    ) -> Result<BTreeSet<ObjectNo>, StoreError> {
        let objects = self.objects();
        let mut found: BTreeSet<ObjectNo> = objects.open.object_numbers().into_iter().collect();
        // Objects that the map does not know yet.
        found.extend(objects.unfolded.numbers());
        found.extend(objects.deferred.numbers(from));
        let imap = objects.inode_map.read();
        for (no, home) in imap.newer_than_tree() {
            if home.is_some() {
                found.insert(no);
            }
        }
        found.retain(|no| *no >= from);
        let mut seen = 0;
        imap.tree.scan(&objects.reader, from.get(), &mut |no, _| {
            found.insert(ObjectNo::new(no));
            seen += 1;
            Ok(if seen < count {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            })
        })?;
        Ok(found)
    }
}

/// Cuts a note into pieces. An empty note is a note, unlike none.
fn cut_note(note: Option<&[u8]>) -> Vec<&[u8]> {
    match note {
        Some([]) => vec![&[]],
        Some(note) => note.chunks(PIECE).collect(),
        None => Vec::new(),
    }
}

/// Returns the bytes that a changed piece takes in a batch.
fn piece_bytes(piece: &NotePiece) -> i64 {
    let len = piece.as_ref().map_or(0, |value| value.len());
    (NOTE_ITEM + len) as i64
}

/// Bytes of a note that [`Store::each_note`] shows.
pub const NOTE_HEAD: usize = 64;

#[cfg(test)]
mod tests;
