//! Appends that come too late: two machines put lines behind the end of one file.
//!
//! # Guarantees
//! 1. *Whole*: a tail that is put behind another's stays one run, and nothing that was there before
//!    changes.
//! 2. *Appends only*: this happens only if nothing but recognised appends has changed the content
//!    since the author looked. Otherwise his content is a file beside, as of any late change.
//! 3. *Lines only*: and only if what both had seen, and both tails, end in a newline and look like
//!    text. The attribute [`MERGE_ATTRIBUTE`] of the file, or of the nearest directory above it
//!    that has one, overrules this guarantee: `never` or `always`.
//!
//! # Why it is safe
//! An object's row has the commit that last changed its content otherwise than by appending. If
//! that is not behind the author's base, all content since is tails behind tails, and what the
//! author has seen is the beginning of what is there. The author says if a change is an append. An
//! author that says it wrongly moves only its own content, and could as well have written it there.

use super::content::ContentChangeKind;
use super::execution::BatchExecution;
use crate::limits::TEXT_SAMPLE;
use crate::refusal::{Outcome, bad_request};
use crate::seeded::{Bug, bug};
use std::collections::HashSet;
use std::ops::Range;
use teal_meta::ExtentRow;
use teal_types::limits::FILE_MAX;
use teal_types::{CommitSeq, ContentChange, ContentPiece, FileType, ObjectNo, Op, PieceSource};

/// The extended attribute that rules over merging.
const MERGE_ATTRIBUTE: &[u8] = b"user.teal.merge-appends";

/// The rule for merging that the attribute sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MergeRule {
    Never,
    /// Whatever the content is.
    Always,
    /// Lines of text.
    Lines,
}

impl BatchExecution<'_> {
    /// Puts content behind the end of a file.
    pub(super) fn append_content(
        &mut self,
        object: ObjectNo,
        base: CommitSeq,
        change: &ContentChange,
        ops: &[Op],
    ) -> Outcome<()> {
        // A late change of this batch has made a copy already, which takes the rest, too.
        debug_assert!(change.cut <= change.size, "`find_fault` has checked this");
        if let Some(copy) = self.conflict_copies.get(&object).copied() {
            return self.apply_content(copy, change, ContentChangeKind::Rewrite);
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
        let is_late = row.data_seq > base && row.data_seq != seq && !bug(Bug::LastWriterWins);
        let end = row.size;
        if !is_late {
            let manner = if end == change.cut {
                ContentChangeKind::Append
            } else {
                ContentChangeKind::Rewrite
            };
            return self.apply_content(object, change, manner);
        }
        if self.may_merge(object, base, change)? {
            return self.apply_content(object, &shift_tail(change, end), ContentChangeKind::Append);
        }
        // The two appends do not fit together, so the later one becomes a file of its own.
        let copy = self.make_conflict_copy(object, base, ops)?;
        self.conflict_copies.insert(object, copy);
        self.apply_content(copy, change, ContentChangeKind::Rewrite)
    }

    fn may_merge(
        &mut self,
        object: ObjectNo,
        base: CommitSeq,
        change: &ContentChange,
    ) -> Outcome<bool> {
        // Without the state that the author has seen, its tail has no place.
        let Some(seen) = self.txn.object_at(object, base)?.and_then(|(_, row)| row) else {
            return Ok(false);
        };
        let Some(row) = self.object(object)? else {
            return Ok(false);
        };
        let (end, rewritten) = (row.size, row.rewritten_seq);
        // After a rewrite behind the base, the content is not the author's with tails behind it any
        // more.
        if rewritten > base && !bug(Bug::MergedOverRewrite) {
            return Ok(false);
        }
        let is_behind = (seen.size..=end).contains(&change.cut) || bug(Bug::MergedOverRewrite);
        if !is_behind || end.saturating_add(change.size - change.cut) > FILE_MAX {
            return Ok(false);
        }
        match self.merge_rule(object)? {
            MergeRule::Never => Ok(false),
            MergeRule::Always => Ok(true),
            MergeRule::Lines => self.are_lines(object, end, change),
        }
    }

    /// Returns what the nearest attribute says, from the file upwards.
    fn merge_rule(&self, object: ObjectNo) -> Outcome<MergeRule> {
        // The set ends the walk in a damaged tree.
        let (mut at, mut seen) = (object, HashSet::new());
        while seen.insert(at) {
            let xattrs = self.txn.xattrs(at)?;
            let value = xattrs
                .iter()
                .find(|(name, _)| name == MERGE_ATTRIBUTE)
                .map(|(_, row)| &row.value[..]);
            match value {
                Some(b"never") => return Ok(MergeRule::Never),
                Some(b"always") => return Ok(MergeRule::Always),
                _ => {}
            }
            match self.txn.links_of(at)?.into_iter().next() {
                Some((link, _)) => at = link.dir,
                None => break,
            }
        }
        Ok(MergeRule::Lines)
    }

    /// Returns whether what the author had seen ends with a line, and what was put behind it here
    /// and by him is lines.
    fn are_lines(&self, object: ObjectNo, end: u64, change: &ContentChange) -> Outcome<bool> {
        let start = change.cut;
        // One byte more than the tail, because the byte before it must end a line.
        let theirs = self.txn.extents(object, start.saturating_sub(1)..end)?;
        let ours: Vec<ExtentRow> = change.pieces.iter().filter_map(extent_of).collect();
        let is_boundary = start == 0
            || self
                .read_range(&theirs, start - 1..start)
                .is_some_and(|byte| byte == b"\n");
        Ok(is_boundary
            && self.is_text(&theirs, start..end)
            && self.is_text(&ours, start..change.size))
    }

    /// Returns whether a range ends with a newline, and is text as far as one looks. An empty one
    /// is.
    fn is_text(&self, extents: &[ExtentRow], range: Range<u64>) -> bool {
        if range.is_empty() {
            return true;
        }
        // Only the two ends are read, so that text of any length costs the same.
        let first = range.start..range.end.min(range.start + TEXT_SAMPLE);
        let last = range.start.max(range.end.saturating_sub(TEXT_SAMPLE))..range.end;
        let Some((first, last)) = self
            .read_range(extents, first)
            .zip(self.read_range(extents, last))
        else {
            return false;
        };
        last.ends_with(b"\n") && looks_like_text(&first) && looks_like_text(&last)
    }

    /// Returns the bytes of a short range; `None` if they cannot be read.
    fn read_range(&self, extents: &[ExtentRow], range: Range<u64>) -> Option<Vec<u8>> {
        let mut out = vec![0; usize::try_from(range.end - range.start).ok()?];
        for extent in extents {
            // Only the part of the extent that lies in the range is copied.
            let (from, to) = (
                extent.offset.max(range.start),
                (extent.offset + extent.len).min(range.end),
            );
            if from >= to {
                continue;
            }
            // An unreadable chunk must not fail the commit: the tail becomes a file beside this
            // one.
            let chunk = match self.chunks.get(&extent.chunk) {
                Ok(chunk) => chunk,
                Err(error) => {
                    log::warn!("{error}");
                    return None;
                }
            };
            let inside = usize::try_from(u64::from(extent.start) + from - extent.offset).ok()?;
            let len = usize::try_from(to - from).ok()?;
            let at = usize::try_from(from - range.start).ok()?;
            out[at..at + len].copy_from_slice(chunk.get(inside..inside + len)?);
        }
        Some(out)
    }
}

/// Returns a change that appends the same tail behind another end.
fn shift_tail(change: &ContentChange, end: u64) -> ContentChange {
    debug_assert!(change.cut <= change.size, "a tail has an end");
    // Only the offsets in the file change; the pieces keep their chunks.
    let mut shifted = change.clone();
    shifted.cut = end;
    shifted.size = change.size - change.cut + end;
    for piece in &mut shifted.pieces {
        piece.offset = piece.offset - change.cut + end;
    }
    shifted
}

fn extent_of(piece: &ContentPiece) -> Option<ExtentRow> {
    match piece.source {
        PieceSource::Chunk { id, offset } => Some(ExtentRow {
            offset: piece.offset,
            len: piece.len,
            chunk: id,
            start: offset,
        }),
        PieceSource::Hole => None,
    }
}

/// Returns whether bytes are UTF-8 without NUL; a character may be cut off at either end.
fn looks_like_text(bytes: &[u8]) -> bool {
    let is_inside = |byte: &u8| byte & 0xc0 == 0x80;
    // In UTF-8, at most three bytes of a character follow its first.
    let cut_off = bytes
        .iter()
        .take(3)
        .take_while(|byte| is_inside(byte))
        .count();
    let is_utf8 = match std::str::from_utf8(&bytes[cut_off..]) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    };
    is_utf8 && !bytes.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::looks_like_text;

    #[test]
    fn text_is_told_from_other_content() {
        for text in [
            &b""[..],
            b"a line\n",
            "ä".as_bytes(),
            &"aä".as_bytes()[..2],
            &"äa".as_bytes()[1..],
        ] {
            assert!(looks_like_text(text), "{text:?}");
        }
        for other in [
            &b"a\0b\n"[..],
            b"\xff\xfe\n",
            b"a\xe4b\n",
            b"\x80\x80\x80\x80\n",
        ] {
            assert!(!looks_like_text(other), "{other:?}");
        }
    }
}
