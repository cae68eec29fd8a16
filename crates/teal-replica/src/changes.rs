//! Recording what changes here, in the batch of the change.
//!
//! # Guarantees
//! 1. A component that the server does not have is dirty, with the position in history at its first
//!    change as its base.
//! 2. A file that is only appended to keeps a *tail* in its note, until something else is done to
//!    its content.
//! 3. What was made and removed between two flushes leaves no trace.
//! 4. A note is written into the batch of the change it tells of, so it is durable exactly when the
//!    change is.

use super::note::{AppendedTail, DirtyContent, links_of};
use super::{ObjectNote, Replica, residency};
use crate::seeded::{Bug, bug};
use teal_log::{Cost, LockedObjects, NewObject, StoreError};
use teal_types::ranges::{ByteRanges, CONTENT_END};
use teal_types::{CommitSeq, ObjectNo};
use teal_volume::{ChangeBase, ChangeRecorder, ObjectChange};

/// Changed content is noted in blocks, so that a small change costs the server as little.
const BLOCK: u64 = 4 << 10;
/// Writes at the end of a file are noted in pieces of this size, so that a row of appends rarely
/// changes the note. Nothing is sent of the part behind the end.
const GRAIN: u64 = 256 << 10;
/// The most ranges of changed content; beyond, the smallest gaps are sent too.
const DIRTY_MAX: usize = 64;
/// Bytes by which a note may grow in a change of its own.
const NOTE_GROWTH: usize = 4096;

/// Returns up to where content is noted that has changed up to `to`.
fn noted_end(to: u64, size: u64) -> u64 {
    // Ends inside of the file are exact to a block; the end of the file moves with every append.
    to.next_multiple_of(if to >= size { GRAIN } else { BLOCK })
}

impl ChangeRecorder for Replica {
    fn with_record(&self, cost: Cost) -> Cost {
        cost.with_notes(2, 2048)
    }

    fn create(
        &self,
        locked: &mut LockedObjects<'_>,
        new: NewObject,
    ) -> Result<ObjectNo, StoreError> {
        let no = self.next_number(locked)?;
        locked.create_as(no, new)?;
        // A new object is sent whole, so its components are not noted one by one.
        self.change_note(locked, no, |_, note, _| {
            note.dirty.created = true;
            Ok(())
        })?;
        Ok(no)
    }

    fn record(
        &self,
        locked: &mut LockedObjects<'_>,
        no: ObjectNo,
        change: ObjectChange<'_>,
    ) -> Result<(), StoreError> {
        match change {
            ObjectChange::Data { from, to, .. } | ObjectChange::Append { from, to, .. } => {
                debug_assert!(from <= to, "a range of content is the wrong way round");
                self.count_queued(to - from);
            }
            ObjectChange::Truncate { .. } | ObjectChange::Gone => self.mark_backlog_rough(),
            ObjectChange::Attributes | ObjectChange::Xattr(_) | ObjectChange::Names => {}
        }
        if matches!(change, ObjectChange::Gone) {
            return self.record_removal(locked, no);
        }
        self.change_note(locked, no, |locked, note, position| {
            // A created object is sent whole; only its absent content is noted.
            if note.dirty.created {
                absorb_into_new(note, change);
                return Ok(());
            }
            let is_content = matches!(
                change,
                ObjectChange::Data { .. }
                    | ObjectChange::Append { .. }
                    | ObjectChange::Truncate { .. }
            );
            let base = if is_content && note.behind_since.is_none() {
                self.settled_content().base(no, position)
            } else {
                position
            };
            record_change(locked, no, note, change, base);
            Ok(())
        })
    }

    fn awaits_name(&self, locked: &LockedObjects<'_>, no: ObjectNo) -> Result<bool, StoreError> {
        self.is_displaced(locked, no)
    }

    fn on_replaced(&self, old: ObjectNo, new: ObjectNo) {
        self.drive_set().hand_on_affinity(old, new);
        self.hand_on_pin(old, new);
    }

    fn on_moved(&self, no: ObjectNo) {
        self.queue_pinned(no);
    }

    fn after_rename(&self) -> Result<(), StoreError> {
        self.apply_pin_successions()
    }
}

impl Replica {
    /// Changes the note of a locked object, with the position that its changes from now on are made
    /// at.
    fn change_note(
        &self,
        locked: &mut LockedObjects<'_>,
        no: ObjectNo,
        change: impl FnOnce(&LockedObjects<'_>, &mut ObjectNote, CommitSeq) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let before = self.note_of(no)?;
        let mut note = before.clone();
        // A state that could not be installed here was not seen, although the position has passed
        // it.
        let position = note.behind_since.unwrap_or(self.position());
        change(locked, &mut note, position)?;
        // Most changes of dirty content change nothing in the note: then nothing is written.
        if note != before {
            self.set_note(locked, no, &note)?;
            if note.is_ours() {
                self.becomes_dirty(self.monotonic());
            }
        }
        Ok(())
    }

    fn record_removal(
        &self,
        locked: &mut LockedObjects<'_>,
        no: ObjectNo,
    ) -> Result<(), StoreError> {
        self.change_note(locked, no, |_, note, _| {
            if bug(Bug::RemovalNotNoted) {
                *note = ObjectNote::default();
                return Ok(());
            }
            note_removal(note);
            if note.is_empty() {
                // The server never hears of it.
                self.drive_set().object_ended(no);
            }
            Ok(())
        })
    }

    /// Changes the note of an object that may be gone, in an operation of its own. The change is
    /// told how large the object is here, and the note may grow by [`NOTE_GROWTH`] bytes. The
    /// change frees space in the end, so it may use the reserve.
    pub(crate) fn rewrite_note(
        &self,
        no: ObjectNo,
        change: impl FnOnce(&mut ObjectNote, u64),
    ) -> Result<(), StoreError> {
        let note_bytes = self.note_of(no)?.encode().len() + NOTE_GROWTH;
        let op = self.begin_operation(Cost::note().with_note(note_bytes).freeing())?;
        // If the object is gone, its note alone is changed.
        let locked = op.lock(&[no]).ok();
        // The note may have changed until the object was locked.
        let mut note = self.note_of(no)?;
        let size = locked.as_ref().map_or(0, |locked| locked.attr(no).size);
        change(&mut note, size);
        let bytes = (!note.is_empty()).then(|| note.encode());
        op.set_note(no, bytes.as_deref())
    }

    /// Sets the note of an object under an operation.
    pub(crate) fn set_note(
        &self,
        locked: &LockedObjects<'_>,
        no: ObjectNo,
        note: &ObjectNote,
    ) -> Result<(), StoreError> {
        residency::check(note, &locked.attr(no));
        let bytes = (!note.is_empty()).then(|| note.encode());
        locked.set_note(no, bytes.as_deref())
    }
}

/// Notes a change of an object that the server knows.
fn record_change(
    locked: &LockedObjects<'_>,
    no: ObjectNo,
    note: &mut ObjectNote,
    change: ObjectChange<'_>,
    position: CommitSeq,
) {
    let is_first = !note.is_ours();
    match change {
        ObjectChange::Attributes => drop(note.dirty.attributes.get_or_insert(position)),
        ObjectChange::Data { from, to, base } | ObjectChange::Append { from, to, base } => {
            // The first change of clean content decides whether the change can be a tail.
            let is_first_of_content = note.dirty.data.is_none();
            let dirty = dirty_content(note, position);
            // A tail stays a tail only while every change since its begin is an append.
            match change {
                ObjectChange::Append { .. } if is_first_of_content => {
                    dirty.tail = Some(AppendedTail::open(from, from));
                }
                ObjectChange::Append { .. } => {}
                _ if bug(Bug::RewriteTakenForAppend) => {}
                _ => dirty.tail = None,
            }
            let end = noted_end(to, locked.attr(no).size);
            dirty.ranges.add(from / BLOCK * BLOCK, end);
            // Many ranges become fewer and larger ones: more is sent, but the note stays small.
            dirty.ranges.coarsen_to(DIRTY_MAX);
            rebase_content(dirty, base, is_first);
            // The new content is here, whatever was absent before.
            note.absent.remove(from, to);
        }
        ObjectChange::Truncate { size, base } => {
            let dirty = dirty_content(note, position);
            dirty.least_size = size.min(dirty.least_size);
            // A file that was cut is not appended to any more.
            dirty.tail = None;
            rebase_content(dirty, base, is_first);
            note.absent.remove(size, CONTENT_END);
        }
        ObjectChange::Xattr(name) => {
            let xattrs = &mut note.dirty.xattrs;
            // The base of the first change counts: later ones were made without seeing more.
            if !xattrs.iter().any(|(known, _)| known == name) {
                xattrs.push((name.to_vec(), position));
            }
        }
        ObjectChange::Names => {
            if note.dirty.links.is_none() {
                note.dirty.links = Some((position, links_of(locked, no)));
            }
        }
        ObjectChange::Gone => {}
    }
}

/// Returns the dirty content of a note, which begins at the position if there was none.
fn dirty_content(note: &mut ObjectNote, position: CommitSeq) -> &mut DirtyContent {
    note.dirty.data.get_or_insert_with(|| DirtyContent {
        base: position,
        least_size: u64::MAX,
        ranges: ByteRanges::default(),
        tail: None,
    })
}

/// Corrects the base of dirty content by what the author of a change had seen.
fn rebase_content(dirty: &mut DirtyContent, base: ChangeBase, is_first: bool) {
    // With two bases, the older one is safe: it shows a conflict rather than hides it.
    dirty.base = match base {
        ChangeBase::Given(commit) => dirty.base.min(commit),
        ChangeBase::Installed(commit) if is_first => dirty.base.max(commit),
        ChangeBase::Position | ChangeBase::Installed(_) => dirty.base,
    };
}

/// Notes a change of an object that is new: all of it is dirty anyway.
fn absorb_into_new(note: &mut ObjectNote, change: ObjectChange<'_>) {
    match change {
        ObjectChange::Data { from, to, .. } | ObjectChange::Append { from, to, .. } => {
            debug_assert!(from <= to);
            // The whole file will be sent; only absent parts must be known, to fetch them before.
            note.absent.remove(from, to);
        }
        ObjectChange::Truncate { size, .. } => note.absent.remove(size, CONTENT_END),
        ObjectChange::Attributes
        | ObjectChange::Xattr(_)
        | ObjectChange::Names
        | ObjectChange::Gone => {}
    }
}

/// Notes that the object is given back: only that the server must hear of it is left.
fn note_removal(note: &mut ObjectNote) {
    note.absent = ByteRanges::default();
    note.unlisted = false;
    if note.dirty.created && note.in_flight.is_none() {
        // The server never heard of it.
        *note = ObjectNote {
            needs_look: note.needs_look,
            ..ObjectNote::default()
        };
        return;
    }
    // The names it had are kept: the server must know which of them to remove.
    let first = note.dirty.first_base();
    let links = note.dirty.links.take();
    note.dirty = super::note::UnsentComponents {
        gone: links.is_some(),
        links,
        ..Default::default()
    };
    note.dirty.removed_since(first);
}
