//! Writes the new store.
//!
//! # How
//! 1. The first operation makes the file [`UNFINISHED`](crate::repair::plan::UNFINISHED) in the
//!    root of the new store, the last one takes it away and gives the root its attributes. A store
//!    without that file that has anything in it is refused.
//! 2. Directories come first, each behind the one it is in. A file is made in the orphan set, and
//!    gets its names with the last of its content; a small one all at once. So what has a name is
//!    whole, and what is in the orphan set is written again.
//! 3. Batches are durable in order, so a crash at any point leaves a store with which (1) and (2)
//!    are true.

use crate::error::StoreError;
use crate::object::state::{ObjectContent, ObjectState};
use crate::repair::content::{LostContent, PIECE_BYTES, read_content};
use crate::repair::facts::{ObjectName, with_state_of};
use crate::repair::findings::{RepairPhase, RepairProgress, escape_control};
use crate::repair::plan::{ObjectSource, PlannedObject, mark_name};
use crate::repair::survey::RepairSurvey;
use crate::space::cost::Cost;
use crate::store::handle::Store;
use crate::store::locked::{AttributeChanges, LockedObjects, NewObject};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use teal_types::{FileType, ObjectNo, Timestamp};

/// The extended attribute that lets a program do what its user may not.
const CAPABILITY: &[u8] = b"security.capability";
/// Setuid and setgid.
const SET_ID: u16 = 0o6000;
/// Objects between two reports of progress.
const STEP: u64 = 64;

/// Why a copy is not finished.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// The new store has something in it.
    #[error("the new store is not empty, and holds no unfinished repair")]
    NotEmpty,
    /// The new store holds a copy of something else.
    #[error(
        "the new store holds the unfinished repair of another store, or of another state of it, or \
         the disk does not read as it did then; remove it, or choose another place"
    )]
    OtherRepair,
    /// The store belongs to a volume with a server, and something of it is lost.
    #[error(
        "the store belongs to a volume with a server and has lost something: a repaired copy would \
         not know what the server has. Mount it with -o ro,salvage and copy out what the server \
         lacks; then join the volume again with a new store"
    )]
    HasServer,
    /// A part of a file could be read when it was surveyed, and not when it was copied, or only
    /// then.
    #[error(
        "the content of {path} reads otherwise than a moment ago: the disk is failing. Copy it to a \
         whole disk first (for example with ddrescue), then repair the copy"
    )]
    Failing {
        /// The path of the file, as far as it is known.
        path: String,
    },
    /// The new store is too small.
    #[error("the new store is full: it is too small for {needed} bytes of content with their maps")]
    NoSpace {
        /// Bytes of content.
        needed: u64,
    },
    /// The new store failed, or a structure of the damaged one reads otherwise than a moment ago.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An object whose content is being written.
struct NewFile<'p> {
    planned: &'p PlannedObject,
    /// An earlier operation made it, in the orphan set.
    is_begun: bool,
}

impl RepairSurvey {
    /// Writes all that was found into `new`: an empty store, or one in which this was begun before.
    ///
    /// # Errors
    /// [`RepairError`]. The damaged store is as before, and the copy can be gone on with.
    pub fn copy_to(
        &self,
        new: &Store,
        progress: &mut dyn FnMut(RepairProgress),
    ) -> Result<(), RepairError> {
        if self.findings.has_server && !self.findings.is_whole() {
            return Err(RepairError::HasServer);
        }
        let done = self.copy_all(new, progress);
        done.map_err(|error| match error {
            RepairError::Store(StoreError::NoSpace) => RepairError::NoSpace {
                needed: self.findings.bytes,
            },
            error => error,
        })
    }

    fn copy_all(
        &self,
        new: &Store,
        progress: &mut dyn FnMut(RepairProgress),
    ) -> Result<(), RepairError> {
        self.begin_copy(new)?;
        let unfinished: BTreeSet<ObjectNo> = new.orphans()?.into_iter().collect();
        let total = self.plan.all_objects().count() as u64;
        for (done, planned) in (0..).zip(self.plan.all_objects()) {
            if done % STEP == 0 {
                progress(RepairProgress {
                    phase: RepairPhase::Copy,
                    done,
                    total,
                });
            }
            self.copy_object(new, planned, unfinished.contains(&planned.no))?;
        }
        self.copy_notes(new)?;
        self.end_copy(new)
    }

    /// Says which state of which store is copied, and by which plan.
    fn identity(&self) -> Vec<u8> {
        // The next operation tells one state of a store from another.
        let uuid = u128::from_be_bytes(self.store.superblock().uuid);
        let next = self.store.objects().numbers.next_lsn();
        // A failing disk may read otherwise today, and numbers would mean other objects.
        let plan = self.plan.digest();
        let text = format!(
            "This store is the unfinished copy of a damaged one. Run `teal repair` again.\n\
             store {uuid:032x}, operations before {}, plan {plan:08x}\n",
            next.get()
        );
        text.into_bytes()
    }

    fn begin_copy(&self, new: &Store) -> Result<(), RepairError> {
        let name = mark_name();
        let identity = self.identity();
        // An earlier attempt has begun.
        if let Some((mark, _)) = new.lookup(ObjectNo::ROOT, &name)? {
            let is_same = new.read(mark, 0, 2 * identity.len())? == identity;
            return is_same.then_some(()).ok_or(RepairError::OtherRepair);
        }
        // A store with other files in it is no place for a copy.
        let mut is_empty = true;
        new.each_entry(ObjectNo::ROOT, 0, &mut |_, _, _, _| {
            is_empty = false;
            ControlFlow::Break(())
        })?;
        if !is_empty {
            return Err(RepairError::NotEmpty);
        }
        let op = new.begin(Cost::create().with_piece(identity.len() as u64))?;
        let mut locked = op.lock(&[ObjectNo::ROOT])?;
        locked.create_as(self.plan.mark, made_object(FileType::File, 0o600))?;
        locked.write(self.plan.mark, 0, &identity)?;
        locked.insert_entry(ObjectNo::ROOT, &name, self.plan.mark)?;
        Ok(())
    }

    /// Gives the root its attributes, and takes the mark away.
    fn end_copy(&self, new: &Store) -> Result<(), RepairError> {
        let name = mark_name();
        let mark = self.plan.mark;
        // A root directory that is lost leaves nothing but its names.
        let root = self
            .look(ObjectNo::ROOT, |state| ObjectHead::of_state(state, true))
            .unwrap_or_else(|_| ObjectHead::made(FileType::Dir, 0o755));
        let cost = Cost::unlink().and_also(Cost::free());
        let op = new.begin(cost.with_head(root.head_bytes()).freeing())?;
        let mut locked = op.lock(&[ObjectNo::ROOT, mark])?;
        // All in one operation: with its mark, the store stops being unfinished.
        root.set_all(&mut locked, ObjectNo::ROOT)?;
        locked.remove_entry(ObjectNo::ROOT, &name)?;
        locked.free_object(mark)?;
        drop(locked);
        drop(op);
        new.checkpoint()?;
        Ok(())
    }

    fn look<T>(
        &self,
        no: ObjectNo,
        mut look: impl FnMut(&ObjectState) -> T,
    ) -> Result<T, StoreError> {
        let found = with_state_of(&self.store, &self.from_records, no, &mut look);
        found.ok_or(StoreError::NotFound(no))
    }

    fn copy_object(
        &self,
        new: &Store,
        planned: &PlannedObject,
        is_begun: bool,
    ) -> Result<(), RepairError> {
        let no = planned.no;
        if !is_begun && new.attr(no).is_ok() {
            // The first name came with the content.
            return Ok(self.add_names(new, planned)?);
        }
        debug_assert!(!planned.names.is_empty(), "what has no name is not copied");
        let mut file = NewFile { planned, is_begun };
        match planned.source {
            ObjectSource::MadeDirectory => {
                let head = ObjectHead::made(FileType::Dir, 0o700);
                Self::finish_object(new, &file, &head, &[])?;
            }
            ObjectSource::Report => {
                let report = self.findings.report();
                let head = ObjectHead {
                    size: report.len() as u64,
                    ..ObjectHead::made(FileType::File, 0o600)
                };
                let mut at = 0;
                for piece in report.as_bytes().chunks(PIECE_BYTES as usize) {
                    Self::write_piece(new, &mut file, &head, (at, piece))?;
                    at += piece.len() as u64;
                }
                Self::finish_object(new, &file, &head, &[])?;
            }
            ObjectSource::Found => {
                let copied = self.look(no, |state| self.copy_found(new, &mut file, state));
                copied??;
            }
        }
        Ok(self.add_names(new, planned)?)
    }

    fn copy_found(
        &self,
        new: &Store,
        file: &mut NewFile<'_>,
        state: &ObjectState,
    ) -> Result<(), RepairError> {
        let planned = file.planned;
        // Read a second time: the first time it was only looked at.
        let head = ObjectHead::of_state(state, planned.is_in_tree);
        let src = &self.store.objects().reader;
        let mut inline: &[u8] = &[];
        let content = if let ObjectContent::Inline(data) = &state.content {
            inline = data;
            LostContent {
                read: data.len() as u64,
                ..LostContent::default()
            }
        } else {
            read_content(src, planned.no, state, &mut |at, bytes| {
                Self::write_piece(new, file, &head, (at, bytes))
            })?
        };
        // What is lost only now would be a hole that nobody was told of.
        if content != planned.content {
            let path = escape_control(&self.store.path_of(planned.no));
            return Err(RepairError::Failing { path });
        }
        Ok(Self::finish_object(new, file, &head, inline)?)
    }

    /// Writes a piece of the content of a file that has no name yet.
    fn write_piece(
        new: &Store,
        file: &mut NewFile<'_>,
        head: &ObjectHead,
        (at, bytes): (u64, &[u8]),
    ) -> Result<(), StoreError> {
        let no = file.planned.no;
        // Changes become durable when their time has come.
        new.tick()?;
        let cost = Cost::create().and_also(Cost::write(bytes.len() as u64));
        let op = new.begin(cost)?;
        let locks: &[ObjectNo] = if file.is_begun { &[no] } else { &[] };
        let mut locked = op.lock(locks)?;
        // In the orphan set until it has its name: no part of a file is ever seen.
        if !file.is_begun {
            locked.create_as(no, head.new)?;
            locked.set_orphan(no, true)?;
            file.is_begun = true;
        }
        locked.write(no, at, bytes)
    }

    /// Gives an object its length, its attributes and its first name, and makes it if it was not.
    fn finish_object(
        new: &Store,
        file: &NewFile<'_>,
        head: &ObjectHead,
        inline: &[u8],
    ) -> Result<(), StoreError> {
        let no = file.planned.no;
        new.tick()?;
        let (dir, name) = &file.planned.names[0];
        let cost = Cost::create()
            .with_piece(inline.len() as u64)
            .and_also(Cost::cut())
            .with_head(head.head_bytes() + name.as_bytes().len() as u64);
        let op = new.begin(cost)?;
        let locks: &[ObjectNo] = if file.is_begun { &[*dir, no] } else { &[*dir] };
        let mut locked = op.lock(locks)?;
        if file.is_begun {
            locked.set_orphan(no, false)?;
        } else {
            locked.create_as(no, head.new)?;
        }
        match head.new.kind {
            FileType::Symlink => locked.set_target(no, inline),
            FileType::File => {
                if !inline.is_empty() {
                    locked.write(no, 0, inline)?;
                }
                // A file may end with a hole.
                if locked.attr(no).size != head.size {
                    locked.truncate(no, head.size)?;
                }
            }
            _ => {}
        }
        head.set_all(&mut locked, no)?;
        locked.insert_entry(*dir, name, no)
    }

    /// Adds the names that are not there yet.
    fn add_names(&self, new: &Store, planned: &PlannedObject) -> Result<(), StoreError> {
        let has_name = |(dir, name): &ObjectName| new.lookup(*dir, name).map(|at| at.is_some());
        for name in planned.names.iter().skip(1) {
            // Given by an earlier attempt.
            if has_name(name)? {
                continue;
            }
            let (dir, name) = name;
            let op = new.begin(Cost::link().with_head(new.head_bytes(planned.no)? + 512))?;
            op.lock(&[*dir, planned.no])?
                .insert_entry(*dir, name, planned.no)?;
        }
        Ok(())
    }

    /// Copies what those above the store keep beside its objects. Only a store of which nothing is
    /// lost comes here with notes.
    fn copy_notes(&self, new: &Store) -> Result<(), RepairError> {
        // The numbers first: a visitor must not come back to the notes.
        let mut noted = Vec::new();
        self.store.each_note(ObjectNo::new(0), &mut |no, _| {
            noted.push(no);
            ControlFlow::Continue(())
        })?;
        for no in noted {
            let Some(note) = self.store.note(no)? else {
                continue;
            };
            let op = new.begin(Cost::note().with_note(note.len()))?;
            op.set_note(no, Some(&note))?;
        }
        Ok(())
    }
}

fn made_object(kind: FileType, perm: u16) -> NewObject {
    NewObject {
        kind,
        perm,
        uid: 0,
        gid: 0,
        rdev: 0,
        now: Timestamp::default(),
    }
}

/// The name of an extended attribute, and its value.
type ExtendedAttribute = (Box<[u8]>, Box<[u8]>);

/// The attributes of an object, beside content and names.
struct ObjectHead {
    new: NewObject,
    size: u64,
    attributes: AttributeChanges,
    xattrs: Vec<ExtendedAttribute>,
}

impl ObjectHead {
    fn made(kind: FileType, perm: u16) -> Self {
        Self {
            new: made_object(kind, perm),
            size: 0,
            attributes: AttributeChanges::default(),
            xattrs: Vec::new(),
        }
    }

    /// Returns what an object had. Outside of the tree it has no privileges.
    fn of_state(state: &ObjectState, is_in_tree: bool) -> Self {
        let core = &state.core;
        // The privileges of a file must not outlive the directory that guarded it.
        let perm = if is_in_tree {
            core.perm
        } else {
            core.perm & !SET_ID
        };
        let may_keep = |name: &[u8]| is_in_tree || name != CAPABILITY;
        let kept = state.xattrs.iter().filter(|(name, _)| may_keep(name));
        Self {
            new: NewObject {
                kind: core.kind,
                perm,
                uid: core.uid,
                gid: core.gid,
                rdev: core.rdev,
                now: core.btime,
            },
            size: core.size,
            attributes: AttributeChanges {
                perm: Some(perm),
                uid: Some(core.uid),
                gid: Some(core.gid),
                atime: Some(core.atime),
                mtime: Some(core.mtime),
                ctime: Some(core.ctime),
            },
            xattrs: kept
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        }
    }

    fn head_bytes(&self) -> u64 {
        let bytes = |(name, value): &ExtendedAttribute| 32 + name.len() + value.len();
        self.xattrs.iter().map(bytes).sum::<usize>() as u64
    }

    fn set_all(&self, locked: &mut LockedObjects<'_>, no: ObjectNo) -> Result<(), StoreError> {
        for (name, value) in &self.xattrs {
            locked.set_xattr(no, name, Some(value))?;
        }
        locked.set_attr(no, self.attributes);
        // The time of creation cannot be set from outside.
        locked.mark_changed(no).core.btime = self.new.now;
        Ok(())
    }
}
