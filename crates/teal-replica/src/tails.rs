//! Files that are only appended to, while others append to them elsewhere.
//!
//! # Guarantees
//! 1. What is sent as a tail is what its cut meant; whatever else is done to the content meanwhile
//!    makes it an ordinary change.
//! 2. A life that may have sent some of it already (a copied store, a restored server) sends no
//!    tails: the server cannot tell an append that comes twice from two.
//!
//! # How
//! A tail that committed behind what others had appended lies elsewhere at the server than here.
//! The server's content is installed from where the base ended, unless more was appended here
//! meanwhile: that stays where it is, and only it is sent next, with the same base, until a batch
//! ends with nothing dirty.

use super::committed::CommittedBatch;
use super::note::{AppendedTail, DirtyContent, ObjectNote, UnsentComponents};
use super::{Replica, SyncError, unexpected};
use teal_log::{Cost, StoreError};
use teal_proto::{ClientRequest, ServerReply};
use teal_types::ranges::{ByteRanges, CONTENT_END};
use teal_types::{CommitSeq, ObjectNo, ObjectVersion};

/// The fate of the content that a batch carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentOutcome {
    /// The batch carried none.
    NotSent,
    /// The server has the content as it is here.
    AsSent,
    /// The server has the content, behind bytes that others had appended.
    Behind(AppendedTail),
    /// The content lost a conflict.
    Lost,
}

impl ContentOutcome {
    /// Returns the fate of the content of a batch, from the server's present state (`version`) and,
    /// if that was asked for, the state that the batch made (`past`).
    pub(crate) fn of_batch(
        part: &UnsentComponents,
        version: &ObjectVersion,
        past: Option<&ObjectVersion>,
        seq: CommitSeq,
    ) -> Self {
        if !part.created && part.data.is_none() {
            return Self::NotSent;
        }
        // The newest content commit is this batch itself.
        let is_newest = version.data_seq == seq;
        match part.data.as_ref().and_then(|dirty| dirty.tail) {
            None if is_newest => Self::AsSent,
            None => Self::Lost,
            // The tail was put exactly where it was meant to be.
            Some(tail) if is_newest && tail.ends_at(version.size) => Self::AsSent,
            // Another's change is newer, but this batch's tail was appended.
            Some(tail) if is_newest || past.is_some_and(|past| past.data_seq == seq) => {
                Self::Behind(tail)
            }
            Some(_) => Self::Lost,
        }
    }
}

/// Returns the ranges to be installed of a file with a tail that lies elsewhere at the server: from
/// the end of the base on, and all ranges that others have changed since; `None` means everything.
/// `seen` is the position at which `ranges` begin.
pub(crate) fn ranges_behind(
    tail: &AppendedTail,
    version: &ObjectVersion,
    ranges: Option<&[(u64, u64)]>,
    committed: Option<CommittedBatch>,
    seen: CommitSeq,
) -> Option<Vec<(u64, u64)>> {
    let seq = committed?.seq;
    // Without newer commits, nothing in front of the tail changed.
    let since = if version.data_seq == seq {
        &[]
    } else {
        // The ranges say what changed since the position; that must not be behind the batch.
        ranges.filter(|_| seen <= seq)?
    };
    let mut all = ByteRanges::default();
    for (offset, len) in since.iter() {
        all.add(*offset, offset.saturating_add(*len));
    }
    // Everything from the tail's old place on is new.
    all.add(tail.start, CONTENT_END);
    debug_assert!(all.iter().all(|(from, to)| from < to));
    Some(all.iter().map(|(from, to)| (from, to - from)).collect())
}

/// Returns the content of an object that is in flight.
fn content_in_flight(note: &mut ObjectNote) -> Option<&mut DirtyContent> {
    note.in_flight.as_mut()?.components.data.as_mut()
}

impl Replica {
    /// Returns whether nothing was done to the content since a cut but that more was appended.
    pub(crate) fn has_tail(&self, no: ObjectNo, tail: &AppendedTail) -> Result<bool, SyncError> {
        // Under the object's lock, note and size agree.
        let op = self.begin_operation(Cost::note().freeing())?;
        let locked = match op.lock(&[no]) {
            Err(StoreError::NotFound(_)) => return Ok(false),
            locked => locked?,
        };
        let note = self.note_of(no)?;
        // A later change of other bytes ends the tail.
        let is_appended = note.dirty.data.is_none_or(|newer| newer.tail.is_some());
        Ok(is_appended && locked.attr(no).size >= tail.to)
    }

    /// Turns what is in flight of an object into an ordinary change.
    pub(crate) fn forget_tail(&self, no: ObjectNo) -> Result<(), SyncError> {
        self.change_tails(no, |note| {
            // From here on the content goes as ranges.
            let Some(in_batch) = content_in_flight(note) else {
                return false;
            };
            in_batch.tail.take().is_some()
        })
    }

    /// Turns what has not reached the server into ordinary changes.
    pub(crate) fn forget_all_tails(&self) -> Result<(), SyncError> {
        let ours = self.noted_objects(|summary| summary.is_ours())?;
        // One object at a time: a crash goes on with the rest.
        for no in ours {
            self.change_tails(no, |note| {
                // Both give theirs up.
                let mut has_changed = false;
                if let Some(dirty) = &mut note.dirty.data {
                    has_changed |= dirty.tail.take().is_some();
                }
                if let Some(in_batch) = content_in_flight(note) {
                    has_changed |= in_batch.tail.take().is_some();
                }
                has_changed
            })?;
        }
        Ok(())
    }

    fn change_tails(
        &self,
        no: ObjectNo,
        change: impl FnOnce(&mut ObjectNote) -> bool,
    ) -> Result<(), SyncError> {
        let cost = Cost::note()
            .with_note(self.note_of(no)?.encode().len())
            .freeing();
        let op = self.begin_operation(cost)?;
        // The object may be gone: its note alone is changed then.
        let _locked = op.lock(&[no]).ok();
        let mut note = self.note_of(no)?;
        if change(&mut note) {
            op.set_note(no, Some(&note.encode()))?;
        }
        Ok(())
    }

    /// Returns the state that a batch with a tail made of an object, if others have changed its
    /// content since. It tells whether the tail was committed.
    pub(crate) fn past_of_tail(
        &self,
        version: &ObjectVersion,
        committed: Option<CommittedBatch>,
    ) -> Result<Option<ObjectVersion>, SyncError> {
        let Some(CommittedBatch { batch, seq }) = committed else {
            return Ok(None);
        };
        let note = self.note_of(version.object)?;
        let in_batch = note
            .in_flight
            .filter(|in_flight| in_flight.batch == batch)
            .and_then(|in_flight| in_flight.components.data);
        // The newest state tells by itself what became of the tail.
        if version.data_seq == seq || in_batch.is_none_or(|in_batch| in_batch.tail.is_none()) {
            return Ok(None);
        }
        let request = ClientRequest::ReadPast {
            object: version.object,
            at: seq,
            offset: 0,
            len: 0,
        };
        match self.ask_server(&request)? {
            ServerReply::Past { version, .. } => Ok(version),
            _ => Err(unexpected("to a read of the past").into()),
        }
    }
}
