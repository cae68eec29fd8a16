//! Installing the server's names of an object, and the end of objects that are gone there.
//!
//! # Guarantees
//! 1. Names the server has given to others give way; names that are dirty here do not: then the
//!    object is looked at again later.
//! 2. An object with something dirty is never given back because the server does not have it.
//! 3. A directory goes only when nothing is in it any more.

use super::committed::CommittedBatch;
use super::note::links_of;
use super::{ObjectNote, Replica, SyncError};
use std::collections::HashMap;
use teal_log::{Cost, LockedObjects, StoreError};
use teal_proto::conflict_name;
use teal_types::{HardLink, Name, ObjectNo, ObjectVersion};
use teal_volume::{Invalidation, ObjectFate};

/// The most conflict names of one file that are tried here; the server tries more.
const CONFLICT_NAMES_MAX: u32 = 1000;

/// The state here of an object that is gone at the server.
enum GoneObject {
    /// The object was changed here, and stays until the server has heard of that.
    Lives,
    /// The directory still has entries.
    HasEntries,
    /// Its names were removed.
    Removed(ObjectFate),
}

/// The names of an object that can be entered now.
#[derive(Default)]
struct EnterableNames<'v> {
    new: Vec<&'v HardLink>,
    /// The object must be looked at again, because of a name that cannot be entered yet.
    needs_look: bool,
}

/// Returns a name in the root for an object without a better place.
fn number_name(no: ObjectNo) -> Option<HardLink> {
    let name = Name::new(format!("object-{}", no.get()).as_bytes()).ok()?;
    Some(HardLink {
        dir: ObjectNo::ROOT,
        name,
    })
}

impl Replica {
    /// Gives a locked object the names it has at the server. `with`: what is locked beside it.
    /// `keeps`: something of it is dirty, or lies in it, so it must keep a name. Returns whether
    /// the object must be looked at again, because a name cannot be entered yet.
    pub(crate) fn install_names(
        &self,
        locked: &mut LockedObjects<'_>,
        version: &ObjectVersion,
        with: &[ObjectNo],
        keeps: bool,
        invalidations: &mut Vec<Invalidation>,
    ) -> Result<bool, SyncError> {
        let no = version.object;
        // The root has no names.
        if no == ObjectNo::ROOT {
            return Ok(false);
        }
        let here = links_of(locked, no);
        let has_place = keeps || !here.is_empty() || self.has_listed_parent(version, with)?;
        let missing = version.links.iter().filter(|link| !here.contains(link));
        let EnterableNames { new, needs_look } = if has_place {
            self.enterable_names(locked, missing, with)?
        } else {
            // The names are entered with the listing of their directory.
            EnterableNames::default()
        };
        let mut old = here.clone();
        old.retain(|link| !version.links.contains(link));
        if keeps && new.is_empty() && old.len() == here.len() {
            // The new directory is not here: the object stays in its old one until it is. If
            // another object has taken its name there, it has none until then.
            return Ok(needs_look || !old.is_empty() || here.is_empty());
        }
        if !old.is_empty() || !new.is_empty() {
            // The kernel's link count is old.
            invalidations.push(Invalidation::Attributes(no));
        }
        // Old names go first: a directory must never have two.
        for link in old {
            let HardLink { dir, name } = link;
            locked.remove_entry(dir, &name)?;
            invalidations.push(Invalidation::Entry(dir, name));
            invalidations.push(Invalidation::Data(dir, 0, 0));
        }
        if here.is_empty() && !new.is_empty() && !self.volume().references().is_linkable(no) {
            // The object had lost its last name to another one.
            locked.set_orphan(no, false)?;
        }
        for link in new {
            self.enter_name(locked, no, link, invalidations)?;
        }
        Ok(needs_look)
    }

    /// Returns which of the names that the server has, and this store lacks, can be entered now:
    /// those in the directories `with`, which are locked.
    fn enterable_names<'v>(
        &self,
        locked: &LockedObjects<'_>,
        missing: impl Iterator<Item = &'v HardLink>,
        with: &[ObjectNo],
    ) -> Result<EnterableNames<'v>, StoreError> {
        let mut names = EnterableNames::default();
        for link in missing {
            // The directory is not here: the name is entered with its listing.
            if !with.contains(&link.dir) {
                continue;
            }
            // A directory without a name has lost it to another and gets one later, or was removed
            // here, of which the server is to hear.
            if !locked.is_linked(link.dir) || self.is_taken(locked, link)? {
                names.needs_look = true;
            } else {
                names.new.push(link);
            }
        }
        Ok(names)
    }

    /// Returns whether one of the object's directories is locked here and has all its entries.
    ///
    /// An object that is here gets all its names, so that their number is right: a listing takes up
    /// what is in a directory already.
    fn has_listed_parent(
        &self,
        version: &ObjectVersion,
        with: &[ObjectNo],
    ) -> Result<bool, StoreError> {
        for link in &version.links {
            if with.contains(&link.dir) && self.has_entries(link.dir)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Enters a name of an object into its directory. Another object that has the name loses it.
    fn enter_name(
        &self,
        locked: &mut LockedObjects<'_>,
        no: ObjectNo,
        link: &HardLink,
        invalidations: &mut Vec<Invalidation>,
    ) -> Result<(), StoreError> {
        // No name was ever looked up in a directory without its entries. A program that is
        // told to forget a name that it learns at this moment loses it: a process in
        // that directory would not know its place any more.
        let mut is_known = !self.note_of(link.dir)?.unlisted || self.listings().has_again();
        if let Some((there, _)) = locked.entry(link.dir, &link.name)? {
            is_known = true;
            // The former holder loses the name: the server has another one for it.
            locked.remove_entry(link.dir, &link.name)?;
            self.note_displaced(locked, there, link)?;
            invalidations.push(Invalidation::Attributes(there));
        }
        locked.insert_entry(link.dir, &link.name, no)?;
        // A name ends the state of an object that only a file descriptor holds.
        self.volume().references().note_first_name(no);
        if is_known {
            invalidations.push(Invalidation::Entry(link.dir, link.name.clone()));
            invalidations.push(Invalidation::Data(link.dir, 0, 0));
        } else {
            invalidations.push(Invalidation::Attributes(link.dir));
        }
        Ok(())
    }

    /// Returns whether a name leads to an object that got it here by a change that the server does
    /// not know.
    fn is_taken(&self, locked: &LockedObjects<'_>, link: &HardLink) -> Result<bool, StoreError> {
        let Some((there, _)) = locked.entry(link.dir, &link.name)? else {
            return Ok(false);
        };
        let ours = self.note_of(there)?;
        // A name of this replica's own change wins until the server has decided.
        Ok(ours.dirty.created || ours.dirty.links.is_some() || ours.in_flight.is_some())
    }

    /// Notes that an object has lost a name to another one. Its new name comes with its own state,
    /// or is asked for.
    fn note_displaced(
        &self,
        locked: &mut LockedObjects<'_>,
        no: ObjectNo,
        link: &HardLink,
    ) -> Result<(), StoreError> {
        let mut note = self.note_of(no)?;
        note.needs_look = true;
        note.lost_name = note.is_ours().then(|| link.clone());
        // The former holder is looked up at the server in the next round.
        self.state().set_needs_look();
        self.set_note(locked, no, &note)?;
        // Without a name, the object must be found after a crash.
        if !locked.is_linked(no) {
            locked.set_orphan(no, true)?;
        }
        Ok(())
    }

    /// Ends what is gone at the server, children before their directories.
    pub(crate) fn remove_gone(
        &self,
        mut gone: Vec<ObjectNo>,
        committed: Option<CommittedBatch>,
    ) -> Result<(), SyncError> {
        self.acknowledge_gone(&gone, committed)?;
        // Contents go before their directories.
        self.sort_deepest_first(&mut gone);
        loop {
            let before = gone.len();
            let mut left = Vec::new();
            for no in gone {
                match self.remove_or_hold(no, committed)? {
                    true => self.drive_set().object_ended(no),
                    // A directory with dirty content stays until the next round.
                    false => left.push(no),
                }
            }
            if left.is_empty() || left.len() == before {
                // Directories in which something is dirty: they are looked at again.
                return Ok(());
            }
            gone = left;
        }
    }

    /// Orders objects so that what lies in a directory comes before it: one pass then ends all of a
    /// tree.
    fn sort_deepest_first(&self, gone: &mut [ObjectNo]) {
        // The depth below the removed directories is enough.
        let dir_of = |no: ObjectNo| self.store().names(no).ok()?.first().map(|(dir, _)| *dir);
        let above: HashMap<ObjectNo, ObjectNo> = gone
            .iter()
            .filter_map(|no| Some((*no, dir_of(*no)?)))
            .collect();
        let mut depths: HashMap<ObjectNo, u64> = HashMap::new();
        for no in gone.iter() {
            // Each object is measured once. The walk is bounded, because names may have formed a
            // cycle.
            let mut way = Vec::new();
            let mut at = *no;
            while let Some(dir) = above
                .get(&at)
                .filter(|_| !depths.contains_key(&at) && way.len() < gone.len())
            {
                way.push(at);
                at = *dir;
            }
            let mut depth = depths.get(&at).copied().unwrap_or(0);
            // Depths are assigned from the top down.
            for below in way.into_iter().rev() {
                depth += 1;
                depths.insert(below, depth);
            }
        }
        gone.sort_by_key(|no| std::cmp::Reverse(depths.get(no).copied().unwrap_or(0)));
    }

    /// Ends an object that is gone at the server. Returns `false` for a directory that is not
    /// empty.
    pub(crate) fn remove_one(
        &self,
        no: ObjectNo,
        committed: Option<CommittedBatch>,
    ) -> Result<bool, SyncError> {
        let _names = self.volume().share_namespace();
        let names = match self.store().names(no) {
            // Only the note is left of it.
            Err(StoreError::NotFound(_)) => return self.remove_note(no, committed).map(|()| true),
            names => names?,
        };
        let removed = Cost::unlink().with_objects(names.len() as u64);
        let cost = self
            .volume()
            .cost_of_names(removed, &[no])?
            .with_note(4096)
            .freeing();
        let op = self.begin_operation(cost)?;
        // The directory that the object lost its name in may get a conflict name for it.
        let lost = self
            .note_of(no)?
            .lost_name
            .map(|link| link.dir)
            .filter(|dir| self.store().attr(*dir).is_ok());
        let dirs = names.iter().map(|(dir, _)| *dir).chain(lost);
        let with: Vec<ObjectNo> = dirs.chain([no, ObjectNo::ROOT]).collect();
        let mut locked = match op.lock(&with) {
            // A directory went away meanwhile: tried again in the next pass.
            Err(StoreError::NotFound(_)) => return Ok(false),
            locked => locked?,
        };
        let mut invalidations = Vec::new();
        let fate =
            match self.remove_locked(&mut locked, no, (committed, lost), &mut invalidations)? {
                GoneObject::Lives => return Ok(true),
                GoneObject::HasEntries => return Ok(false),
                GoneObject::Removed(fate) => fate,
            };
        // The kernel is told without any lock: its answer may need them.
        drop(locked);
        drop(op);
        self.volume().reclaim(fate, self);
        for what in invalidations {
            self.volume().invalidations().tell(what);
        }
        Ok(true)
    }

    /// Removes the names of a locked object that is gone at the server, unless something here needs
    /// the object. `lost` is the directory of the name that it lost here.
    fn remove_locked(
        &self,
        locked: &mut LockedObjects<'_>,
        no: ObjectNo,
        (committed, lost): (Option<CommittedBatch>, Option<ObjectNo>),
        invalidations: &mut Vec<Invalidation>,
    ) -> Result<GoneObject, SyncError> {
        let mut note = self.note_of(no)?;
        if note.is_in_batch(committed) {
            // The removal is the server's answer to this batch: nothing is in flight any more.
            note.in_flight = None;
        }
        if note.is_ours() {
            // The object was changed here: the server hears of it, and lets it live again.
            self.name_anew(locked, no, &mut note, lost)?;
            self.set_note(locked, no, &note)?;
            return Ok(GoneObject::Lives);
        }
        if locked.attr(no).kind.is_dir() && locked.entry_count(no) > 0 {
            // The directory holds dirty objects: the server hears of those, and brings it back, or
            // takes them away, too. Components in flight were committed all the same.
            note.needs_look = true;
            self.state().set_needs_look();
            self.set_note(locked, no, &note)?;
            return Ok(GoneObject::HasEntries);
        }
        for (dir, name) in locked.names(no) {
            locked.remove_entry(dir, &name)?;
            invalidations.push(Invalidation::Entry(dir, name));
            invalidations.push(Invalidation::Data(dir, 0, 0));
        }
        self.set_note(locked, no, &ObjectNote::default())?;
        let fate = self.volume().decide_fate(locked, no, self)?;
        Ok(GoneObject::Removed(fate))
    }

    /// Returns whether an object has lost its name here to another and waits for the one it has at
    /// the server: something is in it, or something of it is dirty, and it was not removed here.
    pub(crate) fn is_displaced(
        &self,
        locked: &LockedObjects<'_>,
        no: ObjectNo,
    ) -> Result<bool, StoreError> {
        // A directory with entries is not given back.
        if locked.attr(no).kind.is_dir() && locked.entry_count(no) > 0 {
            return Ok(true);
        }
        let note = self.note_of(no)?;
        Ok(note.needs_look && note.is_ours() && !note.dirty.gone && note.dirty.links.is_none())
    }

    /// Names an object that lost its name here to another one, and is gone at the server: it gets
    /// the conflict name beside the lost one, or a name in the root if that directory has gone,
    /// too. The server knows the later fate of the other object, and may decide otherwise. `lost`
    /// is the directory of the lost name, if that is here and locked.
    fn name_anew(
        &self,
        locked: &mut LockedObjects<'_>,
        no: ObjectNo,
        note: &mut ObjectNote,
        lost: Option<ObjectNo>,
    ) -> Result<(), StoreError> {
        // The object has a name, or needs none.
        if !note.needs_look || note.dirty.gone || locked.is_linked(no) {
            return Ok(());
        }
        let is_here = |link: &HardLink| {
            lost == Some(link.dir) && (link.dir == ObjectNo::ROOT || locked.is_linked(link.dir))
        };
        // Beside the former name if that directory is here, else in the root.
        let beside = match note.lost_name.clone().filter(is_here) {
            Some(link) => self.free_name_beside(locked, &link)?,
            None => None,
        };
        let Some(HardLink { dir, name }) = beside.or_else(|| number_name(no)) else {
            return Ok(());
        };
        if locked.entry(dir, &name)?.is_some() {
            // The name is taken: the object waits for the server.
            return Ok(());
        }
        locked.set_orphan(no, false)?;
        locked.insert_entry(dir, &name, no)?;
        self.volume().references().note_first_name(no);
        note.needs_look = false;
        note.lost_name = None;
        note.dirty
            .links
            // The new name is a change of this replica: it has none at the server.
            .get_or_insert((self.position(), Vec::new()));
        self.volume()
            .invalidations()
            .tell(Invalidation::Entry(dir, name));
        self.volume()
            .invalidations()
            .tell(Invalidation::Data(dir, 0, 0));
        Ok(())
    }

    /// Returns the first conflict name of `link` that is free here.
    fn free_name_beside(
        &self,
        locked: &LockedObjects<'_>,
        link: &HardLink,
    ) -> Result<Option<HardLink>, StoreError> {
        for number in 1..=CONFLICT_NAMES_MAX {
            // The name tells the machine and the time, as at the server.
            let name = conflict_name(&link.name, self.device_name(), self.volume().now(), number);
            if locked.entry(link.dir, &name)?.is_none() {
                return Ok(Some(HardLink {
                    dir: link.dir,
                    name,
                }));
            }
        }
        Ok(None)
    }

    /// Removes the note of an object that is gone on both sides.
    fn remove_note(
        &self,
        no: ObjectNo,
        committed: Option<CommittedBatch>,
    ) -> Result<(), SyncError> {
        let note = self.note_of(no)?;
        // A batch in flight still needs the note.
        if note.is_empty()
            || note
                .in_flight
                .as_ref()
                .is_some_and(|in_flight| !in_flight.was_committed_in(committed))
        {
            return Ok(());
        }
        let op = self.begin_operation(Cost::note().freeing())?;
        op.set_note(no, None)?;
        Ok(())
    }
}
