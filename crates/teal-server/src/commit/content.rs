//! Content: changes that follow what is there, and those that came too late and become a file of
//! their own.
//!
//! # Guarantees
//! 1. The first to commit wins. The later content is in a copy beside the file, made of what its
//!    author had seen and what he changed.
//! 2. All of one author's late changes to a file in one batch are in the same copy.

use super::execution::BatchExecution;
use crate::lease;
use crate::refusal::{Outcome, bad_request};
use crate::rules::overlay::ContentOverlay;
use crate::seeded::{Bug, bug};
use std::ops::Range;
use teal_meta::{ExtentRow, ObjectRow, XattrRow};
use teal_proto::ConflictKind;
use teal_types::{
    Attributes, CommitSeq, ContentChange, FileType, LEASE, Link, ObjectNo, Op, Piece, Source,
};

/// How content changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContentChangeKind {
    /// Only behind its end.
    Append,
    /// Anywhere.
    Rewrite,
}

impl BatchExecution<'_> {
    pub(super) fn set_content(
        &mut self,
        object: ObjectNo,
        base: CommitSeq,
        change: &ContentChange,
        ops: &[Op],
    ) -> Outcome<()> {
        if let Some(copy) = self.conflict_copies.get(&object).copied() {
            return self.apply_content(copy, change, ContentChangeKind::Rewrite);
        }
        if self.confirmed.contains(&object) {
            return Ok(());
        }
        if !self.revive_for_change(object, "content")? {
            return Ok(());
        }
        let seq = self.seq;
        let Some(row) = self.object(object)? else {
            return Ok(());
        };
        if row.kind != FileType::File {
            return bad_request(format!("content for object {object}, which is no file"));
        }
        if row.data_seq > base && row.data_seq != seq && !bug(Bug::LastWriterWins) {
            if self.is_there(object, base, ops)? {
                return self.confirm_content(object);
            }
            let copy = self.make_conflict_copy(object, base, ops)?;
            self.conflict_copies.insert(object, copy);
            return self.apply_content(copy, change, ContentChangeKind::Rewrite);
        }
        self.apply_content(object, change, ContentChangeKind::Rewrite)
    }

    /// Returns whether an author's changes make of what he had seen what is there now: somebody
    /// else brought the same before.
    fn is_there(&mut self, object: ObjectNo, base: CommitSeq, ops: &[Op]) -> Outcome<bool> {
        let seen = self.txn.object_at(object, base)?.and_then(|(_, row)| row);
        let mut size = seen.map_or(0, |row| row.size);
        let mut canvas =
            ContentOverlay::of_history(&self.txn.extents_at(object, 0..size, base)?, size);
        for op in ops {
            if let Op::SetContent {
                object: of, change, ..
            } = op
                && *of == object
            {
                canvas.apply_change(change);
                size = change.size;
            }
        }
        let is_as_long = self.object(object)?.is_some_and(|row| row.size == size);
        Ok(is_as_long && canvas.extents().eq(self.txn.extents(object, 0..size)?))
    }

    /// The content counts as this batch's, so that its author need not fetch it; nothing of it
    /// changes.
    fn confirm_content(&mut self, object: ObjectNo) -> Outcome<()> {
        let seq = self.seq;
        if let Some(row) = self.object(object)? {
            row.data_seq = seq;
        }
        self.touched.insert(object);
        self.confirmed.insert(object);
        self.changed_ranges.entry(object).or_default();
        Ok(())
    }

    pub(super) fn apply_content(
        &mut self,
        object: ObjectNo,
        change: &ContentChange,
        manner: ContentChangeKind,
    ) -> Outcome<()> {
        let seq = self.seq;
        let Some(row) = self.object(object)? else {
            return Ok(());
        };
        let before = row.size;
        row.size = change.size;
        row.data_seq = seq;
        if manner == ContentChangeKind::Rewrite {
            row.rewritten_seq = seq;
        }
        row.attributes.mtime = change.mtime;
        row.attributes.ctime = row.attributes.ctime.max(change.mtime);
        self.touched.insert(object);
        if change.cut < before {
            self.clear_range(object, change.cut..before)?;
        }
        let changed = self.changed_ranges.entry(object).or_default();
        changed.insert_range(change.cut.min(before), before);
        changed.insert_range(
            change.cut.min(before),
            if change.size > before { change.size } else { 0 },
        );
        change
            .pieces
            .iter()
            .for_each(|piece| changed.insert_range(piece.offset, piece.offset + piece.len));
        for Piece {
            offset,
            len,
            source,
        } in &change.pieces
        {
            self.clear_range(object, *offset..offset + len)?;
            if let Source::Chunk { id, offset: start } = source {
                let extent = ExtentRow {
                    offset: *offset,
                    len: *len,
                    chunk: *id,
                    start: *start,
                };
                self.txn.put_extent(object, &extent)?;
            }
        }
        Ok(())
    }

    /// Makes a part of the content zeros.
    fn clear_range(&mut self, object: ObjectNo, range: Range<u64>) -> Outcome<()> {
        for extent in self.txn.extents(object, range.clone())? {
            self.txn.drop_extent(object, extent.offset)?;
            let end = extent.offset + extent.len;
            if extent.offset < range.start {
                self.txn.put_extent(
                    object,
                    &ExtentRow {
                        len: range.start - extent.offset,
                        ..extent
                    },
                )?;
            }
            if end > range.end {
                let cut = range.end - extent.offset;
                let start = extent.start + u32::try_from(cut).unwrap_or(0);
                self.txn.put_extent(
                    object,
                    &ExtentRow {
                        offset: range.end,
                        len: end - range.end,
                        start,
                        ..extent
                    },
                )?;
            }
        }
        Ok(())
    }

    /// A file beside `object` with what the author of `ops` had seen of it.
    pub(super) fn make_conflict_copy(
        &mut self,
        object: ObjectNo,
        base: CommitSeq,
        ops: &[Op],
    ) -> Outcome<ObjectNo> {
        let seen = self.txn.object_at(object, base)?.and_then(|(_, row)| row);
        let (size, attributes) = match (seen, self.object(object)?) {
            (Some(row), _) => (row.size, row.attributes),
            (None, Some(row)) => (0, row.attributes),
            (None, None) => (0, Attributes::default()),
        };
        let attributes = author_attributes(object, ops).unwrap_or(attributes);
        let copy = self.own_number()?;
        self.changed_anywhere.insert(object);
        let seq = self.seq;
        let mut row = ObjectRow {
            kind: FileType::File,
            attributes,
            attr_seq: seq,
            size,
            data_seq: seq,
            rewritten_seq: seq,
            target: Vec::new(),
            link_seq: seq,
            xattr_seq: CommitSeq::new(0),
        };
        for (name, _, value) in self.txn.xattrs_at(object, base)? {
            if let Some(value) = value {
                self.txn
                    .put_xattr(copy, &name, Some(&XattrRow { value, seq }))?;
                self.xattrs.insert((copy, name), None);
                row.xattr_seq = seq;
            }
        }
        self.set_object(copy, Some(row))?;
        let size = if bug(Bug::CopyWithoutBase) { 0 } else { size };
        let rows = self.txn.extents_at(object, 0..size, base)?;
        for extent in ContentOverlay::of_history(&rows, size).extents() {
            self.txn.put_extent(copy, &extent)?;
        }
        self.changed_ranges
            .entry(copy)
            .or_default()
            .insert_range(0, size);
        let Some((beside, _)) = self.txn.links_of(object)?.into_iter().next() else {
            return bad_request(format!("object {object} has no name"));
        };
        let link = self.free_name(&beside)?;
        self.add_name(
            &Link {
                dir: beside.dir,
                name: link.name,
            },
            copy,
            self.now,
        )?;
        let lost = format!(
            "content of {}, which another had changed first",
            beside.name
        );
        self.note_conflict(ConflictKind::Content, object, Some(copy), lost);
        Ok(copy)
    }

    /// An object number of the server's own.
    fn own_number(&mut self) -> Outcome<ObjectNo> {
        if self.volume.own_next >= self.volume.own_end {
            let lease = lease::give_lease(self.txn, self.draw, lease::SERVER_OWNER)?;
            self.volume.own_next = u64::from(lease) * LEASE;
            self.volume.own_end = self.volume.own_next + LEASE;
        }
        let number = self.volume.own_next;
        self.volume.own_next += 1;
        Ok(ObjectNo::new(number))
    }
}

/// The attributes that the author of a batch gives an object.
fn author_attributes(object: ObjectNo, ops: &[Op]) -> Option<Attributes> {
    ops.iter().rev().find_map(|op| match op {
        Op::SetAttributes {
            object: of,
            attributes,
            ..
        } if *of == object => Some(*attributes),
        _ => None,
    })
}
