//! A store that is a copy of one that went on: what was made in it since has numbers that the other
//! life may have used too.
//!
//! # Guarantees
//! 1. Objects the server has never heard of get numbers of the new incarnation, with their content,
//!    names and attributes; nothing of them is lost, and nothing is taken for what the other life
//!    made. The kernel forgets what it knows under the old numbers.

use super::{ObjectNote, Replica, SyncError};
use std::ops::ControlFlow;
use teal_log::{AttributeChanges, Cost, NewObject, StoreError};
use teal_types::ranges::ByteRanges;
use teal_types::{FileType, LEASE, Name, ObjectNo};
use teal_volume::Invalidation;

/// Bytes copied at a time.
const STEP: usize = 1 << 20;

impl Replica {
    /// Gives new numbers to all that was made under the lease of the former life and has not
    /// reached the server.
    pub(crate) fn renumber(&self, lease: u32) -> Result<(), SyncError> {
        let first = ObjectNo::new(u64::from(lease) * LEASE);
        let last = (u64::from(lease) + 1) * LEASE;
        let mut new = Vec::new();
        self.store().each_note(first, &mut |no, head| {
            if no.get() >= last {
                return ControlFlow::Break(());
            }
            if ObjectNote::summary(head).is_dirty {
                new.push(no);
            }
            ControlFlow::Continue(())
        })?;
        for no in new {
            if self.note_of(no)?.dirty.created {
                self.renumber_one(no)?;
            }
        }
        Ok(())
    }

    /// Makes an object a new one, which the server has never heard of.
    pub(crate) fn renumber_one(&self, old: ObjectNo) -> Result<(), SyncError> {
        let _names = self.volume().own_namespace();
        // Nothing is written to the old one that the new one would not have.
        let _content = self.residency_lock(old).write();
        let attr = match self.store().attr(old) {
            Err(StoreError::NotFound(_)) => return Ok(()),
            attr => attr?,
        };
        let new = self.create_twin(old)?;
        if attr.kind == FileType::File {
            self.copy_all(old, new, attr.size)?;
        }
        let mut below: Vec<(Name, ObjectNo)> = Vec::new();
        if attr.kind.is_dir() {
            self.store().each_entry(old, 0, &mut |_, child, _, name| {
                below.push((name.clone(), child));
                ControlFlow::Continue(())
            })?;
        }
        // What is in a directory moves one by one; until the last step the old one keeps its name.
        for (name, child) in below {
            let op =
                self.begin_operation(self.volume().cost_of_names(Cost::rename(), &[child])?)?;
            let mut locked = op.lock(&[old, new, child])?;
            locked.remove_entry(old, &name)?;
            locked.insert_entry(new, &name, child)?;
        }
        let names = self.store().names(old)?;
        let dirs: Vec<ObjectNo> = names.iter().map(|(dir, _)| *dir).collect();
        let moved = Cost::rename().with_objects(dirs.len() as u64);
        let cost = self.volume().cost_of_names(moved, &[old])?.with_note(64);
        let op = self.begin_operation(cost)?;
        let mut locked = op.lock(&[&dirs[..], &[old, new]].concat())?;
        locked.set_orphan(new, names.is_empty())?;
        let mut told = vec![Invalidation::Data(old, 0, 0)];
        for (dir, name) in names {
            locked.remove_entry(dir, &name)?;
            locked.insert_entry(dir, &name, new)?;
            told.push(Invalidation::Entry(dir, name));
            told.push(Invalidation::Data(dir, 0, 0));
        }
        // The other life's object of this number is another one.
        self.set_note(&locked, old, &ObjectNote::default())?;
        locked.free_object(old)?;
        drop(locked);
        drop(op);
        told.into_iter()
            .for_each(|what| self.volume().invalidations().tell(what));
        self.hand_on_pin(old, new);
        Ok(self.apply_pin_successions()?)
    }

    /// A new object that is as the old one, but for content and names.
    fn create_twin(&self, old: ObjectNo) -> Result<ObjectNo, SyncError> {
        let cost = Cost::create()
            .with_objects(1)
            .with_head(self.store().head_bytes(old)?)
            .with_note(64);
        let op = self.begin_operation(cost)?;
        let mut locked = op.lock(&[old])?;
        let attr = locked.attr(old);
        let no = self.next_number(&locked)?;
        let (kind, perm, uid, gid, rdev) = (attr.kind, attr.perm, attr.uid, attr.gid, attr.rdev);
        locked.create_as(
            no,
            NewObject {
                kind,
                perm,
                uid,
                gid,
                rdev,
                now: attr.btime,
            },
        )?;
        if kind == FileType::Symlink {
            let target = locked.target(old);
            locked.set_target(no, &target);
        }
        for name in locked.xattr_names(old) {
            let value = locked.xattr(old, &name).map(<[u8]>::to_vec);
            locked.set_xattr(no, &name, value.as_deref())?;
        }
        let (atime, mtime, ctime) = (Some(attr.atime), Some(attr.mtime), Some(attr.ctime));
        locked.set_attr(
            no,
            AttributeChanges {
                atime,
                mtime,
                ctime,
                ..AttributeChanges::default()
            },
        );
        locked.set_orphan(no, true)?;
        let mut note = ObjectNote::default();
        note.dirty.created = true;
        self.set_note(&locked, no, &note)?;
        Ok(no)
    }

    fn copy_all(&self, old: ObjectNo, new: ObjectNo, size: u64) -> Result<(), SyncError> {
        let head = self.store().head_bytes(new)?;
        let mut at = 0;
        while let Some(data) = self
            .store()
            .seek(old, at, false)?
            .filter(|data| *data < size)
        {
            let bytes = self.store().read(old, data, STEP)?;
            let op = self.begin_operation(Cost::write(bytes.len() as u64).with_head(head))?;
            op.lock(&[new])?.write(new, data, &bytes)?;
            at = data + bytes.len().max(1) as u64;
        }
        let op = self.begin_operation(Cost::write(0).with_head(head))?;
        let mut locked = op.lock(&[old, new])?;
        locked.truncate(new, size)?;
        let attr = locked.attr(old);
        locked.set_attr(
            new,
            AttributeChanges {
                mtime: Some(attr.mtime),
                ctime: Some(attr.ctime),
                ..AttributeChanges::default()
            },
        );
        debug_assert_eq!(self.note_of(new)?.absent, ByteRanges::default());
        Ok(())
    }
}
