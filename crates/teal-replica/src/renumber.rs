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
use teal_types::{CommitSeq, FileType, LeaseNo, Name, ObjectNo};
use teal_volume::Invalidation;

/// Bytes copied at a time.
const STEP: usize = 1 << 20;

impl Replica {
    /// Gives new numbers to all that was made under the lease of the former life and has not
    /// reached the server.
    pub(crate) fn renumber(&self, lease: LeaseNo) -> Result<(), SyncError> {
        let numbers = lease.object_numbers();
        let first = ObjectNo::new(numbers.start);
        // The notes are read first: renumbering changes them.
        let mut new = Vec::new();
        self.store().each_note(first, &mut |no, head| {
            if no.get() >= numbers.end {
                return ControlFlow::Break(());
            }
            // Only dirty objects can be unknown to the server.
            if ObjectNote::summary(head).is_dirty {
                new.push(no);
            }
            ControlFlow::Continue(())
        })?;
        for no in new {
            // The server knows the others by their numbers.
            if self.note_of(no)?.dirty.created {
                self.renumber_one(no)?;
            }
        }
        Ok(())
    }

    /// Makes an object a new one, which the server has never heard of.
    pub(crate) fn renumber_one(&self, old: ObjectNo) -> Result<(), SyncError> {
        // No name changes while the object has two numbers.
        let _names = self.volume().own_namespace();
        // Nothing is written to the old one that the new one would not have.
        let _content = self.residency_lock(old).write();
        let attr = match self.store().attr(old) {
            Err(StoreError::NotFound(_)) => return Ok(()),
            attr => attr?,
        };
        // The twin has no name until the last step.
        let new = self.create_twin(old)?;
        debug_assert_ne!(old, new, "the twin has a number of its own");
        if attr.kind == FileType::File {
            self.copy_all(old, new, attr.size)?;
        }
        if attr.kind.is_dir() {
            self.move_entries(old, new)?;
        }
        self.move_names(old, new)?;
        self.hand_on_pin(old, new);
        Ok(self.apply_pin_successions()?)
    }

    /// Moves the entries of a directory to its twin one by one. Until its names move, the old
    /// directory keeps them.
    fn move_entries(&self, old: ObjectNo, new: ObjectNo) -> Result<(), SyncError> {
        let mut below: Vec<(Name, ObjectNo)> = Vec::new();
        self.store().each_entry(old, 0, &mut |_, child, _, name| {
            below.push((name.clone(), child));
            ControlFlow::Continue(())
        })?;
        for (name, child) in below {
            // Each entry is in exactly one of both directories at every moment.
            let cost = self.volume().cost_of_names(Cost::rename(), &[child])?;
            let op = self.begin_operation(cost)?;
            let mut locked = op.lock(&[old, new, child])?;
            locked.remove_entry(old, &name)?;
            locked.insert_entry(new, &name, child)?;
        }
        Ok(())
    }

    /// Gives the names of an object to its twin and frees the object, in one operation: after a
    /// crash, the object has all its names under one number.
    fn move_names(&self, old: ObjectNo, new: ObjectNo) -> Result<(), SyncError> {
        let names = self.store().names(old)?;
        let dirs: Vec<ObjectNo> = names.iter().map(|(dir, _)| *dir).collect();
        let moved = Cost::rename().with_objects(dirs.len() as u64);
        let cost = self.volume().cost_of_names(moved, &[old])?.with_note(64);
        let op = self.begin_operation(cost)?;
        let mut locked = op.lock(&[&dirs[..], &[old, new]].concat())?;
        locked.set_orphan(new, names.is_empty())?;
        let mut invalidations = vec![Invalidation::Data(old, 0, 0)];
        for (dir, name) in names {
            locked.remove_entry(dir, &name)?;
            locked.insert_entry(dir, &name, new)?;
            invalidations.push(Invalidation::Entry(dir, name));
            invalidations.push(Invalidation::Data(dir, 0, 0));
        }
        // The other life's object of this number is another one. A program that has the file open
        // knows nothing of that: its appends go to the end of whatever is there then, and its other
        // writes were made without having seen any commit.
        if self.volume().references().is_held(old) {
            let (size, unseen) = (locked.attr(old).size, CommitSeq::default());
            let stale = self.volume().stale_files();
            stale.note_replaced(old, size, unseen, unseen);
        }
        self.set_note(&locked, old, &ObjectNote::default())?;
        locked.free_object(old)?;
        drop(locked);
        // The kernel is told without any lock: its answer may need them.
        drop(op);
        for what in invalidations {
            self.volume().invalidations().tell(what);
        }
        Ok(())
    }

    /// Creates a new object like the old one, without content and names.
    fn create_twin(&self, old: ObjectNo) -> Result<ObjectNo, SyncError> {
        let cost = Cost::create()
            .with_objects(1)
            .with_head(self.store().head_bytes(old)?)
            .with_note(64);
        let op = self.begin_operation(cost)?;
        let mut locked = op.lock(&[old])?;
        let attr = locked.attr(old);
        let no = self.next_number(&locked)?;
        let kind = attr.kind;
        let perm = attr.perm;
        let uid = attr.uid;
        let gid = attr.gid;
        let rdev = attr.rdev;
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
        let atime = Some(attr.atime);
        let mtime = Some(attr.mtime);
        let ctime = Some(attr.ctime);
        locked.set_attr(
            no,
            AttributeChanges {
                atime,
                mtime,
                ctime,
                ..AttributeChanges::default()
            },
        );
        // In the orphan set until it gets its names: after a crash it is given back.
        locked.set_orphan(no, true)?;
        let mut note = ObjectNote::default();
        // A new object for the server.
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
            // Data only: holes stay holes.
            let bytes = self.store().read(old, data, STEP)?;
            let op = self.begin_operation(Cost::write(bytes.len() as u64).with_head(head))?;
            debug_assert!(bytes.len() <= STEP);
            op.lock(&[new])?.write(new, data, &bytes)?;
            // An empty read at the end must not repeat.
            at = data + bytes.len().max(1) as u64;
        }
        let op = self.begin_operation(Cost::write(0).with_head(head))?;
        let mut locked = op.lock(&[old, new])?;
        // The last hole is made by the size.
        locked.truncate(new, size)?;
        let attr = locked.attr(old);
        // Copying content changed the times.
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
