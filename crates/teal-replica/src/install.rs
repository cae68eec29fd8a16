//! Installing the server's state of an object: attributes, extended attributes, content; its names
//! are in `names`.
//!
//! # Guarantees
//! 1. A component that is dirty or in flight here is left alone.
//! 2. An object that is unknown here, in directories that are not listed here, is not created.
//! 3. Content that has changed is noted as absent before the old content goes, under the object's
//!    lock: no reader sees the zeros between.
//! 4. An object that a copy of this store has made under numbers that are this one's to give is not
//!    installed before this one has a life of its own.
//! 5. The kernel is told to forget what it may remember of the object, after the object
//!    has changed.

use super::acknowledge::{InstallableComponents, InstallableContent, acknowledge_components};
use super::committed::CommittedBatch;
use super::components::{
    InstalledContent, XattrFit, install_attributes, install_content_of, install_xattrs,
};
use super::tails::ranges_behind;
use super::{ObjectNote, Replica, ReplicaIdentity, SyncError, unexpected};
use crate::seeded::{Bug, bug};
use std::collections::HashSet;
use teal_device::UpstreamError;
use teal_log::{AttributeChanges, Cost, LockedObjects, NewObject, StoreError};
use teal_proto::{RefusalCode, RefusalReply};
use teal_types::ranges::CONTENT_END;
use teal_types::{FileType, HardLink, LeaseNo, ObjectNo, ObjectVersion, REPLICATED_LIMIT};
use teal_volume::Invalidation;

/// The state of an object at the server that is to be installed.
#[derive(Debug, Clone, Copy)]
struct ArrivingState<'a> {
    version: &'a ObjectVersion,
    /// The ranges of content that have changed since the position; `None`: anywhere.
    ranges: Option<&'a [(u64, u64)]>,
    /// The batch of this replica that the state may acknowledge.
    committed: Option<CommittedBatch>,
    /// The state that this batch made, where that is not the present one and was asked for.
    past: Option<&'a ObjectVersion>,
    /// Is true if the object is here.
    known: bool,
}

impl Replica {
    /// Installs a state. `ranges`: where the content has changed since the position; `None`:
    /// anywhere.
    pub(crate) fn install_version(
        &self,
        version: &ObjectVersion,
        ranges: Option<&[(u64, u64)]>,
        committed: Option<CommittedBatch>,
    ) -> Result<(), SyncError> {
        let no = version.object;
        if !is_replicated_number(no) {
            return Err(unexpected("an object that no volume can hold").into());
        }
        let known = match self.store().attr(no) {
            Err(StoreError::NotFound(_)) => false,
            attr => attr.map(|_| true)?,
        };
        // An object of this life that this life did not make is of a copy of the store.
        self.check_maker(no)?;
        if !known && (self.note_of(no)?.is_ours() || !self.has_place_for(version)?) {
            return self.acknowledge_unknown(version, committed);
        }
        // The directories above come first.
        if known || version.links.len() > 1 {
            self.make_place(version)?;
        }
        let past = self.past_of_tail(version, committed)?;
        self.install_here(ArrivingState {
            version,
            ranges,
            committed,
            past: past.as_ref(),
            known,
        })
    }

    /// Checks whether an object the server knows can be of this life, if its number is of this
    /// life's lease: given out here, and sent.
    fn check_maker(&self, no: ObjectNo) -> Result<(), SyncError> {
        let ReplicaIdentity {
            incarnation, lease, ..
        } = self.identity();
        // Before the first life, there are no numbers of this replica.
        if incarnation.is_none() || LeaseNo::of_object(no) != lease || bug(Bug::CopyUnnoticed) {
            return Ok(());
        }
        let is_given = self.own_identity().is_given(no);
        let note = self.note_of(no)?;
        // The object was made here, and the server has had it from here.
        if is_given && (!note.dirty.created || note.in_flight.is_some()) {
            return Ok(());
        }
        self.state().copy_found();
        let words = format!("object {no} was made by a copy of this store");
        Err(UpstreamError::Refused(RefusalReply {
            code: RefusalCode::Cloned,
            words,
        })
        .into())
    }

    /// Sees to it that the directories are here in which an object lies that is here itself, or
    /// comes.
    fn make_place(&self, version: &ObjectVersion) -> Result<(), SyncError> {
        for link in &version.links {
            let mut dir = link.dir;
            let mut above = Vec::<ObjectVersion>::new();
            // Up to a directory that is here. Missing ones are looked up at the server.
            while matches!(self.store().attr(dir), Err(StoreError::NotFound(_))) {
                // A directory that was removed here, or a cycle among directories that move: the
                // object waits.
                if self.note_of(dir)?.is_ours() || above.iter().any(|known| known.object == dir) {
                    break;
                }
                let Some(parent) = self.versions_at_server(&[dir])?.pop().flatten() else {
                    break;
                };
                let Some(next) = parent.links.first() else {
                    break;
                };
                dir = next.dir;
                above.push(parent);
            }
            // From the top down: each directory has its place when it is entered.
            while let Some(parent) = above.pop() {
                self.install_here(ArrivingState {
                    version: &parent,
                    ranges: None,
                    committed: None,
                    past: None,
                    known: false,
                })?;
            }
        }
        Ok(())
    }

    fn install_here(&self, arriving: ArrivingState<'_>) -> Result<(), SyncError> {
        let version = arriving.version;
        let no = version.object;
        if !arriving.known && self.store().is_leaving(no) {
            // The object was given back a moment ago, because its directory was not here.
            self.store().commit()?;
        }
        let _names = self.volume().share_namespace();
        // Directories move one at a time, so that no cycle can arise.
        let _moves = version.kind.is_dir().then(|| self.volume().lock_moves());
        loop {
            // The objects to lock depend on the names, which may change until the locks are held.
            let with = self.plan_locks(version)?;
            let _content = self.residency_lock(no).write();
            // If another object had one of the names until then, the locks are planned again.
            if self.try_install(arriving, &with)? {
                return Ok(());
            }
        }
    }

    /// Returns whether one of its directories is here and listed.
    fn has_place_for(&self, version: &ObjectVersion) -> Result<bool, SyncError> {
        for link in &version.links {
            if self.is_listed(link.dir)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether a directory is here with all its entries.
    pub(crate) fn is_listed(&self, dir: ObjectNo) -> Result<bool, StoreError> {
        match self.store().attr(dir) {
            Err(StoreError::NotFound(_)) => return Ok(false),
            attr => drop(attr?),
        }
        self.has_entries(dir)
    }

    /// Returns whether a directory that is here has all its entries. The directory may be locked.
    pub(crate) fn has_entries(&self, dir: ObjectNo) -> Result<bool, StoreError> {
        // The listing in progress counts: its entries are entered before the mark is taken off.
        let is_coming_in = self.listings().is_coming_in(dir);
        Ok(is_coming_in || !self.note_of(dir)?.unlisted)
    }

    /// Acknowledges an object that is gone here, and that still exists at the server.
    fn acknowledge_unknown(
        &self,
        version: &ObjectVersion,
        committed: Option<CommittedBatch>,
    ) -> Result<(), SyncError> {
        let mut note = self.note_of(version.object)?;
        if note.is_empty() || note.in_flight.is_none() {
            return Ok(());
        }
        let cost = Cost::note().with_note(note.encode().len()).freeing();
        let op = self.begin_operation(cost)?;
        acknowledge_components(&mut note, version, committed, None, 0);
        // Still there at the server: it is to come back here, unless its removal is dirty anew.
        note.needs_look =
            note.in_flight.is_none() && note.dirty.is_empty() && !version.links.is_empty();
        // Nothing of the object is here, so the note has nothing left to say.
        if note.needs_look {
            note = ObjectNote::default();
        }
        let bytes = (!note.is_empty()).then(|| note.encode());
        op.set_note(version.object, bytes.as_deref())?;
        drop(op);
        // The object is new to this store.
        if bytes.is_none() && self.has_place_for(version)? {
            return self.install_version(version, None, None);
        }
        Ok(())
    }

    /// Returns the directories and objects to be locked together with the object: the directories
    /// of its old and new names, and the objects that have the new names now.
    fn plan_locks(&self, version: &ObjectVersion) -> Result<Vec<ObjectNo>, SyncError> {
        let mut with = Vec::new();
        let here = match self.store().names(version.object) {
            Err(StoreError::NotFound(_)) => Vec::new(),
            names => names?,
        };
        let dirs = here
            .iter()
            .map(|(dir, _)| *dir)
            .chain(version.links.iter().map(|link| link.dir));
        for dir in dirs {
            // A directory that is not here has no entries to change.
            if self.store().attr(dir).is_ok() {
                with.push(dir);
            }
        }
        for link in &version.links {
            if with.contains(&link.dir)
                // The holder of a wanted name loses it, and is locked, too.
                && let Some((there, _)) = self.store().lookup(link.dir, &link.name)?
            {
                with.push(there);
            }
        }
        // Many names may be in one directory.
        with.sort_unstable();
        with.dedup();
        Ok(with)
    }

    /// Returns what installing a state takes at most.
    fn cost_of_version(
        &self,
        version: &ObjectVersion,
        with: &[ObjectNo],
        known: bool,
    ) -> Result<Cost, SyncError> {
        let no = version.object;
        let xattrs: usize = version
            .xattrs
            .iter()
            .map(|(name, value)| name.len() + value.len() + 32)
            .sum();
        let here = if known {
            self.links_here(no)?
        } else {
            Vec::new()
        };
        // Sets: an object may have thousands of names.
        let (known_names, wanted): (HashSet<&HardLink>, HashSet<&HardLink>) =
            (here.iter().collect(), version.links.iter().collect());
        let changed = known_names.symmetric_difference(&wanted).count();
        let head = if known {
            self.store().head_bytes(no)?
        } else {
            0
        };
        Ok(Cost::install()
            .with_head(xattrs as u64 + head)
            .with_note(self.note_of(no)?.encode().len() + 8192)
            .with_objects(with.len() as u64)
            .with_names(changed as u64)
            .freeing())
    }

    /// Installs a state under the locks of these objects. Returns `false` if others must be locked,
    /// too.
    fn try_install(
        &self,
        arriving: ArrivingState<'_>,
        with: &[ObjectNo],
    ) -> Result<bool, SyncError> {
        let ArrivingState { version, known, .. } = arriving;
        let no = version.object;
        let op = self.begin_operation(self.cost_of_version(version, with, known)?)?;
        let wanted: Vec<ObjectNo> = with.iter().copied().chain(known.then_some(no)).collect();
        let mut locked = match op.lock(&wanted) {
            // A directory went away since the plan was made.
            Err(StoreError::NotFound(_)) => return Ok(false),
            locked => locked?,
        };
        if has_unlocked_holder(&locked, version, with)? {
            return Ok(false);
        }
        let mut note = self.note_of(no)?;
        let mut invalidations = Vec::new();
        self.install_components(&mut locked, arriving, with, &mut note, &mut invalidations)?;
        // The object has its names: a former one is of no interest.
        if !note.needs_look {
            note.lost_name = None;
        }
        // The note changes in the same operation as the object.
        self.set_note(&locked, no, &note)?;
        // Without a name and without a reference, the object is given back.
        let fate = self.volume().decide_fate(&mut locked, no, self)?;
        if note.needs_look {
            // Even of one that has no place here for now, and has gone.
            let kept = ObjectNote {
                needs_look: true,
                ..self.note_of(no)?
            };
            self.set_note(&locked, no, &kept)?;
            self.state().set_needs_look();
        }
        // The kernel is told without any lock: its answer may need them.
        drop(locked);
        drop(op);
        // Giving back large content takes several operations.
        self.volume().reclaim(fate, self);
        // The batch that was acknowledged has content that drives lack.
        if arriving.committed.is_some() {
            self.drive_set()
                .queue_content(no, version.size, self.monotonic(), None);
        }
        for what in invalidations {
            self.volume().invalidations().tell(what);
        }
        self.queue_pinned(no);
        Ok(true)
    }

    /// Installs the components of a state that are the server's here, and updates the note.
    fn install_components(
        &self,
        locked: &mut LockedObjects<'_>,
        arriving: ArrivingState<'_>,
        with: &[ObjectNo],
        note: &mut ObjectNote,
        invalidations: &mut Vec<Invalidation>,
    ) -> Result<(), SyncError> {
        let ArrivingState {
            version, committed, ..
        } = arriving;
        // A stub has the type and the attributes; all content is absent.
        if !arriving.known {
            self.create_stub(locked, version, note)?;
        }
        let size = locked.attr(version.object).size;
        let was_sent = note.has_sent_content(committed);
        let was_in_batch = note.is_in_batch(committed);
        let free = if arriving.known {
            acknowledge_components(note, version, committed, arriving.past, size)
        } else {
            InstallableComponents::ALL
        };
        let is_clean = note.dirty.data.is_none() && !note.dirty.created;
        let is_as_sent = was_in_batch && is_clean && free.content == InstallableContent::None;
        // Neither changed here since nor changed by another: it is here as this commit has it.
        if let Some(batch) = committed.filter(|batch| is_as_sent && version.data_seq == batch.seq) {
            self.settled_content().remember(version.object, batch.seq);
        }
        // Attributes before content: installing content sets the times again.
        if free.attributes {
            install_attributes(locked, version, free.times, invalidations);
        }
        let mut behind = None;
        if free.xattrs
            // Attributes that do not fit wait until this replica's own are sent.
            && install_xattrs(locked, version, note, invalidations)? == XattrFit::Partly
        {
            behind = Some(note.behind_since.unwrap_or(self.position()));
        }
        if arriving.known && version.kind == FileType::File {
            self.install_file_content(locked, arriving, (free, was_sent), note, invalidations)?;
        }
        note.needs_look = behind.is_some();
        note.behind_since = behind;
        // Names of this replica that are dirty stay.
        if free.links {
            let keeps = note.is_ours() || version.kind.is_dir();
            note.needs_look |= self.install_names(locked, version, with, keeps, invalidations)?;
        }
        Ok(())
    }

    /// Installs the content of a file that is here. `was_sent`: content of this machine was in the
    /// batch that is acknowledged.
    fn install_file_content(
        &self,
        locked: &mut LockedObjects<'_>,
        arriving: ArrivingState<'_>,
        (free, was_sent): (InstallableComponents, bool),
        note: &mut ObjectNote,
        invalidations: &mut Vec<Invalidation>,
    ) -> Result<(), SyncError> {
        let ArrivingState {
            version,
            ranges,
            committed,
            ..
        } = arriving;
        let behind_tail;
        let ranges = match free.content {
            InstallableContent::None => return Ok(()),
            // Content of this machine that lost a conflict lies in the file wherever it was
            // written, not only where others wrote.
            InstallableContent::Changed if was_sent => Some(&[(0, CONTENT_END)][..]),
            InstallableContent::Changed => ranges,
            InstallableContent::BehindTail(tail) => {
                behind_tail = ranges_behind(&tail, version, ranges, committed, self.position());
                behind_tail.as_deref()
            }
        };
        let size = locked.attr(version.object).size;
        let given = self.content_given(version, note, free.content, was_sent);
        if install_content_of(locked, version, (ranges, free.times), note)?
            == InstalledContent::Replaced
        {
            self.content_replaced(version, size, given, invalidations);
        }
        Ok(())
    }

    /// Creates a new object as the server has it, still empty.
    fn create_stub(
        &self,
        locked: &mut LockedObjects<'_>,
        version: &ObjectVersion,
        note: &mut ObjectNote,
    ) -> Result<(), StoreError> {
        let no = version.object;
        let kind = version.kind;
        let of = &version.attributes;
        let new = NewObject {
            kind,
            perm: of.perm,
            uid: of.uid,
            gid: of.gid,
            rdev: of.rdev,
            now: of.btime,
        };
        locked.create_as(no, new)?;
        match kind {
            FileType::Symlink => locked.set_target(no, &version.target),
            FileType::Dir => note.unlisted = true,
            // The size is known at once; the content comes when it is read.
            FileType::File if version.size > 0 => {
                locked.truncate(no, version.size)?;
                note.absent.add(0, version.size);
                note.data_seq = version.data_seq;
            }
            _ => {}
        }
        let times = AttributeChanges {
            mtime: Some(of.mtime),
            ctime: Some(of.ctime),
            ..AttributeChanges::default()
        };
        locked.set_attr(no, times);
        Ok(())
    }
}

/// Returns whether an object that is not locked has one of the version's names: it took the name
/// after the locks were planned.
fn has_unlocked_holder(
    locked: &LockedObjects<'_>,
    version: &ObjectVersion,
    with: &[ObjectNo],
) -> Result<bool, StoreError> {
    for link in &version.links {
        if with.contains(&link.dir)
            && let Some((there, _)) = locked.entry(link.dir, &link.name)?
            && there != version.object
            && !with.contains(&there)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether a volume may number an object so; what else comes from a server is no object,
/// and must not reach the notes of this replica.
pub(crate) fn is_replicated_number(no: ObjectNo) -> bool {
    (ObjectNo::ROOT.get()..REPLICATED_LIMIT).contains(&no.get())
}
