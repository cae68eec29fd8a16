//! New objects, attributes and extended attributes.
//!
//! # Guarantees
//! 1. The first to commit wins; who comes later is noted, unless both wanted the same.

use super::execution::{BatchExecution, END_OF_TIME};
use crate::hello::FIRST_INCARNATION;
use crate::lease;
use crate::limits::NOTES_MAX;
use crate::refusal::{Outcome, bad_request};
use crate::seeded::{Bug, bug};
use teal_meta::{ObjectRow, XattrRow};
use teal_proto::ConflictKind;
use teal_types::limits::{XATTRS_BYTES_MAX, xattr_bytes, xattrs_bytes};
use teal_types::{Attributes, CommitSeq, FileType, LEASE, ObjectNo};

impl BatchExecution<'_> {
    pub(super) fn create_object(
        &mut self,
        object: ObjectNo,
        kind: FileType,
        attributes: &Attributes,
        target: &[u8],
    ) -> Outcome<()> {
        if self.is_live(object)? || self.txn.object_at(object, END_OF_TIME)?.is_some() {
            return Ok(());
        }
        let lease = u32::try_from(object.get() / LEASE).unwrap_or(u32::MAX);
        let owner = self.txn.lease(lease)?;
        // What a restored server has lost is offered by whoever has it; it may have lost the lease,
        // too.
        let may_be_offered = self.volume.incarnation > FIRST_INCARNATION && lease < lease::LEASES;
        if may_be_offered && owner.is_none() {
            self.txn.put_lease(lease, self.author.0)?;
        } else if owner != Some(self.author.0) && !may_be_offered {
            return bad_request(format!(
                "a new object {object}, whose number belongs to another device"
            ));
        }
        let (seq, none) = (self.seq, CommitSeq::new(0));
        let target = if kind == FileType::Symlink {
            target.to_vec()
        } else {
            Vec::new()
        };
        let row = ObjectRow {
            kind,
            attributes: *attributes,
            attr_seq: seq,
            size: target.len() as u64,
            data_seq: seq,
            rewritten_seq: seq,
            target,
            link_seq: seq,
            xattr_seq: none,
        };
        self.set_object(object, Some(row))
    }

    pub(super) fn set_attributes(
        &mut self,
        object: ObjectNo,
        base: CommitSeq,
        wanted: Attributes,
    ) -> Outcome<()> {
        let words = describe_attributes(&wanted);
        if !self.revive_for_change(object, &words)? {
            return Ok(());
        }
        let seq = self.seq;
        let is_derived = self.is_dir(object)? && self.is_entered_since(object, base)?;
        let Some(ObjectRow {
            attr_seq, data_seq, ..
        }) = self.object(object)?.cloned()
        else {
            return Ok(());
        };
        let is_late = self.is_unseen(attr_seq, base)?;
        let is_derived = is_derived || self.is_unseen(data_seq, base)?;
        let Some(row) = self.object(object)? else {
            return Ok(());
        };
        let mut wanted = wanted;
        if is_derived {
            // By entries, or by content, that came first.
            wanted.mtime = wanted.mtime.max(row.attributes.mtime);
        }
        let have = row.attributes;
        let is_same = Attributes {
            ctime: have.ctime,
            ..wanted
        } == have;
        if is_late {
            if !is_same {
                self.note_conflict(ConflictKind::Attributes, object, None, words);
            }
            return Ok(());
        }
        if wanted != have {
            row.attributes = Attributes {
                ctime: wanted.ctime.max(have.ctime),
                ..wanted
            };
            row.attr_seq = seq;
            self.touched.insert(object);
        }
        Ok(())
    }

    /// Returns whether others have changed a directory since this replica looked: its entries, for
    /// one.
    fn is_entered_since(&mut self, dir: ObjectNo, base: CommitSeq) -> Outcome<bool> {
        let rows = self.txn.object_history(dir, base, NOTES_MAX)?;
        for (seq, _) in &rows {
            if self.is_unseen(*seq, base)? {
                return Ok(true);
            }
        }
        Ok(rows.len() == NOTES_MAX)
    }

    pub(super) fn set_xattr(
        &mut self,
        object: ObjectNo,
        base: CommitSeq,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Outcome<()> {
        let words = format!("extended attribute {}", String::from_utf8_lossy(name));
        if !self.revive_for_change(object, &words)? {
            return Ok(());
        }
        let past = self.txn.xattrs_at(object, END_OF_TIME)?;
        let seq_before = past
            .iter()
            .find(|(of, ..)| of == name)
            .map_or(CommitSeq::new(0), |(_, seq, _)| *seq);
        let live = self.txn.xattrs(object)?;
        let have = live.iter().find(|(of, _)| of == name).map(|(_, row)| row);
        if have.map(|row| &row.value[..]) == value {
            return Ok(());
        }
        let is_ours = self.xattrs.contains_key(&(object, name.to_vec()));
        let others = live
            .iter()
            .filter(|(of, _)| of != name)
            .map(|(of, row)| (&of[..], &row.value[..]));
        let bytes = xattrs_bytes(others);
        let is_too_much = value
            .is_some_and(|value| bytes + xattr_bytes(name.len(), value.len()) > XATTRS_BYTES_MAX)
            && !bug(Bug::LimitsDiffer);
        if (self.is_unseen(seq_before, base)? && !is_ours) || is_too_much {
            let lost = match value {
                Some(value) => format!(
                    "{words} = {}",
                    String::from_utf8_lossy(&value[..value.len().min(256)])
                ),
                None => format!("the removal of {words}"),
            };
            let why = format!(": together with the others more than {XATTRS_BYTES_MAX} bytes");
            let lost = if is_too_much { lost + &why } else { lost };
            self.note_conflict(ConflictKind::Xattr, object, None, lost);
            return Ok(());
        }
        let (seq, before) = (self.seq, have.map(|row| row.value.clone()));
        self.xattrs.entry((object, name.to_vec())).or_insert(before);
        let new = value.map(|value| XattrRow {
            value: value.to_vec(),
            seq,
        });
        self.txn.put_xattr(object, name, new.as_ref())?;
        if let Some(row) = self.object(object)? {
            row.xattr_seq = seq;
        }
        self.touched.insert(object);
        Ok(())
    }
}

fn describe_attributes(attributes: &Attributes) -> String {
    let Attributes {
        perm,
        uid,
        gid,
        mtime,
        ..
    } = attributes;
    format!(
        "permissions {perm:03o}, owner {uid}, group {gid}, modified at {} s",
        mtime.secs
    )
}
