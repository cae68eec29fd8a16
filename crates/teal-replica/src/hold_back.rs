//! Holding back: an object that cannot be sent or installed waits by itself, and everything else
//! goes on.
//!
//! # Guarantees
//! 1. A change that the server refuses, or that cannot be read here, keeps no other from being
//!    sent, but those that require it: objects in a new directory that is held back, and objects
//!    that take over a name that it had.
//! 2. A state of the server that cannot be installed here keeps no other from being installed; the
//!    object stays as it was.
//! 3. An object that is held back has its path and the reason in [`StuckObject`], counts as not
//!    safe, and is tried again: at growing intervals, and whenever a flush is asked for.
//! 4. *Bounded*: finding out what of `n` objects a server refuses takes about `2 log n` batches for
//!    each; after [`FAILURES_MAX`] objects in a row were refused by themselves, it is the server
//!    that takes nothing.
//!
//! # How
//! 1. A refused batch is taken back; the next one has half as many objects, those with the least
//!    content first. One object that is refused by itself, with what it needs, is held back, and
//!    batches grow again.
//! 2. If the server's disk is full, everything with at least as much content as the refused object
//!    is held back with it: it would only fill the disk for smaller ones.
//! 3. The note of an object that could not be installed says since which commit it is behind
//!    (`ObjectNote::behind_since`). Changes of it from then on were made without having seen the
//!    newer state, and meet the rules of conflicts.

use super::acknowledge::acknowledge_components;
use super::committed::CommittedBatch;
use super::install::is_replicated_number;
use super::stuck::{OBJECTS_MAX, RefusalOrigin, StuckDirection};
use super::{Replica, SyncError};
use crate::seeded::{Bug, bug};
use std::collections::{BTreeSet, HashMap};
use teal_device::UpstreamError;
use teal_log::StoreError;
use teal_proto::RefusalCode;
use teal_types::{HardLink, ObjectNo, ObjectVersion};
use teal_volume::FsError;

/// The cause of a failed batch, as far as it concerns the objects in the batch.
enum FailureCause {
    /// Nothing: the server cannot be asked, or takes nothing at all now.
    NotContent,
    /// Nothing: the server has forgotten what it was sent before, and is sent it again.
    SendAgain,
    /// One of them.
    OneObject,
    /// The objects with the most content: the server's disk is full.
    LargeContent,
}

fn cause_of(e: &SyncError) -> FailureCause {
    match e {
        SyncError::Upstream(UpstreamError::Refused(refused)) => match refused.code {
            // The server is full: a smaller batch may still fit.
            RefusalCode::NoSpace => FailureCause::LargeContent,
            // The server has lost a part of the batch, as after a restart: the same batch may go
            // again.
            RefusalCode::NeedsChunks | RefusalCode::NeedsParts => FailureCause::SendAgain,
            RefusalCode::BadRequest | RefusalCode::Damaged => FailureCause::OneObject,
            _ => FailureCause::NotContent,
        },
        SyncError::Upstream(UpstreamError::Protocol(_)) | SyncError::TooLarge => {
            FailureCause::OneObject
        }
        SyncError::Fs(e) if is_of_object(e) => FailureCause::OneObject,
        _ => FailureCause::NotContent,
    }
}

/// Returns whether a failure is about the object that was read or changed, and not about the whole
/// store or the way to the server.
pub(crate) fn is_of_object(e: &FsError) -> bool {
    !matches!(
        e,
        FsError::Io(StoreError::Poisoned)
            | FsError::ReadOnly
            | FsError::Unreachable(_)
            | FsError::Denied(_)
            | FsError::NotNow(_)
            | FsError::Refused(_)
            | FsError::OnlyHere(_)
            | FsError::Stuck(_)
    )
}

impl Replica {
    /// Makes the next batch smaller after a batch of these objects was refused and taken back, or
    /// holds back an object that is refused by itself. Fails as the batch did if the content of the
    /// batch is not the cause.
    pub(crate) fn narrow_batch(&self, objects: &[ObjectNo], e: SyncError) -> Result<(), SyncError> {
        let blame = cause_of(&e);
        // The whole server is out of reach, or the batch has no object to blame.
        if matches!(blame, FailureCause::NotContent) || objects.is_empty() || bug(Bug::OneStopsAll)
        {
            return Err(e);
        }
        if matches!(blame, FailureCause::SendAgain) {
            return self.stuck().count_failure(e);
        }
        {
            let mut held = self.stuck();
            // The batch is halved, until one with a single object fails: bisection finds the
            // culprit.
            if held.limit > 1 && objects.len() > 1 && !held.is_retry {
                held.limit = held
                    .limit
                    .min(objects.len())
                    .div_ceil(2)
                    .min(objects.len() - 1);
                return Ok(());
            }
        }
        let why = e.to_string();
        let said = if matches!(e, SyncError::Upstream(_)) {
            RefusalOrigin::Server
        } else {
            RefusalOrigin::Local
        };
        self.hold_all(objects, (said, &why));
        if matches!(blame, FailureCause::LargeContent) {
            // A file at least as large does not fit either. It is not tried before its turn.
            let larger = self.dirty_at_least_as_large(objects)?;
            self.hold_all(&larger, (said, &why));
        }
        self.stuck().count_failure(e)
    }

    /// Returns the dirty objects with at least as much content as the smallest of these.
    fn dirty_at_least_as_large(&self, objects: &[ObjectNo]) -> Result<Vec<ObjectNo>, SyncError> {
        let mut least = u64::MAX;
        for no in objects {
            least = least.min(self.unsent_bytes(*no).unwrap_or(0));
        }
        let mut larger = Vec::new();
        for no in self.dirty_objects()? {
            if self.unsent_bytes(no).unwrap_or(0) >= least {
                larger.push(no);
            }
        }
        Ok(larger)
    }

    fn hold_all(&self, objects: &[ObjectNo], why: (RefusalOrigin, &str)) {
        let now = self.monotonic();
        for no in objects {
            // The path is looked up first, without the lock: that reads the store.
            let path = self.path_for_people(*no);
            self.stuck()
                .hold_back((StuckDirection::Sending, *no), path, why, now);
        }
    }

    /// Holds back one object that cannot be read here, if that is what `e` is about.
    pub(crate) fn hold_unread(&self, no: ObjectNo, e: SyncError) -> Result<(), SyncError> {
        match e {
            // Only this object is concerned; the rest of the batch goes.
            SyncError::Fs(of) if is_of_object(&of) && !bug(Bug::OneStopsAll) => {
                let why = format!("it cannot be read here: {of}");
                self.hold_all(&[no], (RefusalOrigin::Local, &why));
                Ok(())
            }
            e => Err(e),
        }
    }

    /// Returns where an object lies, or lay for the server.
    fn path_for_people(&self, no: ObjectNo) -> String {
        // A removed object is shown with its former name.
        let is_here = self.store().names(no).is_ok_and(|names| !names.is_empty());
        let had = || self.note_of(no).ok()?.dirty.links?.1.into_iter().next();
        match had().filter(|_| !is_here) {
            Some(link) => self.path_of_link(&link),
            None => self.store().path_of(no),
        }
    }

    pub(crate) fn path_of_link(&self, link: &HardLink) -> String {
        match self.store().path_of(link.dir) {
            root if root == "/" => format!("/{}", link.name),
            dir => format!("{dir}/{}", link.name),
        }
    }

    /// Returns the dirty objects that may be sent: none that are held back, and none that require
    /// these.
    pub(crate) fn free_of_held(&self, dirty: Vec<ObjectNo>) -> Result<Vec<ObjectNo>, SyncError> {
        let mut held = {
            let mut held = self.stuck();
            held.is_retry = false;
            // Objects that are clean again are held back no more.
            let there: BTreeSet<ObjectNo> = dirty.iter().copied().collect();
            held.retain_objects(StuckDirection::Sending, |no| there.contains(&no));
            held.objects_held(StuckDirection::Sending)
        };
        if held.is_empty() {
            return Ok(dirty);
        }
        let before = self.names_at_server(&dirty)?;
        let mut dependents: HashMap<ObjectNo, Vec<ObjectNo>> = HashMap::new();
        for no in &dirty {
            match self.required_objects(*no, &before.had) {
                Ok(required) => {
                    for other in required {
                        dependents.entry(other).or_default().push(*no);
                    }
                }
                // Requirements that cannot be read hold the object back by itself.
                Err(e) => {
                    self.hold_unread(*no, e)?;
                    held.insert(*no);
                }
            }
        }
        let blocked = self.blocked_objects(&held, &dependents, before.gone)?;
        let mut free = dirty;
        free.retain(|no| !blocked.contains(no));
        // The next round tries a held-back object.
        if free.is_empty() {
            // The search for the refused object has ended: batches may be large again.
            self.stuck().limit = OBJECTS_MAX;
        }
        Ok(free)
    }

    /// Returns the objects that are held back, and all that depend on them, directly or through
    /// others. `gone`: objects that were removed here.
    fn blocked_objects(
        &self,
        held: &BTreeSet<ObjectNo>,
        dependents: &HashMap<ObjectNo, Vec<ObjectNo>>,
        gone: impl IntoIterator<Item = ObjectNo>,
    ) -> Result<BTreeSet<ObjectNo>, SyncError> {
        let mut blocked = BTreeSet::new();
        let mut next = Vec::from_iter(held.iter().copied());
        let mut keeps_old_name = false;
        while let Some(no) = next.pop() {
            if !blocked.insert(no) {
                continue;
            }
            next.extend(dependents.get(&no).into_iter().flatten());
            let part = self.note_of(no)?.dirty;
            keeps_old_name |= part.links.is_some() && !part.created;
        }
        if keeps_old_name {
            // At the server it may still be in a directory that was removed here.
            blocked.extend(gone);
        }
        Ok(blocked)
    }

    /// Returns what is held back and is to be tried again, the one with the least content first.
    pub(crate) fn next_held(&self) -> Result<Option<ObjectNo>, SyncError> {
        let now = self.monotonic();
        let due: Vec<ObjectNo> = {
            let mut held = self.stuck();
            held.is_retry = true;
            let all = held.objects_held(StuckDirection::Sending);
            // Only those that are due; the others wait for their pause to pass.
            all.into_iter()
                .filter(|no| !held.is_waiting(StuckDirection::Sending, *no, now))
                .collect()
        };
        // The smallest is the most likely one to fit.
        let mut least = None;
        for no in due {
            let bytes = self.unsent_bytes(no).unwrap_or(0);
            if least.is_none_or(|(known, _)| bytes < known) {
                least = Some((bytes, no));
            }
        }
        Ok(least.map(|(_, no)| no))
    }

    /// Installs a state, or holds the object back if that cannot be done here.
    pub(crate) fn install_or_hold(
        &self,
        version: &ObjectVersion,
        ranges: Option<&[(u64, u64)]>,
        committed: Option<CommittedBatch>,
    ) -> Result<(), SyncError> {
        // A state that no store can hold was not made by this program.
        let done = match version.beyond_limits() {
            Some(why) if is_replicated_number(version.object) => Err(why),
            _ => match self.install_version(version, ranges, committed) {
                Err(SyncError::Fs(e)) if is_of_object(&e) && !bug(Bug::OneStopsAll) => {
                    Err(e.to_string())
                }
                Err(e) => return Err(e),
                Ok(()) => Ok(()),
            },
        };
        let Err(why) = done else {
            self.stuck()
                .release(StuckDirection::Installing, version.object);
            // The state was installed: it is not stuck any more.
            return Ok(());
        };
        let path = match version.links.first() {
            Some(link) => self.path_of_link(link),
            None => self.path_for_people(version.object),
        };
        // The position passes the state, so the note must say from where it is missing.
        self.stays_behind(version.object, Some(version), committed)
            .inspect_err(|e| log::warn!("{path}: {e}"))?;
        let now = self.monotonic();
        self.stuck().hold_back(
            (StuckDirection::Installing, version.object),
            path,
            (RefusalOrigin::Local, &why),
            now,
        );
        Ok(())
    }

    /// Installs an entry of a directory that an operation waits for. Only a state that no volume
    /// can hold is held back; any other failure is returned.
    pub(crate) fn install_listed(
        &self,
        version: &ObjectVersion,
        ranges: Option<&[(u64, u64)]>,
    ) -> Result<(), SyncError> {
        match version.beyond_limits() {
            // The state is installed with the entry, and held back if it cannot be.
            Some(_) => self.install_or_hold(version, ranges, None),
            None => self.install_version(version, ranges, None),
        }
    }

    /// Ends an object that is gone at the server, or holds it back if that fails here. Returns
    /// `false` for a directory that is not empty.
    pub(crate) fn remove_or_hold(
        &self,
        no: ObjectNo,
        committed: Option<CommittedBatch>,
    ) -> Result<bool, SyncError> {
        let why = match self.remove_one(no, committed) {
            Err(SyncError::Fs(e)) if is_of_object(&e) && !bug(Bug::OneStopsAll) => e.to_string(),
            done => {
                if done.is_ok() {
                    self.stuck().release(StuckDirection::Installing, no);
                }
                return done;
            }
        };
        let path = self.path_for_people(no);
        // The position passes the removal, so the note must say that it is missing.
        self.stays_behind(no, None, committed)?;
        self.stuck().hold_back(
            (StuckDirection::Installing, no),
            path,
            (RefusalOrigin::Local, &why),
            self.monotonic(),
        );
        Ok(true)
    }

    /// Notes that an object is not as the server has it from here on; what was in flight of it was
    /// committed all the same.
    fn stays_behind(
        &self,
        no: ObjectNo,
        version: Option<&ObjectVersion>,
        committed: Option<CommittedBatch>,
    ) -> Result<(), SyncError> {
        let past = match version {
            Some(version) => self.past_of_tail(version, committed)?,
            None => None,
        };
        self.rewrite_note(no, |note, size| {
            let is_committed = note.is_in_batch(committed);
            match version {
                Some(version) if is_committed => {
                    acknowledge_components(note, version, committed, past.as_ref(), size);
                }
                None if is_committed => note.in_flight = None,
                _ => {}
            }
            // The oldest position counts: everything behind it may be missing.
            note.needs_look = true;
            note.behind_since.get_or_insert(self.position());
        })?;
        Ok(())
    }

    /// Returns the objects that must be at the server before an object, or go there with it: the
    /// new directories it lies in, and those that had its names.
    pub(crate) fn required_objects(
        &self,
        no: ObjectNo,
        had: &HashMap<HardLink, ObjectNo>,
    ) -> Result<Vec<ObjectNo>, SyncError> {
        let mut needs = Vec::new();
        for link in self.links_here(no)? {
            // A new directory must be there before an object in it.
            if self.note_of(link.dir)?.dirty.created {
                needs.push(link.dir);
            }
            // The former holder of a name must lose it before, or in the same batch.
            needs.extend(had.get(&link).filter(|of| **of != no));
        }
        Ok(needs)
    }
}
