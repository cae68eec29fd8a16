//! Installing the server's names of an object, and the end of objects that are gone there.
//!
//! # Guarantees
//! 1. Names the server has given to others give way; names that are dirty here do not: then the
//!    object is looked at again later.
//! 2. An object with something dirty is never given back because the server does not have it.
//! 3. A directory goes only when nothing is in it any more.

use super::committed::CommittedBatch;
use super::install::links_of;
use super::{ObjectNote, Replica, SyncError};
use std::collections::HashMap;
use teal_log::{Cost, LockedObjects, StoreError};
use teal_proto::conflict_name;
use teal_types::{HardLink, Name, ObjectNo, ObjectVersion};
use teal_volume::Invalidation;

/// The most conflict names of one file that are tried here; the server tries more.
const CONFLICT_NAMES_MAX: u32 = 1000;

/// A name in the root for what has no better place.
fn number_name(no: ObjectNo) -> Option<HardLink> {
    let name = Name::new(format!("object-{}", no.get()).as_bytes()).ok()?;
    Some(HardLink {
        dir: ObjectNo::ROOT,
        name,
    })
}

impl Replica {
    /// Gives a locked object the names it has at the server. `with`: what is locked beside it.
    /// `keeps`: something of it is dirty, or lies in it, so it must keep a name.
    #[allow(
        clippy::too_many_arguments,
        reason = "one step of installing, under one lock"
    )]
    pub(crate) fn install_names(
        &self,
        locked: &mut LockedObjects<'_>,
        version: &ObjectVersion,
        with: &[ObjectNo],
        keeps: bool,
        needs_look: &mut bool,
        told: &mut Vec<Invalidation>,
    ) -> Result<(), SyncError> {
        let no = version.object;
        if no == ObjectNo::ROOT {
            return Ok(());
        }
        let here = links_of(locked, no);
        // An object that is here gets all its names, so that their number is right: a listing takes
        // up what is in a directory already.
        let mut has_place = keeps || !here.is_empty();
        for link in version.links.iter().filter(|link| with.contains(&link.dir)) {
            has_place = has_place || self.has_entries(link.dir)?;
        }
        let mut new = Vec::new();
        for link in version.links.iter().filter(|link| !here.contains(link)) {
            if !with.contains(&link.dir) || !has_place {
                continue;
            }
            // A directory without a name has lost it to another and gets one later, or was removed
            // here, of which the server is to hear.
            if !locked.is_linked(link.dir) || self.is_taken(locked, link)? {
                *needs_look = true;
            } else {
                new.push(link);
            }
        }
        let old: Vec<&HardLink> = here
            .iter()
            .filter(|link| !version.links.contains(link))
            .collect();
        if keeps && new.is_empty() && old.len() == here.len() {
            // Where it went is not here: it stays where it was until it is. If another has taken
            // its name there, it has none until then.
            *needs_look |= !old.is_empty() || here.is_empty();
            return Ok(());
        }
        if !old.is_empty() || !new.is_empty() {
            // How many names it has.
            told.push(Invalidation::Attributes(no));
        }
        for link in old {
            locked.remove_entry(link.dir, &link.name)?;
            told.push(Invalidation::Entry(link.dir, link.name.clone()));
            told.push(Invalidation::Data(link.dir, 0, 0));
        }
        if here.is_empty() && !new.is_empty() && !self.volume().references().is_linkable(no) {
            // It had lost its last name to another.
            locked.set_orphan(no, false)?;
        }
        for link in new {
            // In a directory without its entries no name was ever looked up. Who is told to forget
            // one that he learns just now loses it: a program that has entered a directory would
            // not know any more where it is.
            let mut is_known = !self.note_of(link.dir)?.unlisted || self.listings().has_again();
            if let Some((there, _)) = locked.entry(link.dir, &link.name)? {
                is_known = true;
                locked.remove_entry(link.dir, &link.name)?;
                self.note_displaced(locked, there, link)?;
                told.push(Invalidation::Attributes(there));
            }
            locked.insert_entry(link.dir, &link.name, no)?;
            self.volume().references().note_first_name(no);
            if is_known {
                told.push(Invalidation::Entry(link.dir, link.name.clone()));
                told.push(Invalidation::Data(link.dir, 0, 0));
            } else {
                told.push(Invalidation::Attributes(link.dir));
            }
        }
        Ok(())
    }

    /// Returns whether a name leads here to what has it since something that the server has not
    /// heard of.
    fn is_taken(&self, locked: &LockedObjects<'_>, link: &HardLink) -> Result<bool, StoreError> {
        let Some((there, _)) = locked.entry(link.dir, &link.name)? else {
            return Ok(false);
        };
        let ours = self.note_of(there)?;
        Ok(ours.dirty.created || ours.dirty.links.is_some() || ours.in_flight.is_some())
    }

    /// An object has lost a name to another: what it has instead comes with its own state, or is
    /// asked for.
    fn note_displaced(
        &self,
        locked: &mut LockedObjects<'_>,
        no: ObjectNo,
        link: &HardLink,
    ) -> Result<(), StoreError> {
        let mut note = self.note_of(no)?;
        note.needs_look = true;
        note.lost_name = note.is_ours().then(|| link.clone());
        self.state().set_needs_look();
        self.set_note(locked, no, &note)?;
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
        self.sort_deepest_first(&mut gone);
        loop {
            let before = gone.len();
            let mut left = Vec::new();
            for no in gone {
                match self.remove_or_hold(no, committed)? {
                    true => self.drive_set().object_ended(no),
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
        let dir_of = |no: ObjectNo| self.store().names(no).ok()?.first().map(|(dir, _)| *dir);
        let above: HashMap<ObjectNo, ObjectNo> = gone
            .iter()
            .filter_map(|no| Some((*no, dir_of(*no)?)))
            .collect();
        let mut depths: HashMap<ObjectNo, u64> = HashMap::new();
        for no in gone.iter() {
            let (mut way, mut at) = (Vec::new(), *no);
            while let Some(dir) = above
                .get(&at)
                .filter(|_| !depths.contains_key(&at) && way.len() < gone.len())
            {
                way.push(at);
                at = *dir;
            }
            let mut depth = depths.get(&at).copied().unwrap_or(0);
            for below in way.into_iter().rev() {
                depth += 1;
                depths.insert(below, depth);
            }
        }
        gone.sort_by_key(|no| std::cmp::Reverse(depths.get(no).copied().unwrap_or(0)));
    }

    /// `false`: a directory that is not empty.
    pub(crate) fn remove_one(
        &self,
        no: ObjectNo,
        committed: Option<CommittedBatch>,
    ) -> Result<bool, SyncError> {
        let _names = self.volume().share_namespace();
        let names = match self.store().names(no) {
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
        let lost = self
            .note_of(no)?
            .lost_name
            .map(|link| link.dir)
            .filter(|dir| self.store().attr(*dir).is_ok());
        let dirs = names.iter().map(|(dir, _)| *dir).chain(lost);
        let with: Vec<ObjectNo> = dirs.chain([no, ObjectNo::ROOT]).collect();
        let mut locked = match op.lock(&with) {
            Err(StoreError::NotFound(_)) => return Ok(false),
            locked => locked?,
        };
        let mut note = self.note_of(no)?;
        if note
            .in_flight
            .as_ref()
            .is_some_and(|in_flight| in_flight.was_committed_in(committed))
        {
            note.in_flight = None;
        }
        if note.is_ours() {
            // It was changed here: the server hears of it, and lets it live again.
            self.name_anew(&mut locked, no, &mut note, lost)?;
            self.set_note(&locked, no, &note)?;
            return Ok(true);
        }
        if locked.attr(no).kind.is_dir() && locked.entry_count(no) > 0 {
            // What is in it is dirty: the server hears of that, and brings this back, or takes that
            // away, too. What was in flight was committed all the same.
            note.needs_look = true;
            self.state().set_needs_look();
            self.set_note(&locked, no, &note)?;
            return Ok(false);
        }
        let mut told = Vec::new();
        for (dir, name) in locked.names(no) {
            locked.remove_entry(dir, &name)?;
            told.push(Invalidation::Entry(dir, name));
            told.push(Invalidation::Data(dir, 0, 0));
        }
        self.set_note(&locked, no, &ObjectNote::default())?;
        let fate = self.volume().decide_fate(&mut locked, no, self)?;
        drop(locked);
        drop(op);
        self.volume().reclaim(fate, self);
        told.into_iter()
            .for_each(|what| self.volume().invalidations().tell(what));
        Ok(true)
    }

    /// Returns whether an object has lost its name here to another and waits for the one it has at
    /// the server: something is in it, or something of it is dirty, and it was not removed here.
    pub(crate) fn is_displaced(
        &self,
        locked: &LockedObjects<'_>,
        no: ObjectNo,
    ) -> Result<bool, StoreError> {
        if locked.attr(no).kind.is_dir() && locked.entry_count(no) > 0 {
            return Ok(true);
        }
        let note = self.note_of(no)?;
        Ok(note.needs_look && note.is_ours() && !note.dirty.gone && note.dirty.links.is_none())
    }

    /// What lost its name here to another, and is gone there, gets the conflict name beside
    /// that; one in the root if the directory has gone too. The server knows what became of the
    /// other since, and may decide otherwise. `lost`: where it lay, if that is here and locked.
    fn name_anew(
        &self,
        locked: &mut LockedObjects<'_>,
        no: ObjectNo,
        note: &mut ObjectNote,
        lost: Option<ObjectNo>,
    ) -> Result<(), StoreError> {
        if !note.needs_look || note.dirty.gone || locked.is_linked(no) {
            return Ok(());
        }
        let is_here = |link: &HardLink| {
            lost == Some(link.dir) && (link.dir == ObjectNo::ROOT || locked.is_linked(link.dir))
        };
        let beside = match note.lost_name.clone().filter(is_here) {
            Some(link) => self.free_name_beside(locked, &link)?,
            None => None,
        };
        let Some(HardLink { dir, name }) = beside.or_else(|| number_name(no)) else {
            return Ok(());
        };
        if locked.entry(dir, &name)?.is_some() {
            return Ok(());
        }
        locked.set_orphan(no, false)?;
        locked.insert_entry(dir, &name, no)?;
        self.volume().references().note_first_name(no);
        (note.needs_look, note.lost_name) = (false, None);
        note.dirty
            .links
            .get_or_insert((self.position(), Vec::new()));
        self.volume()
            .invalidations()
            .tell(Invalidation::Entry(dir, name));
        self.volume()
            .invalidations()
            .tell(Invalidation::Data(dir, 0, 0));
        Ok(())
    }

    /// The first conflict name of `link` that nothing has here.
    fn free_name_beside(
        &self,
        locked: &LockedObjects<'_>,
        link: &HardLink,
    ) -> Result<Option<HardLink>, StoreError> {
        for number in 1..=CONFLICT_NAMES_MAX {
            let name = conflict_name(&link.name, &self.device_name(), self.volume().now(), number);
            if locked.entry(link.dir, &name)?.is_none() {
                return Ok(Some(HardLink {
                    dir: link.dir,
                    name,
                }));
            }
        }
        Ok(None)
    }

    /// Of an object that is gone on both sides.
    fn remove_note(
        &self,
        no: ObjectNo,
        committed: Option<CommittedBatch>,
    ) -> Result<(), SyncError> {
        let note = self.note_of(no)?;
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
