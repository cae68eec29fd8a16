//! New objects, attributes and extended attributes.
//!
//! # Guarantees
//! 1. The first commit wins; a later change is noted as a conflict, unless both wanted the same.

use super::execution::{BatchExecution, END_OF_TIME};
use crate::limits::NOTES_MAX;
use crate::refusal::{Outcome, bad_request};
use crate::seeded::{Bug, bug};
use teal_meta::{ObjectRow, XattrRow};
use teal_proto::ConflictKind;
use teal_types::limits::{XATTRS_BYTES_MAX, xattr_bytes, xattrs_bytes};
use teal_types::{
    CommitSeq, FileType, LeaseNo, ObjectNo, REPLICATED_LIMIT, ReplicatedAttributes,
    ServerIncarnation,
};

impl BatchExecution<'_> {
    pub(super) fn create_object(
        &mut self,
        object: ObjectNo,
        kind: FileType,
        attributes: &ReplicatedAttributes,
        target: &[u8],
    ) -> Outcome<()> {
        // A number that history knows is never used again.
        if self.is_live(object)? || self.txn.object_at(object, END_OF_TIME)?.is_some() {
            return Ok(());
        }
        // The number of an object tells its lease.
        let lease = LeaseNo::of_object(object);
        let owner = self.txn.lease(lease)?;
        // After a restore, the replicas offer what the server has lost; the lease may be among
        // that.
        let is_restored = self.volume.incarnation > ServerIncarnation::FIRST;
        let may_be_offered = is_restored && object.get() < REPLICATED_LIMIT;
        if may_be_offered && owner.is_none() {
            self.txn.put_lease(lease, self.author.replica)?;
        } else if owner != Some(self.author.replica) && !may_be_offered {
            return bad_request(format!(
                "a new object {object}, whose number belongs to another device"
            ));
        }
        let (seq, none) = (self.seq, CommitSeq::new(0));
        // Only a symbolic link has a target.
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
        wanted: ReplicatedAttributes,
    ) -> Outcome<()> {
        let words = describe_attributes(&wanted);
        // The object may have been removed: it lives again, or the change is dropped.
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
        // Another time of change is no difference by itself.
        let is_same = ReplicatedAttributes {
            ctime: have.ctime,
            ..wanted
        } == have;
        if is_late {
            // Wanting what is there already is no conflict.
            if !is_same {
                self.note_conflict(ConflictKind::Attributes, object, None, words);
            }
            return Ok(());
        }
        if wanted != have {
            row.attributes = ReplicatedAttributes {
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
        // If there are more changes than were read, some are taken to be another replica's.
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
        let live = self.txn.xattrs(object)?;
        let have = live.iter().find(|(of, _)| of == name).map(|(_, row)| row);
        // The value is as wanted already.
        if have.map(|row| &row.value[..]) == value {
            return Ok(());
        }
        let is_late = self.is_late_xattr(object, base, name)?;
        let is_too_much = value.is_some_and(|value| exceeds_limit(&live, name, value));
        if is_late || is_too_much {
            let mut lost = describe_lost_value(&words, value);
            if is_too_much {
                lost += &format!(": together with the others more than {XATTRS_BYTES_MAX} bytes");
            }
            self.note_conflict(ConflictKind::Xattr, object, None, lost);
            return Ok(());
        }
        let before = have.map(|row| row.value.clone());
        self.put_xattr(object, name, before, value)
    }

    /// Returns whether others have changed an extended attribute since its author looked.
    fn is_late_xattr(&mut self, object: ObjectNo, base: CommitSeq, name: &[u8]) -> Outcome<bool> {
        let past = self.txn.xattrs_at(object, END_OF_TIME)?;
        let newest = past.iter().find(|(of, ..)| of == name);
        let last_change = newest.map_or(CommitSeq::new(0), |(_, seq, _)| *seq);
        // A change of this very batch is the author's own.
        let is_ours = self.xattrs.contains_key(&(object, name.to_vec()));
        Ok(self.is_unseen(last_change, base)? && !is_ours)
    }

    /// Sets or removes an extended attribute that had the value `before`.
    fn put_xattr(
        &mut self,
        object: ObjectNo,
        name: &[u8],
        before: Option<Vec<u8>>,
        value: Option<&[u8]>,
    ) -> Outcome<()> {
        // The value before the first of several changes in one batch is the one that counts.
        self.xattrs.entry((object, name.to_vec())).or_insert(before);
        let seq = self.seq;
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

/// Returns what is said of a value that lost a conflict; `None` stands for a removal.
fn describe_lost_value(attribute: &str, value: Option<&[u8]>) -> String {
    let Some(value) = value else {
        return format!("the removal of {attribute}");
    };
    // The beginning of a long value is enough for a person.
    let beginning = &value[..value.len().min(256)];
    format!("{attribute} = {}", String::from_utf8_lossy(beginning))
}

/// Returns whether a value, beside the other extended attributes of its object, exceeds the limit
/// of clients, which could not hold more.
fn exceeds_limit(live: &[(Vec<u8>, XattrRow)], name: &[u8], value: &[u8]) -> bool {
    let others = live.iter().filter(|(of, _)| of != name);
    let bytes = xattrs_bytes(others.map(|(of, row)| (&of[..], &row.value[..])));
    bytes + xattr_bytes(name.len(), value.len()) > XATTRS_BYTES_MAX && !bug(Bug::LimitsDiffer)
}

fn describe_attributes(attributes: &ReplicatedAttributes) -> String {
    let ReplicatedAttributes {
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
