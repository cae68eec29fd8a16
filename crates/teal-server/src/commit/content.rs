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
    CommitSeq, ContentChange, ContentPiece, FileType, ObjectNo, Op, PieceSource,
    ReplicatedAttributes,
};

/// The ways in which content changes.
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
        // An earlier change of this batch was found to be the present content already.
        if self.confirmed.contains(&object) {
            return Ok(());
        }
        // Another replica may have removed the file: it lives again, or the change is dropped.
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
            // Both wrote the same, which needs no person to look at it.
            if self.is_there(object, base, ops)? {
                return self.confirm_content(object);
            }
            let copy = self.make_conflict_copy(object, base, ops)?;
            self.conflict_copies.insert(object, copy);
            return self.apply_content(copy, change, ContentChangeKind::Rewrite);
        }
        self.apply_content(object, change, ContentChangeKind::Rewrite)
    }

    /// Returns whether the author's changes, applied to the content at its base, give the content
    /// that is there now: then another replica has brought the same before.
    fn is_there(&mut self, object: ObjectNo, base: CommitSeq, ops: &[Op]) -> Outcome<bool> {
        let seen = self.txn.object_at(object, base)?.and_then(|(_, row)| row);
        let mut size = seen.map_or(0, |row| row.size);
        let mut overlay =
            ContentOverlay::of_history(&self.txn.extents_at(object, 0..size, base)?, size);
        // The author's changes are applied in their order to the content it had seen.
        for op in ops {
            if let Op::SetContent {
                object: of, change, ..
            } = op
                && *of == object
            {
                overlay.apply_change(change);
                size = change.size;
            }
        }
        let is_as_long = self.object(object)?.is_some_and(|row| row.size == size);
        Ok(is_as_long && overlay.extents().eq(self.txn.extents(object, 0..size)?))
    }

    /// Counts the content as this batch's without changing it, so that the author need not fetch
    /// it.
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
        debug_assert!(change.cut <= change.size, "`find_fault` has checked this");
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
        // The change time never goes back, even if the author's clock did.
        row.attributes.ctime = row.attributes.ctime.max(change.mtime);
        self.touched.insert(object);
        // Content behind the cut is gone, even if the file is as long as before.
        if change.cut < before {
            self.clear_range(object, change.cut..before)?;
        }
        self.note_changed_ranges(object, before, change);
        for ContentPiece {
            offset,
            len,
            source,
        } in &change.pieces
        {
            // Extents never overlap, so the old content makes room first.
            self.clear_range(object, *offset..offset + len)?;
            if let PieceSource::Chunk { id, offset: start } = source {
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
        debug_assert!(range.start <= range.end, "a range goes upwards");
        for extent in self.txn.extents(object, range.clone())? {
            self.txn.drop_extent(object, extent.offset)?;
            // The parts of an extent outside the range stay.
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
                // Extents are no longer than the largest chunk, so the offset fits.
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

    /// Notes in which ranges a change of content, which had `before` bytes, has changed it.
    fn note_changed_ranges(&mut self, object: ObjectNo, before: u64, change: &ContentChange) {
        // A cut and a growth count as changes, because replicas may hold content there.
        let changed = self.changed_ranges.entry(object).or_default();
        let first = change.cut.min(before);
        changed.insert_range(first, before);
        if change.size > before {
            changed.insert_range(first, change.size);
        }
        for piece in &change.pieces {
            changed.insert_range(piece.offset, piece.offset + piece.len);
        }
    }

    /// Makes a file beside `object` that has the content and attributes of `base`, and returns it.
    pub(super) fn make_conflict_copy(
        &mut self,
        object: ObjectNo,
        base: CommitSeq,
        ops: &[Op],
    ) -> Outcome<ObjectNo> {
        let mut row = self.state_of_copy(object, base, ops)?;
        let copy = self.own_number()?;
        // A replica may hold the late content under the first object, and has to fetch all of it
        // again.
        self.changed_anywhere.insert(object);
        if self.copy_xattrs(object, base, copy)? {
            row.xattr_seq = self.seq;
        }
        let size = if bug(Bug::CopyWithoutBase) {
            0
        } else {
            row.size
        };
        self.set_object(copy, Some(row))?;
        self.copy_extents(object, base, size, copy)?;
        // The copy lies in the same directory as the file.
        let Some((beside, _)) = self.txn.links_of(object)?.into_iter().next() else {
            return bad_request(format!("object {object} has no name"));
        };
        let link = self.free_name(&beside)?;
        debug_assert_eq!(link.dir, beside.dir, "a free name is in the same directory");
        self.add_name(&link, copy, self.now)?;
        let lost = format!(
            "content of {}, which another had changed first",
            beside.name
        );
        // The conflict names both files, so that a person can compare them.
        self.note_conflict(ConflictKind::Content, object, Some(copy), lost);
        Ok(copy)
    }

    /// Returns the state of a conflict copy: that at the base, which the author has seen.
    fn state_of_copy(
        &mut self,
        object: ObjectNo,
        base: CommitSeq,
        ops: &[Op],
    ) -> Outcome<ObjectRow> {
        let seen = self.txn.object_at(object, base)?.and_then(|(_, row)| row);
        let (size, attributes) = match (seen, self.object(object)?) {
            (Some(row), _) => (row.size, row.attributes),
            (None, Some(row)) => (0, row.attributes),
            (None, None) => (0, ReplicatedAttributes::default()),
        };
        let seq = self.seq;
        Ok(ObjectRow {
            kind: FileType::File,
            // The attributes that come with the late content belong to the copy.
            attributes: author_attributes(object, ops).unwrap_or(attributes),
            attr_seq: seq,
            size,
            data_seq: seq,
            rewritten_seq: seq,
            target: Vec::new(),
            link_seq: seq,
            xattr_seq: CommitSeq::new(0),
        })
    }

    /// Gives `copy` the extended attributes that `object` had at `base`. Returns whether there are
    /// any.
    fn copy_xattrs(&mut self, object: ObjectNo, base: CommitSeq, copy: ObjectNo) -> Outcome<bool> {
        let mut has_any = false;
        for (name, _, value) in self.txn.xattrs_at(object, base)? {
            let Some(value) = value else { continue };
            let row = XattrRow {
                value,
                seq: self.seq,
            };
            self.txn.put_xattr(copy, &name, Some(&row))?;
            self.xattrs.insert((copy, name), None);
            has_any = true;
        }
        Ok(has_any)
    }

    /// Gives `copy` the first `size` bytes of the content that `object` had at `base`.
    fn copy_extents(
        &mut self,
        object: ObjectNo,
        base: CommitSeq,
        size: u64,
        copy: ObjectNo,
    ) -> Outcome<()> {
        let rows = self.txn.extents_at(object, 0..size, base)?;
        for extent in ContentOverlay::of_history(&rows, size).extents() {
            self.txn.put_extent(copy, &extent)?;
        }
        let changed = self.changed_ranges.entry(copy).or_default();
        changed.insert_range(0, size);
        Ok(())
    }

    /// Returns a new object number of the server's own lease.
    fn own_number(&mut self) -> Outcome<ObjectNo> {
        // The server's own lease is used up, or was abandoned when the server was opened.
        if self.volume.own_next >= self.volume.own_end {
            let lease = lease::give_lease(self.txn, self.draw, lease::SERVER_OWNER)?;
            let numbers = lease.object_numbers();
            self.volume.own_next = numbers.start;
            self.volume.own_end = numbers.end;
        }
        debug_assert!(
            self.volume.own_next < self.volume.own_end,
            "the lease has numbers left"
        );
        let number = self.volume.own_next;
        self.volume.own_next += 1;
        Ok(ObjectNo::new(number))
    }
}

/// Returns the attributes that the author of a batch gives an object, if any.
fn author_attributes(object: ObjectNo, ops: &[Op]) -> Option<ReplicatedAttributes> {
    // The last attributes of a batch are the ones that hold.
    ops.iter().rev().find_map(|op| match op {
        Op::SetAttributes {
            object: of,
            attributes,
            ..
        } if *of == object => Some(*attributes),
        _ => None,
    })
}
