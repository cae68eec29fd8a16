//! Large content does not hold up the rest: small changes go before it, and it is interrupted for
//! them.
//!
//! # Guarantees
//! 1. The first batch is closed as every batch is (`cut`), and requires nothing of the later one.
//!    In between, the server lacks neither a name that an object of the later batch takes over, nor
//!    a directory that an object of it leaves.
//! 2. Large content that is not changed arrives: after a batch without it comes one with it alone,
//!    and an interruption waits until there was time to send more than had to be looked through
//!    again.
//! 3. Large content is interrupted only by changes that are due and can go first.

use super::{ObjectNote, Replica, SyncError};
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;
use teal_log::StoreError;
use teal_types::{FileType, HardLink, ObjectNo};

/// After looking through what the server has already, content is sent for so many times as long
/// before it is interrupted.
const SHARE: u32 = 4;

/// The names that dirty objects have at the server, and the objects that were removed.
pub(crate) struct NamesAtServer {
    pub(crate) had: HashMap<HardLink, ObjectNo>,
    pub(crate) gone: Vec<ObjectNo>,
}

/// The dirty objects in two batches, each of them closed. Directories may be in both.
pub(crate) struct BatchSplit {
    pub(crate) first: BTreeSet<ObjectNo>,
    pub(crate) large: BTreeSet<ObjectNo>,
}

impl Replica {
    /// Returns what the server knows of what is dirty.
    pub(crate) fn names_at_server(&self, dirty: &[ObjectNo]) -> Result<NamesAtServer, SyncError> {
        let mut before = NamesAtServer {
            had: HashMap::new(),
            gone: Vec::new(),
        };
        for no in dirty {
            let note = self.note_of(*no)?;
            // Removed objects go last: their directories must be empty by then.
            if note.dirty.gone {
                before.gone.push(*no);
            }
            if let Some((_, links)) = note.dirty.links {
                for link in links {
                    before.had.insert(link, *no);
                }
            }
        }
        Ok(before)
    }

    /// Divides the dirty objects into those that go first, and those with large content together
    /// with the objects that have given them a name. Returns `None` if one part cannot go without
    /// the other.
    pub(crate) fn split_by_size(
        &self,
        dirty: &[ObjectNo],
    ) -> Result<Option<BatchSplit>, SyncError> {
        let mut with = Vec::new();
        for no in dirty {
            if self.unsent_bytes(*no)? > self.options().large {
                with.push(*no);
            }
        }
        // Nothing large, or nothing else: the batch is not divided.
        if with.is_empty() || with.len() == dirty.len() {
            return Ok(None);
        }
        let NamesAtServer { had, gone } = self.names_at_server(dirty)?;
        let mut first = BTreeSet::new();
        let mut large = BTreeSet::new();
        let mut later = BTreeSet::new();
        // Everything that needs a large file, directly or through others, goes later with it.
        while let Some(no) = with.pop() {
            if !later.insert(no) {
                continue;
            }
            self.close_over(no, &had, &mut large)?;
            // The object that takes a large file's former name waits for it.
            with.extend(self.links_here(no)?.iter().filter_map(|link| had.get(link)));
            let part = self.note_of(no)?.dirty;
            if part.links.is_some() && !part.created {
                // At the server it may be in a directory that was removed here.
                with.extend(&gone);
            }
        }
        // The rest goes first, with all that it needs.
        for no in dirty.iter().filter(|no| !later.contains(no)) {
            self.close_over(*no, &had, &mut first)?;
        }
        // An object that was removed, and goes with large content, may be a directory that another
        // object has to leave first.
        let is_apart = first.is_disjoint(&later) && gone.iter().all(|no| !large.contains(no));
        Ok((is_apart && !first.is_empty()).then_some(BatchSplit { first, large }))
    }

    /// Returns the bytes of an object's content that the server lacks.
    pub(crate) fn unsent_bytes(&self, no: ObjectNo) -> Result<u64, SyncError> {
        let attr = match self.store().attr(no) {
            Err(StoreError::NotFound(_)) => return Ok(0),
            attr => attr?,
        };
        if attr.kind != FileType::File {
            return Ok(0);
        }
        let ObjectNote { dirty, .. } = self.note_of(no)?;
        Ok(match dirty.data {
            // All content of a new file is unsent.
            _ if dirty.created => attr.size,
            Some(dirty) => dirty.ranges.clipped_to(0, attr.size).byte_count(),
            None => 0,
        })
    }

    /// Returns whether something else is dirty than what is in flight, and could go before it.
    fn has_other_dirty(&self) -> Result<bool, SyncError> {
        let others = self.noted_objects(|summary| summary.is_dirty && !summary.is_in_flight)?;
        for no in others {
            if self.unsent_bytes(no)? <= self.options().large {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The time for which a batch goes on with its content.
pub(crate) struct TimeSlice {
    begun: Duration,
    /// When the server first lacked something.
    sends_since: Option<Duration>,
}

impl TimeSlice {
    pub(crate) fn new(replica: &Replica) -> Self {
        Self {
            begun: replica.monotonic(),
            sends_since: None,
        }
    }

    /// Notes that content was sent. Returns whether other changes have waited long enough.
    pub(crate) fn is_over(&mut self, replica: &Replica) -> Result<bool, SyncError> {
        let now = replica.monotonic();
        // The first call begins the time of sending.
        let since = *self.sends_since.get_or_insert(now);
        let least = replica
            .options()
            .flush_age
            // Reading took its time, too: sending gets at least a share of that.
            .max((since - self.begun) * SHARE);
        debug_assert!(since >= self.begun);
        if now - since < least || !replica.is_due(now) {
            return Ok(false);
        }
        let is_over = replica.has_other_dirty()?;
        // Only large files wait: this batch may go on for another turn.
        if !is_over {
            self.begun = now;
            self.sends_since = None;
        }
        Ok(is_over)
    }
}
