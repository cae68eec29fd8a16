//! Acknowledging a batch of this replica: each component that was sent is committed, or has lost a
//! conflict.
//!
//! # Guarantees
//! 1. A component that was committed as it was sent is the server's from then on; changes since
//!    then have it as their base.
//! 2. One that lost a conflict is not taken for the server's: unless it has changed again, the
//!    server's state is installed; if it has, the conflict is met again, with the whole content.
//! 3. A change made here since then meets the conflict with what others have changed behind the
//!    batch's back, though the position has passed both.

use super::committed::CommittedBatch;
use super::note::{AppendedTail, DirtyContent, UnsentComponents};
use super::stuck::StuckDirection;
use super::tails::ContentOutcome;
use super::{ObjectNote, Replica, SyncError, content, unexpected};
use crate::seeded::{Bug, bug};
use teal_proto::{ClientRequest, ServerReply, WANTS_MAX};
use teal_types::{BatchNo, CommitSeq, ObjectNo, ObjectVersion};

/// Tells which times of the server's state may be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum InstallableTimes {
    /// No time, because dirty content has a time of its own.
    None,
    /// Times that are not older than those here: a dirty name or extended attribute moved them on,
    /// and the server has not heard of it; or the times are those of a directory that is listed
    /// here, whose entries may be dirty.
    NotOlder,
    /// All times.
    Any,
}

/// Tells how much of the server's content may be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InstallableContent {
    /// Nothing: the content is dirty, or the server has it as it is here.
    None,
    /// All that has changed at the server.
    Changed,
    /// All that has changed, and everything from the place of this tail on, which was sent and lies
    /// elsewhere in the server's file than here.
    BehindTail(AppendedTail),
}

/// Tells which components of the server's state may be installed: those that are the server's here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InstallableComponents {
    pub(crate) attributes: bool,
    /// The times among the attributes.
    pub(crate) times: InstallableTimes,
    pub(crate) content: InstallableContent,
    pub(crate) links: bool,
    /// Extended attributes but those that are dirty.
    pub(crate) xattrs: bool,
}

impl InstallableComponents {
    /// The components of a new object, which are all installable.
    pub(crate) const ALL: Self = Self {
        attributes: true,
        times: InstallableTimes::Any,
        content: InstallableContent::Changed,
        links: true,
        xattrs: true,
    };

    /// Returns the components that are neither dirty nor in flight.
    fn beside_unsent(note: &ObjectNote, is_listed: bool) -> Self {
        let mut free = Self::ALL;
        if is_listed {
            free.times = InstallableTimes::NotOlder;
        }
        for unsent in note.unsent_parts() {
            if unsent.created || unsent.data.is_some() {
                free.times = InstallableTimes::None;
                free.content = InstallableContent::None;
            } else if !unsent.is_empty() {
                free.times = free.times.min(InstallableTimes::NotOlder);
            }
            // A created object is this replica's with all of its components.
            free.attributes &= !unsent.created && unsent.attributes.is_none();
            free.links &= !unsent.created && !unsent.gone && unsent.links.is_none();
            free.xattrs &= !unsent.created;
        }
        free
    }
}

/// Ends the flight of an object's components, once the object's state after the batch is known.
/// Returns the components of the server's state that may be installed.
pub(crate) fn acknowledge_components(
    note: &mut ObjectNote,
    version: &ObjectVersion,
    committed: Option<CommittedBatch>,
    past: Option<&ObjectVersion>,
    size: u64,
) -> InstallableComponents {
    let is_listed = version.kind.is_dir() && !note.unlisted;
    let (Some(in_flight), Some(batch)) = (&note.in_flight, committed) else {
        return InstallableComponents::beside_unsent(note, is_listed);
    };
    if in_flight.batch != batch.batch {
        return InstallableComponents::beside_unsent(note, is_listed);
    }
    let seq = batch.seq;
    let sent = in_flight.components.clone();
    let outcome = ContentOutcome::of_batch(&sent, version, past, seq);
    // The batch is over for this object, whichever of its components were won.
    note.in_flight = None;
    let dirty = &mut note.dirty;
    let have_attributes_lost = rebase_attributes(dirty, &sent, version, seq);
    // Content that was changed again after the cut needs a new base: the server's state may now
    // contain the batch.
    if let Some(newer) = &mut dirty.data {
        let sizes = (seq, version.size, size);
        acknowledge_newer(newer, sent.data.as_ref(), outcome, sizes);
    }
    rebase_links(dirty, &sent, version, seq);
    for (name, base) in &mut dirty.xattrs {
        if sent.created || sent.xattrs.iter().any(|(in_batch, _)| in_batch == name) {
            *base = seq;
        }
    }
    InstallableComponents {
        // Even of what was committed as it was sent the server may have moved the times.
        attributes: dirty.attributes.is_none(),
        times: installable_times(dirty, is_listed, have_attributes_lost),
        content: installable_content(dirty, outcome),
        // A name that another had is another one at the server.
        links: dirty.links.is_none() && !dirty.gone,
        xattrs: true,
    }
}

/// Returns which times may be installed beside what is dirty again after a batch.
fn installable_times(
    dirty: &UnsentComponents,
    is_listed: bool,
    have_attributes_lost: bool,
) -> InstallableTimes {
    if dirty.data.is_some() {
        InstallableTimes::None
    } else if !is_listed && (dirty.is_empty() || have_attributes_lost) {
        InstallableTimes::Any
    } else {
        InstallableTimes::NotOlder
    }
}

/// Returns how much content may be installed after a batch whose content had this outcome.
fn installable_content(dirty: &UnsentComponents, outcome: ContentOutcome) -> InstallableContent {
    match outcome {
        _ if dirty.data.is_some() && !bug(Bug::NewerOverwritten) => InstallableContent::None,
        ContentOutcome::AsSent => InstallableContent::None,
        ContentOutcome::Behind(tail) => InstallableContent::BehindTail(tail),
        ContentOutcome::NotSent | ContentOutcome::Lost => InstallableContent::Changed,
    }
}

/// Bases attributes that are dirty again on the batch. Returns whether those that were sent lost a
/// conflict.
fn rebase_attributes(
    dirty: &mut UnsentComponents,
    sent: &UnsentComponents,
    version: &ObjectVersion,
    seq: CommitSeq,
) -> bool {
    // A batch that created the object carried all of its components.
    if !sent.created && sent.attributes.is_none() {
        return false;
    }
    // A component is won if the server's state of it is the one of this batch.
    let has_won = version.attr_seq == seq;
    if let Some(base) = &mut dirty.attributes {
        // The position may have passed the batch before it is settled: what has changed here since
        // began no later than there.
        *base = if has_won {
            seq
        } else {
            sent.attributes.unwrap_or(*base).min(seq)
        };
    }
    !has_won
}

/// Bases names that are dirty again, or the removal of the object, on the batch.
fn rebase_links(
    dirty: &mut UnsentComponents,
    sent: &UnsentComponents,
    version: &ObjectVersion,
    seq: CommitSeq,
) {
    let has_sent_names = sent.created || sent.links.is_some();
    let Some((base, names)) = &mut dirty.links else {
        return;
    };
    if dirty.gone {
        // Removed here without another's change of what was in flight having been seen: the server
        // must notice.
        let unseen = first_unseen_base(sent, version, seq);
        *base = unseen.map_or(*base, |seen| seen.min(*base));
    } else if has_sent_names {
        *base = seq;
    }
    if has_sent_names {
        // The object has these names at the server, whether or not the sent ones were taken. New
        // changes of names begin there.
        names.clone_from(&version.links);
    }
}

/// Updates content that has changed here since a batch took an older state of it along, once the
/// outcome of the batch is known. `there` and `here` are the sizes at the server and in this store.
fn acknowledge_newer(
    newer: &mut DirtyContent,
    in_batch: Option<&DirtyContent>,
    outcome: ContentOutcome,
    (seq, there, here): (CommitSeq, u64, u64),
) {
    match (outcome, in_batch) {
        (ContentOutcome::NotSent, _) => {}
        (ContentOutcome::AsSent, _) if bug(Bug::BaseKept) => {}
        (ContentOutcome::AsSent, _) => {
            newer.base = seq;
            // The content was read after the cut, so the batch may have carried a part of this
            // already.
            let is_still_tail = newer.tail.is_some() && there <= here;
            newer.tail = is_still_tail.then_some(AppendedTail::open(there, there));
        }
        // The server put the sent tail behind another's. Bytes that were appended here since then
        // belong to the same tail, at its new place.
        (ContentOutcome::Behind(tail), Some(in_batch)) if newer.tail.is_some() => {
            newer.base = in_batch.base;
            newer.least_size = newer.least_size.min(in_batch.least_size);
            newer.ranges.add_all(&in_batch.ranges);
            newer.tail = Some(AppendedTail::open(tail.start, tail.to));
        }
        (ContentOutcome::Behind(_) | ContentOutcome::Lost, in_batch) => {
            // The server puts the content into a file of its own (the conflict copy), which needs
            // all of it.
            let base = in_batch.map_or(newer.base.min(seq), |in_batch| in_batch.base);
            *newer = DirtyContent {
                base,
                ..content::whole_content(here)
            };
        }
    }
}

/// Returns the oldest commit up to which this replica has seen others' changes of the components in
/// flight, if there are newer changes. Those were not installed, although the position has passed
/// them.
fn first_unseen_base(
    in_batch: &UnsentComponents,
    version: &ObjectVersion,
    seq: CommitSeq,
) -> Option<CommitSeq> {
    let xattrs = in_batch.xattrs.iter().map(|(_, base)| *base).min();
    let data = in_batch.data.as_ref().map(|dirty| dirty.base);
    let parts = [
        (version.attr_seq, in_batch.attributes),
        (version.data_seq, data),
        (version.xattr_seq, xattrs),
    ];
    let mut oldest = None;
    for (changed_at, base) in parts {
        // A created object has no bases: everything behind this batch is another's change.
        let seen = if in_batch.created { Some(seq) } else { base };
        // Only a commit above the base, and not the batch itself, is another replica's change.
        if let Some(seen) = seen
            && changed_at > seen
            && changed_at != seq
        {
            oldest = Some(oldest.map_or(seen, |oldest: CommitSeq| oldest.min(seen)));
        }
    }
    oldest
}

impl Replica {
    /// Settles what was in flight in a batch and did not appear in history behind it: what lost a
    /// conflict, or changed nothing. The server says how these objects are.
    pub(crate) fn acknowledge_rest(&self, batch: BatchNo, seq: CommitSeq) -> Result<(), SyncError> {
        let rest = self.objects_in_flight()?;
        // One request names at most so many objects.
        for objects in rest.chunks(WANTS_MAX) {
            let mut gone = Vec::new();
            for (no, version) in objects.iter().zip(self.versions_at_server(objects)?) {
                match version {
                    Some(version) => {
                        self.install_or_hold(&version, None, Some(CommittedBatch { batch, seq }))?
                    }
                    None => gone.push(*no),
                }
            }
            self.remove_gone(gone, Some(CommittedBatch { batch, seq }))?;
        }
        Ok(())
    }

    /// Acknowledges what this batch changed and others have removed since, if it has changed here
    /// again: the server says how it was when the batch had committed.
    pub(crate) fn acknowledge_gone(
        &self,
        gone: &[ObjectNo],
        committed: Option<CommittedBatch>,
    ) -> Result<(), SyncError> {
        let Some(CommittedBatch { batch, seq }) = committed else {
            return Ok(());
        };
        for no in gone {
            // The note is read without a lock first: most objects need nothing.
            let note = self.note_of(*no)?;
            let is_in_batch = note.in_flight.is_some_and(|sent| sent.batch == batch);
            // Without newer changes, the removal of the object has nothing to be based on.
            if note.dirty.is_empty() || !is_in_batch {
                continue;
            }
            let request = ClientRequest::ReadPast {
                object: *no,
                at: seq,
                offset: 0,
                len: 0,
            };
            let ServerReply::Past { version, .. } = self.ask_server(&request)? else {
                return Err(unexpected("to a read of the past").into());
            };
            if let Some(version) = version {
                self.acknowledge_past(*no, &version, committed)?;
            }
        }
        Ok(())
    }

    /// Acknowledges a batch by the state that it made of an object.
    fn acknowledge_past(
        &self,
        no: ObjectNo,
        version: &ObjectVersion,
        committed: Option<CommittedBatch>,
    ) -> Result<(), SyncError> {
        self.rewrite_note(no, |note, size| {
            acknowledge_components(note, version, committed, None, size);
        })?;
        Ok(())
    }

    /// Returns the server's present states of these objects, in their order.
    pub(crate) fn versions_at_server(
        &self,
        objects: &[ObjectNo],
    ) -> Result<Vec<Option<ObjectVersion>>, SyncError> {
        let mut versions = Vec::with_capacity(objects.len());
        while versions.len() < objects.len() {
            let request = ClientRequest::Look {
                // The server answers as many objects as fit a reply; the rest is asked for again.
                objects: objects[versions.len()..].to_vec(),
            };
            let ServerReply::Versions { versions: some, .. } = self.ask_server(&request)? else {
                return Err(unexpected("to a look").into());
            };
            if some.is_empty() || versions.len() + some.len() > objects.len() {
                return Err(unexpected("another number of objects").into());
            }
            versions.extend(some);
        }
        debug_assert_eq!(versions.len(), objects.len());
        Ok(versions)
    }

    /// Looks again at what did not fit in here before.
    pub(crate) fn retry_uninstalled(&self) -> Result<(), SyncError> {
        let now = self.monotonic();
        let is_due = self
            .stuck()
            .due_in(StuckDirection::Installing, now)
            .is_some_and(|wait| wait.is_zero());
        // The mark is taken before the objects are listed: a mark that is set meanwhile leads to
        // one more round, not to none.
        if !self.state().take_needs_look() && !is_due {
            return Ok(());
        }
        // A lost answer leaves the mark set, so that the next round tries again.
        self.retry_all_uninstalled()
            .inspect_err(|_| self.state().set_needs_look())
    }

    fn retry_all_uninstalled(&self) -> Result<(), SyncError> {
        let _applying = self.lock_applying()?;
        let mut objects = self.noted_objects(|summary| summary.needs_look)?;
        let now = self.monotonic();
        {
            // An object that failed to be installed waits for its own retry.
            let mut held = self.stuck();
            held.retain_objects(StuckDirection::Installing, |no| objects.contains(&no));
            objects.retain(|no| !held.is_waiting(StuckDirection::Installing, *no, now));
        }
        for objects in objects.chunks(WANTS_MAX) {
            let mut gone = Vec::new();
            for (no, version) in objects.iter().zip(self.versions_at_server(objects)?) {
                match version {
                    Some(version) => self.install_or_hold(&version, None, None)?,
                    None => gone.push(*no),
                }
            }
            self.remove_gone(gone, None)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
