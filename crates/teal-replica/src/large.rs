//! Large content does not hold up the rest: small changes go before it, and it is interrupted for
//! them.
//!
//! # Guarantees
//! 1. What goes first is closed as every batch is (`cut`), and needs nothing of what goes later;
//!    nor does the server, in between, lack a name whose new owner is still to come, or a directory
//!    that something moves out of.
//! 2. Large content that nobody changes arrives: after a batch without it comes one with it alone,
//!    and an interruption waits until there was time to send more than had to be looked through
//!    again.
//! 3. Only what is due, and can go first, interrupts.

use super::{ObjectNote, Replica, SyncError};
use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::time::Duration;
use teal_log::StoreError;
use teal_types::{FileType, HardLink, ObjectNo};

/// After looking through what the server has already, content is sent for so many times as long
/// before it is interrupted.
const SHARE: u32 = 4;

/// Who had which names at the server, and what was removed.
pub(crate) struct NamesAtServer {
    pub(crate) had: HashMap<HardLink, ObjectNo>,
    pub(crate) gone: Vec<ObjectNo>,
}

/// What is dirty, in two batches, each of them closed. Directories may be in both.
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
            if note.dirty.gone {
                before.gone.push(*no);
            }
            before.had.extend(
                note.dirty
                    .links
                    .into_iter()
                    .flat_map(|(_, links)| links)
                    .map(|link| (link, *no)),
            );
        }
        Ok(before)
    }

    /// Divides what is dirty into what goes first, and large content with whoever has given it a
    /// name; `None` where one of them cannot go without the other.
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
        if with.is_empty() || with.len() == dirty.len() {
            return Ok(None);
        }
        let NamesAtServer { had, gone } = self.names_at_server(dirty)?;
        let (mut first, mut large, mut later) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        while let Some(no) = with.pop() {
            if !later.insert(no) {
                continue;
            }
            self.close_over(no, &had, &mut large)?;
            with.extend(self.links_here(no)?.iter().filter_map(|link| had.get(link)));
            let part = self.note_of(no)?.dirty;
            if part.links.is_some() && !part.created {
                // At the server it may be in a directory that was removed here.
                with.extend(&gone);
            }
        }
        for no in dirty.iter().filter(|no| !later.contains(no)) {
            self.close_over(*no, &had, &mut first)?;
        }
        // What was removed, and goes with large content, may be a directory that something else has
        // to leave first.
        let is_apart = first.is_disjoint(&later) && gone.iter().all(|no| !large.contains(no));
        Ok((is_apart && !first.is_empty()).then_some(BatchSplit { first, large }))
    }

    /// Bytes of content that the server lacks of an object.
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
            _ if dirty.created => attr.size,
            Some(dirty) => dirty
                .ranges
                .clipped_to(0, attr.size)
                .iter()
                .map(|(from, to)| to - from)
                .sum(),
            None => 0,
        })
    }

    /// Returns whether something else is dirty than what is in flight, and could go before it.
    fn has_other_dirty(&self) -> Result<bool, SyncError> {
        let mut others = Vec::new();
        self.store().each_note(ObjectNo::ROOT, &mut |no, head| {
            let summary = ObjectNote::summary(head);
            if summary.is_dirty && !summary.is_in_flight {
                others.push(no);
            }
            ControlFlow::Continue(())
        })?;
        for no in others {
            if self.unsent_bytes(no)? <= self.options().large {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// How long a batch goes on with its content.
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

    /// Something was sent. Whether others have waited long enough.
    pub(crate) fn is_over(&mut self, replica: &Replica) -> Result<bool, SyncError> {
        let now = replica.monotonic();
        let since = *self.sends_since.get_or_insert(now);
        let least = replica
            .options()
            .flush_age
            .max((since - self.begun) * SHARE);
        if now - since < least || !replica.is_due(now) {
            return Ok(false);
        }
        let is_over = replica.has_other_dirty()?;
        if !is_over {
            self.begun = now;
            self.sends_since = None;
        }
        Ok(is_over)
    }
}
