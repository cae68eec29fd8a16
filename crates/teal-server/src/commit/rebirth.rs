//! Objects that others have removed and that live again, with the state history has of them.
//!
//! # Guarantees
//! 1. What lives again has the attributes, extended attributes and content of its last moment, and a name before the batch ends.
//! 2. Directories above it live again too; if history has none of them, it is in the root.

use super::finish::number_name;
use super::work::{EVER, Work};
use crate::refusal::Outcome;
use crate::rules::canvas::Canvas;
use teal_meta::{ObjectRow, XattrRow};
use teal_proto::ConflictKind;
use teal_types::{CommitSeq, Link, Name, ObjectNo};

/// The last moment of an object.
struct Last {
    row: ObjectRow,
    at: CommitSeq,
    link: Option<Link>,
}

impl Last {
    fn name(&self, object: ObjectNo) -> Outcome<Name> {
        self.link.as_ref().map_or_else(|| number_name(object), |link| Ok(link.name.clone()))
    }
}

impl Work<'_> {
    fn last(&mut self, object: ObjectNo) -> Outcome<Option<Last>> {
        let Some((seq, newest)) = self.txn.object_at(object, EVER)? else { return Ok(None) };
        let (row, at) = match newest {
            // Removed by this very batch: history does not know yet.
            Some(row) => (row, EVER),
            None => {
                let at = CommitSeq::new(seq.get().saturating_sub(1));
                match self.txn.object_at(object, at)? {
                    Some((_, Some(row))) => (row, at),
                    _ => return Ok(None),
                }
            }
        };
        let mut link = None;
        for name in self.txn.names_ever(object, at)? {
            if self.txn.entry_at(&name, at)?.is_some_and(|(_, led_to)| led_to == Some(object)) {
                link = Some(name);
                break;
            }
        }
        Ok(Some(Last { row, at, link }))
    }

    /// The object lives again, without a name yet.
    fn restore(&mut self, object: ObjectNo, last: &Last) -> Outcome<()> {
        let rows = self.txn.extents_at(object, 0..last.row.size, last.at)?;
        for extent in Canvas::of_history(&rows, last.row.size).extents() {
            self.txn.put_extent(object, &extent)?;
        }
        for (name, seq, value) in self.txn.xattrs_at(object, last.at)? {
            if let Some(value) = value {
                self.txn.put_xattr(object, &name, Some(&XattrRow { value, seq }))?;
            }
        }
        self.anywhere.insert(object);
        self.set_object(object, Some(last.row.clone()))
    }

    /// An object about to get a name lives again. False if it has never been there; nothing can be done then.
    pub(super) fn raise(&mut self, object: ObjectNo, name: &Name) -> Outcome<bool> {
        let Some(last) = self.last(object)? else {
            self.unheard_of(object, &format!("the name {name}"));
            return Ok(false);
        };
        self.restore(object, &last)?;
        self.conflict(
            ConflictKind::Removal,
            object,
            None,
            format!("the removal of {name}, which was used elsewhere meanwhile"),
        );
        Ok(true)
    }

    pub(super) fn unheard_of(&mut self, object: ObjectNo, what: &str) {
        let lost = format!("{what}: the server has never had this object");
        self.conflict(ConflictKind::Removal, object, None, lost);
    }

    /// The directory lives again under its last name, and those above it; the root if it has never been there.
    pub(super) fn resurrect(&mut self, dir: ObjectNo) -> Outcome<ObjectNo> {
        let mut chain: Vec<(ObjectNo, Last)> = Vec::new();
        let mut at = dir;
        while !self.is_dir(at)? {
            let known = if chain.iter().any(|(seen, _)| *seen == at) { None } else { self.last(at)? };
            let Some(last) = known.filter(|last| last.row.kind.is_dir()) else {
                at = ObjectNo::ROOT;
                break;
            };
            let parent = last.link.as_ref().map_or(ObjectNo::ROOT, |link| link.dir);
            chain.push((at, last));
            at = parent;
        }
        let mut parent = at;
        for (object, last) in chain.into_iter().rev() {
            self.restore(object, &last)?;
            let name = last.name(object)?;
            self.settle(object, &Link { dir: parent, name: name.clone() }, self.now)?;
            let lost = format!("the removal of the directory {name}, into which something was put meanwhile");
            self.conflict(ConflictKind::Removal, object, None, lost);
            parent = object;
        }
        Ok(parent)
    }

    /// An object whose state is about to change lives, again if it must. False if it does not: the change is nothing then.
    pub(super) fn revive(&mut self, object: ObjectNo, what: &str) -> Outcome<bool> {
        if self.is_live(object)? {
            return Ok(true);
        }
        if self.is_removed_here(object)? {
            return Ok(false);
        }
        let Some(last) = self.last(object)? else {
            self.unheard_of(object, what);
            return Ok(false);
        };
        self.restore(object, &last)?;
        let name = last.name(object)?;
        let dir = match &last.link {
            Some(link) => self.home(link.dir)?,
            None => ObjectNo::ROOT,
        };
        self.settle(object, &Link { dir, name: name.clone() }, self.now)?;
        let lost = format!("the removal of {name}, which was changed elsewhere meanwhile");
        self.conflict(ConflictKind::Removal, object, None, lost);
        Ok(true)
    }
}
