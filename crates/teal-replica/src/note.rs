//! The note beside an object: its components that the server lacks, and its content that only the
//! server has.
//!
//! # Invariants
//! 1. An object without a note is here, whole, as the server has it at the replica's position.
//! 2. A component is dirty from its first change until a batch takes it along; then it is in
//!    flight, until the outcome of the batch is known. Changes made meanwhile are dirty again.
//! 3. A note changes under the object's lock, in the batch of the change it tells of.

mod format;

use super::committed::CommittedBatch;
use std::collections::BTreeSet;
use teal_log::LockedObjects;
use teal_types::ranges::ByteRanges;
use teal_types::{BatchNo, CommitSeq, HardLink, ObjectNo};

/// Bytes that were put behind the end of a file, if nothing else was done to its content since the
/// base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AppendedTail {
    /// The end of the content that the server had at the base.
    pub(crate) start: u64,
    /// From where on the server does not have it. What is between was committed there, maybe behind
    /// what others had appended; that is not installed here yet.
    pub(crate) from: u64,
    /// The end of the tail, once it is in flight.
    pub(crate) to: u64,
}

impl AppendedTail {
    /// Returns a tail that may still grow.
    pub(crate) const fn open(start: u64, from: u64) -> Self {
        Self {
            start,
            from,
            to: u64::MAX,
        }
    }

    /// Returns whether a file that ends here has it where it is in this replica.
    pub(crate) const fn ends_at(&self, size: u64) -> bool {
        self.start == self.from && self.to == size
    }
}

/// Content that the server does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DirtyContent {
    pub(crate) base: CommitSeq,
    /// The least size since.
    pub(crate) least_size: u64,
    pub(crate) ranges: ByteRanges,
    /// Unless more was done than appending.
    pub(crate) tail: Option<AppendedTail>,
}

impl DirtyContent {
    /// Joins content that was in a batch, which did not arrive, with what has changed since.
    fn joined(in_batch: Option<Self>, newer: Option<Self>) -> Option<Self> {
        let mut joined = match (in_batch, newer) {
            (Some(mut in_batch), Some(newer)) => {
                // The content stays a tail only if both changes were appends.
                in_batch.tail = in_batch.tail.filter(|_| newer.tail.is_some());
                in_batch.least_size = in_batch.least_size.min(newer.least_size);
                in_batch.ranges.add_all(&newer.ranges);
                in_batch
            }
            (in_batch, newer) => in_batch.or(newer)?,
        };
        if let Some(tail) = &mut joined.tail {
            // The end of the file is known again at the next cut.
            tail.to = u64::MAX;
        }
        Some(joined)
    }
}

/// Components of an object that the server does not have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct UnsentComponents {
    /// The object itself: all of it is meant.
    pub(crate) created: bool,
    /// The object is not here any more.
    pub(crate) gone: bool,
    pub(crate) attributes: Option<CommitSeq>,
    pub(crate) data: Option<DirtyContent>,
    /// The base, and the names the server has.
    pub(crate) links: Option<(CommitSeq, Vec<HardLink>)>,
    pub(crate) xattrs: Vec<(Vec<u8>, CommitSeq)>,
}

impl UnsentComponents {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the first invariant that does not hold.
    fn invariants(&self) -> Result<(), &'static str> {
        if self.created && self.gone {
            return Err("says that an object is new and gone");
        }
        if let Some(dirty) = &self.data
            && let Some(tail) = dirty.tail
            && tail.to < tail.from
        {
            return Err("has a tail that ends before it begins");
        }
        let mut names = BTreeSet::new();
        for (name, _) in &self.xattrs {
            if !names.insert(name) {
                return Err("names an extended attribute twice");
            }
        }
        Ok(())
    }

    /// Returns the least base of all components but the names. Others' changes of these components
    /// since then are not installed here.
    pub(crate) fn first_base(&self) -> Option<CommitSeq> {
        let data = self.data.as_ref().map(|dirty| dirty.base);
        let xattrs = self.xattrs.iter().map(|(_, base)| *base);
        self.attributes.into_iter().chain(data).chain(xattrs).min()
    }

    /// Has a removal meet others' changes since `first`: these were dirty or in flight here, and
    /// not installed.
    pub(crate) fn removed_since(&mut self, first: Option<CommitSeq>) {
        if let (Some((base, _)), Some(first)) = (&mut self.links, first) {
            *base = first.min(*base);
        }
    }

    /// Takes up what was on its way and did not arrive.
    pub(crate) fn take_back(&mut self, in_batch: Self) {
        let first = in_batch.first_base();
        self.gone |= in_batch.gone;
        // A removed object has no components to create; its names are removed in case they arrived
        // in another life.
        self.created = (self.created || in_batch.created) && !self.gone;
        debug_assert!(!(self.created && self.gone), "an object is new and gone");
        // The older base is the batch's.
        self.attributes = in_batch.attributes.or(self.attributes);
        self.links = in_batch.links.or(self.links.take());
        if self.gone {
            self.removed_since(first);
        }
        for (name, base) in in_batch.xattrs {
            match self.xattrs.iter_mut().find(|(known, _)| *known == name) {
                // The older base is the batch's.
                Some((_, newer)) => *newer = base,
                None => self.xattrs.push((name, base)),
            }
        }
        self.data = DirtyContent::joined(in_batch.data, self.data.take());
        if self.created {
            // All of a new object is sent: what was noted of its components while it was in flight
            // is not kept up to date from here on.
            self.attributes = None;
            self.data = None;
            self.xattrs.clear();
        }
    }
}

/// The components of an object that are in flight in a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ComponentsInFlight {
    pub(crate) batch: BatchNo,
    pub(crate) components: UnsentComponents,
    /// The names as they were sent.
    pub(crate) sent_names: Vec<HardLink>,
}

/// A note; see the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ObjectNote {
    pub(crate) dirty: UnsentComponents,
    pub(crate) in_flight: Option<ComponentsInFlight>,
    /// Content that only the server has.
    pub(crate) absent: ByteRanges,
    /// The commit of the absent content.
    pub(crate) data_seq: CommitSeq,
    /// Is true for a directory if only the server knows its entries.
    pub(crate) unlisted: bool,
    /// The server's state did not fit in here: it must be looked at again.
    pub(crate) needs_look: bool,
    /// The name it had here until the server gave that to another, while it waits for one.
    pub(crate) lost_name: Option<HardLink>,
    /// The commit since which others' changes are not all here, because they could not be
    /// installed. Changes made here from then on were made without having seen those.
    pub(crate) behind_since: Option<CommitSeq>,
}

/// The facts in the first bytes of an encoded note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoteSummary {
    /// Something of the object is dirty.
    pub(crate) is_dirty: bool,
    /// Something of it is in flight.
    pub(crate) is_in_flight: bool,
    /// The server's state is to be looked at again.
    pub(crate) needs_look: bool,
}

impl NoteSummary {
    /// Returns whether the server lacks something of the object, as far as it is known here.
    pub(crate) const fn is_ours(&self) -> bool {
        self.is_dirty || self.is_in_flight
    }
}

impl ComponentsInFlight {
    /// Returns whether this is on its way in a batch that the server has committed.
    pub(crate) fn was_committed_in(&self, committed: Option<CommittedBatch>) -> bool {
        committed.is_some_and(|committed| committed.batch == self.batch)
    }
}

impl ObjectNote {
    /// Asserts what is always true of a note, in debug builds.
    pub(crate) fn check(&self) {
        // In release builds the check costs nothing.
        if cfg!(debug_assertions)
            && let Err(broken) = self.invariants()
        {
            panic!("a note {broken}: {self:?}");
        }
    }

    /// Returns the first invariant that does not hold.
    fn invariants(&self) -> Result<(), &'static str> {
        for part in self.unsent_parts() {
            part.invariants()?;
        }
        if self.unlisted && !self.absent.is_empty() {
            return Err("is of a directory that has content");
        }
        if !self.absent.is_empty() && self.data_seq == CommitSeq::default() {
            return Err("says that content of no commit is absent");
        }
        Ok(())
    }

    /// Returns whether an object without a name stays here: a new file until it gets one, and a
    /// file that lost its name to another of the server's.
    pub(crate) fn waits_for_name(&self) -> bool {
        let is_lost = self.needs_look && !self.dirty.gone;
        self.dirty.created || is_lost
    }

    /// Takes the dirty components, which go in flight. `size`: of the content, if the object is
    /// here.
    pub(crate) fn take_unsent(&mut self, is_nameless: bool, size: Option<u64>) -> UnsentComponents {
        let mut part = std::mem::take(&mut self.dirty);
        if is_nameless {
            // A removed object is sent as a removal and nothing else.
            part = UnsentComponents {
                gone: part.gone,
                links: part.links,
                ..UnsentComponents::default()
            };
        }
        if let Some(size) = size
            && let Some(dirty) = &mut part.data
            && let Some(tail) = &mut dirty.tail
        {
            // Content appended from here on goes into another batch.
            tail.to = size;
        }
        part
    }

    /// Returns the components that are dirty, and those that are in flight.
    pub(crate) fn unsent_parts(&self) -> impl Iterator<Item = &UnsentComponents> {
        let in_flight = self.in_flight.iter().map(|sent| &sent.components);
        std::iter::once(&self.dirty).chain(in_flight)
    }

    /// Returns whether there is nothing to note.
    pub(crate) fn is_empty(&self) -> bool {
        let is_settled =
            self.dirty.is_empty() && self.in_flight.is_none() && self.behind_since.is_none();
        is_settled && self.absent.is_empty() && !self.unlisted && !self.needs_look
    }

    /// Returns whether content of the object is in flight in this batch.
    pub(crate) fn has_sent_content(&self, committed: Option<CommittedBatch>) -> bool {
        self.is_in_batch(committed)
            && (self.in_flight.as_ref()).is_some_and(|sent| sent.components.data.is_some())
    }

    /// Returns whether components of the object are in flight in this batch.
    pub(crate) fn is_in_batch(&self, committed: Option<CommittedBatch>) -> bool {
        self.in_flight
            .as_ref()
            .is_some_and(|in_flight| in_flight.was_committed_in(committed))
    }

    /// Returns whether the server lacks something.
    pub(crate) fn is_ours(&self) -> bool {
        !self.dirty.is_empty() || self.in_flight.is_some()
    }
}

/// Returns all names of a locked object.
pub(crate) fn links_of(locked: &LockedObjects<'_>, no: ObjectNo) -> Vec<HardLink> {
    let mut links = Vec::new();
    for (dir, name) in locked.names(no) {
        links.push(HardLink { dir, name });
    }
    links
}

#[cfg(test)]
mod tests;
