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
use super::note::{AppendedTail, ObjectNote, UnsentComponents};
use super::{Replica, SyncError, unexpected};
use std::ops::ControlFlow;
use teal_log::{Cost, StoreError};
use teal_proto::{ClientRequest, ServerReply};
use teal_types::ranges::{ByteRanges, CONTENT_END};
use teal_types::{CommitSeq, ObjectNo, ObjectVersion};

/// What became of the content that a batch brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentOutcome {
    /// It brought none.
    NotSent,
    /// It is the server's, as it is here.
    AsSent,
    /// It is the server's, behind what others had appended.
    Behind(AppendedTail),
    /// It lost a conflict.
    Lost,
}

impl ContentOutcome {
    /// `version`: the server's present state; `past`: that of the batch `seq`, where it was asked
    /// for.
    pub(crate) fn of_batch(
        part: &UnsentComponents,
        version: &ObjectVersion,
        past: Option<&ObjectVersion>,
        seq: CommitSeq,
    ) -> Self {
        if !part.created && part.data.is_none() {
            return Self::NotSent;
        }
        let is_newest = version.data_seq == seq;
        match part.data.as_ref().and_then(|dirty| dirty.tail) {
            None if is_newest => Self::AsSent,
            None => Self::Lost,
            Some(tail) if is_newest && tail.ends_at(version.size) => Self::AsSent,
            Some(tail) if is_newest || past.is_some_and(|past| past.data_seq == seq) => {
                Self::Behind(tail)
            }
            Some(_) => Self::Lost,
        }
    }
}

/// Returns where content is to be installed of a file whose tail lies elsewhere at the server: from
/// the end of the base on, and where others have changed it since; `None`: anywhere. `seen`: the
/// position that `ranges` begin at.
pub(crate) fn ranges_behind(
    tail: &AppendedTail,
    version: &ObjectVersion,
    ranges: Option<&[(u64, u64)]>,
    committed: Option<CommittedBatch>,
    seen: CommitSeq,
) -> Option<Vec<(u64, u64)>> {
    let seq = committed?.seq;
    let since = if version.data_seq == seq {
        &[]
    } else {
        ranges.filter(|_| seen <= seq)?
    };
    let mut all = ByteRanges::default();
    since
        .iter()
        .for_each(|(offset, len)| all.add(*offset, offset.saturating_add(*len)));
    all.add(tail.start, CONTENT_END);
    Some(all.iter().map(|(from, to)| (from, to - from)).collect())
}

impl Replica {
    /// Returns whether nothing was done to the content since a cut but that more was appended.
    pub(crate) fn has_tail(&self, no: ObjectNo, tail: &AppendedTail) -> Result<bool, SyncError> {
        let op = self.begin_operation(Cost::note().freeing())?;
        let locked = match op.lock(&[no]) {
            Err(StoreError::NotFound(_)) => return Ok(false),
            locked => locked?,
        };
        let note = self.note_of(no)?;
        let is_appended = note.dirty.data.is_none_or(|newer| newer.tail.is_some());
        Ok(is_appended && locked.attr(no).size >= tail.to)
    }

    /// Turns what is in flight of an object into an ordinary change.
    pub(crate) fn forget_tail(&self, no: ObjectNo) -> Result<(), SyncError> {
        self.change_tails(no, |note| {
            let in_batch = note
                .in_flight
                .as_mut()
                .and_then(|in_flight| in_flight.components.data.as_mut());
            in_batch.is_some_and(|in_batch| in_batch.tail.take().is_some())
        })
    }

    /// Turns what has not reached the server into ordinary changes.
    pub(crate) fn forget_all_tails(&self) -> Result<(), SyncError> {
        let mut ours = Vec::new();
        self.store().each_note(ObjectNo::ROOT, &mut |no, head| {
            ours.extend(ObjectNote::summary(head).is_ours().then_some(no));
            ControlFlow::Continue(())
        })?;
        for no in ours {
            self.change_tails(no, |note| {
                let in_batch = note
                    .in_flight
                    .as_mut()
                    .and_then(|in_flight| in_flight.components.data.as_mut());
                let parts = note.dirty.data.iter_mut().chain(in_batch);
                // All of them give theirs up.
                parts.filter_map(|dirty| dirty.tail.take()).count() > 0
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
        let _locked = op.lock(&[no]).ok();
        let mut note = self.note_of(no)?;
        if change(&mut note) {
            op.set_note(no, Some(&note.encode()))?;
        }
        Ok(())
    }

    /// The state that a batch made of an object to which it brought a tail, if others have changed
    /// its content since: did it land?
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
