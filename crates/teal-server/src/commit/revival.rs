//! Objects that others have removed and that live again, with the state history has of them.
//!
//! # Guarantees
//! 1. What lives again has the attributes, extended attributes and content of its last moment, and
//!    a name before the batch ends.
//! 2. Directories above it live again too; if history has none of them, it is in the root.
//! 3. *Beside its successor*: a file that another file has replaced under its name, as editors do
//!    when they save, and that was changed elsewhere meanwhile, lives again as its author has it,
//!    beside the file that replaced it, wherever that is now.
//!
//! # Successors
//! A replacing rename needs no record of its own: history has the commit in which the old file lost
//! its last name, and what that name led to after the same commit. A chain of saves is followed to
//! the file that lives.

use super::execution::{BatchExecution, END_OF_TIME};
use super::finish::number_name;
use crate::limits::SUCCESSORS_MAX;
use crate::refusal::Outcome;
use crate::rules::overlay::ContentOverlay;
use std::collections::HashSet;
use teal_meta::{ObjectRow, XattrRow};
use teal_proto::ConflictKind;
use teal_types::{CommitSeq, FileType, HardLink, Name, ObjectNo};

/// The last moment of an object.
struct LastState {
    row: ObjectRow,
    at: CommitSeq,
    link: Option<HardLink>,
}

impl LastState {
    fn last_name(&self, object: ObjectNo) -> Outcome<Name> {
        self.link
            .as_ref()
            .map_or_else(|| number_name(object), |link| Ok(link.name.clone()))
    }
}

impl BatchExecution<'_> {
    fn last_state(&mut self, object: ObjectNo) -> Outcome<Option<LastState>> {
        let Some((seq, newest)) = self.txn.object_at(object, END_OF_TIME)? else {
            return Ok(None);
        };
        let (row, at) = match newest {
            // Removed by this very batch: history does not know yet.
            Some(row) => (row, END_OF_TIME),
            None => {
                // The last state is the one before the end.
                let at = CommitSeq::new(seq.get().saturating_sub(1));
                match self.txn.object_at(object, at)? {
                    Some((_, Some(row))) => (row, at),
                    _ => return Ok(None),
                }
            }
        };
        // Looks for a name that led to the object at its end.
        let mut link = None;
        for name in self.txn.names_ever(object, at)? {
            if self
                .txn
                .entry_at(&name, at)?
                .is_some_and(|(_, led_to)| led_to == Some(object))
            {
                link = Some(name);
                break;
            }
        }
        Ok(Some(LastState { row, at, link }))
    }

    /// Makes the object live again in the given state, without a name yet.
    fn restore_object(&mut self, object: ObjectNo, last: &LastState) -> Outcome<()> {
        // Row, content and extended attributes come from the same commit.
        let rows = self.txn.extents_at(object, 0..last.row.size, last.at)?;
        for extent in ContentOverlay::of_history(&rows, last.row.size).extents() {
            self.txn.put_extent(object, &extent)?;
        }
        for (name, seq, value) in self.txn.xattrs_at(object, last.at)? {
            if let Some(value) = value {
                self.txn
                    .put_xattr(object, &name, Some(&XattrRow { value, seq }))?;
            }
        }
        // A replica may hold other content of this object.
        self.changed_anywhere.insert(object);
        self.set_object(object, Some(last.row.clone()))
    }

    /// Returns the live file that took the place of a removed one, with its present name.
    fn find_successor(&mut self, object: ObjectNo) -> Outcome<Option<(ObjectNo, HardLink)>> {
        let mut at = object;
        // Bounded, because a damaged history might lead in a circle.
        for _ in 0..SUCCESSORS_MAX {
            let Some(next) = self.replaced_by(at)? else {
                return Ok(None);
            };
            if self.is_live(next)? {
                // A directory or a link in its place is no later state of a file.
                let is_file = self
                    .object(next)?
                    .is_some_and(|row| row.kind == FileType::File);
                let link = self
                    .txn
                    .links_of(next)?
                    .into_iter()
                    .next()
                    .map(|(link, _)| link);
                return Ok(link.filter(|_| is_file).map(|link| (next, link)));
            }
            at = next;
        }
        Ok(None)
    }

    /// Returns what has had a name of an object since the very commit in which the object lost it
    /// and was gone.
    fn replaced_by(&mut self, object: ObjectNo) -> Outcome<Option<ObjectNo>> {
        // Only an object that is gone was replaced.
        let Some((end, None)) = self.txn.object_at(object, END_OF_TIME)? else {
            return Ok(None);
        };
        let before = CommitSeq::new(end.get().saturating_sub(1));
        for name in self.txn.names_ever(object, before)? {
            let led_to = |at| -> Outcome<Option<ObjectNo>> {
                Ok(self.txn.entry_at(&name, at)?.and_then(|(_, to)| to))
            };
            // The name led to the object until its end, and leads to another one since.
            if led_to(before)? == Some(object)
                && let Some(next) = led_to(end)?
            {
                return Ok(Some(next));
            }
        }
        Ok(None)
    }

    /// Makes an object live again that was replaced elsewhere and changed by the author of this
    /// batch. The object gets the state that the author has seen, and no name yet. Returns the
    /// object that replaced it; `None` if there is none, or if the author has changed only names.
    fn restore_replaced(&mut self, object: ObjectNo) -> Outcome<Option<(ObjectNo, HardLink)>> {
        let Some(seen) = self.author_seen.get(&object).copied() else {
            return Ok(None);
        };
        let Some(successor) = self.find_successor(object)? else {
            return Ok(None);
        };
        let Some((_, Some(row))) = self.txn.object_at(object, seen)? else {
            return Ok(None);
        };
        // Not as it was at its end: the machine that replaced it had seen that.
        let mut as_seen = LastState {
            row,
            at: seen,
            link: None,
        };
        self.differs_from_its_end(object, &mut as_seen)?;
        self.restore_object(object, &as_seen)?;
        Ok(Some(successor))
    }

    /// Notes what of a state that is about to be restored differs from the last one in history, so
    /// that history at this commit says what is restored, and no replica takes content that it has
    /// of the last state for this one.
    fn differs_from_its_end(&mut self, object: ObjectNo, restored: &mut LastState) -> Outcome<()> {
        let Some(end) = self.last_state(object)? else {
            return Ok(());
        };
        if end.row.data_seq != restored.row.data_seq {
            let size = end.row.size.max(restored.row.size);
            restored.row.data_seq = self.seq;
            self.changed_ranges
                .entry(object)
                .or_default()
                .insert_range(0, size);
        }
        let at_end = self.txn.xattrs_at(object, end.at)?;
        let as_seen = self.txn.xattrs_at(object, restored.at)?;
        for (name, _, value) in at_end {
            self.xattrs.entry((object, name)).or_insert(value);
        }
        for (name, ..) in as_seen {
            self.xattrs.entry((object, name)).or_insert(None);
        }
        Ok(())
    }

    fn note_replaced(&mut self, object: ObjectNo, (successor, name): (ObjectNo, &Name)) {
        let lost = format!("content of {name}, which another had replaced by a new file first");
        self.note_conflict(ConflictKind::Content, successor, Some(object), lost);
    }

    /// Makes an object live again that is about to get a name. Returns false if it never existed,
    /// because nothing can be done then.
    pub(super) fn revive_for_name(&mut self, object: ObjectNo, name: &Name) -> Outcome<bool> {
        if let Some((successor, link)) = self.restore_replaced(object)? {
            self.note_replaced(object, (successor, &link.name));
            return Ok(true);
        }
        let Some(last) = self.last_state(object)? else {
            self.note_unknown_object(object, &format!("the name {name}"));
            return Ok(false);
        };
        self.restore_object(object, &last)?;
        self.note_conflict(
            ConflictKind::Removal,
            object,
            None,
            format!("the removal of {name}, which was used elsewhere meanwhile"),
        );
        Ok(true)
    }

    pub(super) fn note_unknown_object(&mut self, object: ObjectNo, what: &str) {
        let lost = format!("{what}: the server has never had this object");
        self.note_conflict(ConflictKind::Removal, object, None, lost);
    }

    /// Makes a directory and its missing ancestors live again under their last names. Returns the
    /// directory, or the root if it never existed.
    pub(super) fn revive_directory(&mut self, dir: ObjectNo) -> Outcome<ObjectNo> {
        let mut chain: Vec<(ObjectNo, LastState)> = Vec::new();
        // Goes up to the first live directory; the set ends the walk in a damaged history.
        let mut seen = HashSet::new();
        let mut at = dir;
        while !self.is_dir(at)? {
            let known = if seen.insert(at) {
                self.last_state(at)?
            } else {
                None
            };
            // Only a directory can hold the name.
            let Some(last) = known.filter(|last| last.row.kind.is_dir()) else {
                at = ObjectNo::ROOT;
                break;
            };
            let parent = last.link.as_ref().map_or(ObjectNo::ROOT, |link| link.dir);
            chain.push((at, last));
            at = parent;
        }
        let mut parent = at;
        // Goes from the top down, because each directory is placed in the one above it.
        for (object, last) in chain.into_iter().rev() {
            self.restore_object(object, &last)?;
            let name = last.last_name(object)?;
            self.put_name(
                object,
                &HardLink {
                    dir: parent,
                    name: name.clone(),
                },
                self.now,
            )?;
            let lost = format!(
                "the removal of the directory {name}, into which something was put meanwhile"
            );
            self.note_conflict(ConflictKind::Removal, object, None, lost);
            parent = object;
        }
        Ok(parent)
    }

    /// Returns whether the author of this batch has removed the object, or saved over it, in an
    /// earlier batch. Large content may reach the server after a removal that followed it: that is
    /// no conflict, and the removal stands.
    fn was_removed_by_author(&mut self, object: ObjectNo) -> Outcome<bool> {
        let Some((end, None)) = self.txn.object_at(object, END_OF_TIME)? else {
            return Ok(false);
        };
        self.is_own_commit(end)
    }

    /// Makes sure that an object is live before its state changes. Returns false if it stays
    /// removed, and the change is dropped.
    pub(super) fn revive_for_change(&mut self, object: ObjectNo, what: &str) -> Outcome<bool> {
        if self.is_live(object)? {
            return Ok(true);
        }
        // The author itself wanted the object to go.
        if self.is_removed_here(object)? || self.was_removed_by_author(object)? {
            return Ok(false);
        }
        if let Some((successor, beside)) = self.restore_replaced(object)? {
            let link = self.free_name(&beside)?;
            self.add_name(&link, object, self.now)?;
            self.note_replaced(object, (successor, &beside.name));
            return Ok(true);
        }
        let Some(last) = self.last_state(object)? else {
            self.note_unknown_object(object, what);
            return Ok(false);
        };
        self.restore_object(object, &last)?;
        let name = last.last_name(object)?;
        // The directory that it was in may be gone, too.
        let dir = match &last.link {
            Some(link) => self.live_directory(link.dir)?,
            None => ObjectNo::ROOT,
        };
        self.put_name(
            object,
            &HardLink {
                dir,
                name: name.clone(),
            },
            self.now,
        )?;
        let lost = format!("the removal of {name}, which was changed elsewhere meanwhile");
        self.note_conflict(ConflictKind::Removal, object, None, lost);
        Ok(true)
    }
}
