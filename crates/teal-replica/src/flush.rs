//! A flush: one batch from here to the server.
//!
//! # Guarantees
//! 1. What the server has committed is settled exactly once, whatever answers are lost: the batch's
//!    counter and digest are durable here before it is asked to commit, and asking again gives the
//!    same answer.
//! 2. What has not been committed is dirty again, with its first base.

use super::committed::CommittedBatch;
use super::content::ChunkSender;
use super::cut::BatchCut;
use super::parts::{PartSender, StagedBatch};
use super::{Replica, SyncError, unexpected};
use crate::seeded::{Bug, bug};
use std::sync::atomic::Ordering;
use teal_device::UpstreamError;
use teal_log::Cost;
use teal_proto::{ClientRequest, RefusalCode, ServerReply};
use teal_types::{BatchNo, CommitSeq, ObjectNo};
use teal_volume::{FsError, RankedMutexGuard};

/// The right to flush: one thread has it at a time.
type FlushGuard<'a> = RankedMutexGuard<'a, ()>;

impl Replica {
    /// Asks the server within the usual deadline.
    pub(crate) fn ask_server(&self, request: &ClientRequest) -> Result<ServerReply, UpstreamError> {
        self.call_server(request, self.options().deadline)
    }

    /// Sends one batch of dirty components. Returns whether more is dirty, and whether anything was
    /// sent. Keeps a refusal in mind for as long as its cause lasts.
    pub(crate) fn flush_once(&self) -> Result<FlushOutcome, SyncError> {
        let flushed = self.send_batch();
        let held = self.stuck().server_refusal();
        let stuck = match &flushed {
            Err(SyncError::Upstream(UpstreamError::Refused(refused)))
                if is_lasting(refused.code) =>
            {
                Some(&refused.words)
            }
            _ => held.as_ref(),
        };
        if self.state().set_refusal(stuck)
            && let Some(words) = stuck
        {
            log::warn!("the server does not take changes: {words}");
        }
        flushed
    }

    fn send_batch(&self) -> Result<FlushOutcome, SyncError> {
        // One flush at a time: batches are counted without gaps.
        let flushing = self.hold_flush();
        // Before a new batch is cut, the fate of the last one must be known.
        self.resolve_earlier_batch(&flushing)?;
        // The batch is based on the newest state, so that fewer changes conflict.
        self.catch_up()?;
        // Objects that lost their name by that have another one at the server.
        self.retry_uninstalled()?;
        let Some(cut) = self.take_cut()? else {
            return Ok(FlushOutcome::Nothing);
        };
        let batch = cut.batch;
        let is_partial = cut.is_partial;
        let objects = cut.objects.clone();
        let _sending = self.drive_set().begin_sending();
        let mut unread = Vec::new();
        let staged = match self.stage_batch(cut, &mut unread) {
            Ok(Some(staged)) => staged,
            unsent => {
                // Nothing of the batch was committed: all its objects are dirty again.
                self.take_back(batch, &objects)?;
                for (no, e) in unread {
                    self.hold_unread(no, e)?;
                }
                return match unsent {
                    Ok(_) | Err(SyncError::Later) => Ok(FlushOutcome::Partial),
                    Err(e) => self.send_less_next(&objects, e),
                };
            }
        };
        self.mark_complete(staged)?;
        if let Err(e) = self.resolve_batch(&flushing) {
            // Taken back if it was refused; if not, it is found out later what became of it.
            if self.identity().parts > 0 {
                return Err(e);
            }
            return self.send_less_next(&objects, e);
        }
        self.stuck().batch_arrived(&objects);
        Ok(if is_partial {
            FlushOutcome::Partial
        } else {
            FlushOutcome::All
        })
    }

    /// Marks a batch as complete: after a crash it is committed, not taken back.
    fn mark_complete(&self, staged: StagedBatch) -> Result<(), SyncError> {
        self.update_identity(|identity| {
            identity.parts = staged.parts;
            identity.batch_digest = staged.digest;
        })?;
        if !bug(Bug::UnsyncedCommit) {
            // The mark is durable before the server can commit the batch.
            self.volume().sync()?;
        }
        Ok(())
    }

    /// Has the next batch carry less than one that was refused because of `e`.
    fn send_less_next(
        &self,
        objects: &[ObjectNo],
        e: SyncError,
    ) -> Result<FlushOutcome, SyncError> {
        self.narrow_batch(objects, e)?;
        Ok(FlushOutcome::Partial)
    }

    /// Finds out what has become of a batch of which an earlier flush did not hear. What was in one
    /// that is refused is sent anew.
    fn resolve_earlier_batch(&self, flushing: &FlushGuard<'_>) -> Result<(), SyncError> {
        if self.identity().parts == 0 {
            return Ok(());
        }
        let objects = self.objects_in_flight()?;
        match self.resolve_batch(flushing) {
            // The server refused the batch, and it was taken back.
            Err(e) if self.identity().parts == 0 => self.narrow_batch(&objects, e),
            committed => committed,
        }
    }

    /// Sends all content of a batch, and then its operations in parts. Returns `None`, and sends no
    /// part, if files cannot be read here, which are added to `unread`: the batch is cut again
    /// without them.
    fn stage_batch(
        &self,
        mut cut: BatchCut,
        unread: &mut Vec<(ObjectNo, SyncError)>,
    ) -> Result<Option<StagedBatch>, SyncError> {
        self.send_content(&mut cut, unread)?;
        if !unread.is_empty() {
            return Ok(None);
        }
        // Creations before names, and names before the rest: each operation finds its object.
        let mut ops = cut.creates;
        ops.append(&mut cut.removals);
        ops.append(&mut cut.placements);
        ops.append(&mut cut.others);
        let count = ops.len() as u64;
        self.counters().ops.fetch_add(count, Ordering::Relaxed);
        let mut sender = PartSender::new(self, cut.batch);
        for op in ops {
            sender.add_op(op)?;
        }
        sender.finish().map(Some)
    }

    /// Sends the content of a batch that the server lacks, the smallest files first, and adds the
    /// operations that name it. `unread`: files that cannot be read here.
    fn send_content(
        &self,
        cut: &mut BatchCut,
        unread: &mut Vec<(ObjectNo, SyncError)>,
    ) -> Result<(), SyncError> {
        let mut sending = ChunkSender::new(self);
        // Small files first: the large one does not hold up the rest of the batch.
        let mut contents = std::mem::take(&mut cut.contents);
        contents.sort_by_cached_key(|(no, _)| self.store().attr(*no).map_or(0, |attr| attr.size));
        for (no, dirty) in &contents {
            match sending.add_file(*no, dirty, &mut cut.others) {
                // A file that cannot be read here is held back; the others go.
                Err(e @ SyncError::Fs(_)) if !bug(Bug::OneStopsAll) => unread.push((*no, e)),
                sent => sent?,
            }
        }
        sending.send_missing()
    }

    /// Finds out what has become of a batch that is in flight, for a thread that does not flush.
    /// Waits while another thread does so.
    pub(crate) fn resolve_in_flight(&self) -> Result<(), SyncError> {
        // Only a flush makes a batch complete, so an idle replica needs no lock.
        if self.identity().parts == 0 {
            return Ok(());
        }
        let flushing = self.hold_flush();
        self.resolve_batch(&flushing)
    }

    /// Finds out what has become of the batch that is in flight, if there is one, and acknowledges
    /// it. The caller flushes: between the question and its answer, another thread could have
    /// acknowledged this batch and completed the next one, which would then be forgotten.
    fn resolve_batch(&self, _flushing: &FlushGuard<'_>) -> Result<(), SyncError> {
        let identity = self.identity();
        if identity.parts == 0 {
            return Ok(());
        }
        let request = ClientRequest::Commit {
            incarnation: identity.incarnation,
            batch: identity.batch,
            parts: identity.parts,
            digest: identity.batch_digest,
        };
        let seq = match self.ask_server(&request) {
            // A repeated commit is answered like the first.
            Ok(ServerReply::Committed { seq }) => seq,
            Ok(_) => return Err(unexpected("to a commit").into()),
            Err(UpstreamError::Refused(refused)) => {
                // A client that is shut out is not told the outcome of the batch. It asks again
                // when it is let in.
                let needs_look = matches!(
                    refused.code,
                    RefusalCode::Busy | RefusalCode::Stopping | RefusalCode::Denied
                );
                if !needs_look {
                    // The batch was not committed, and never will be in this form.
                    self.take_back_all()?;
                }
                return Err(refused.into());
            }
            Err(e) => return Err(e.into()),
        };
        self.counters().batches.fetch_add(1, Ordering::Relaxed);
        self.acknowledge_batch(identity.batch, seq)
    }

    /// Brings history up to a batch of this replica, and acknowledges what of it did not appear
    /// there.
    fn acknowledge_batch(&self, batch: BatchNo, seq: CommitSeq) -> Result<(), SyncError> {
        {
            let _applying = self.lock_applying()?;
            debug_assert_eq!(self.identity().batch, batch, "another batch is in flight");
            // The batch is recognised among the pulled changes, in its place between those of
            // others.
            self.pull_all(Some(CommittedBatch { batch, seq }))?;
            self.acknowledge_rest(batch, seq)?;
            // Last, so that a crash repeats the acknowledgement rather than forgets it.
            self.update_identity(|identity| identity.parts = 0)?;
        }
        if self.options().queue.is_some() {
            self.count_queue()?;
        }
        self.state().flush_ended(self.monotonic());
        Ok(())
    }

    /// Returns all objects with components in flight.
    pub(crate) fn objects_in_flight(&self) -> Result<Vec<ObjectNo>, FsError> {
        let in_flight = self.noted_objects(|summary| summary.is_in_flight)?;
        Ok(in_flight)
    }

    /// Makes dirty again what is in flight in a batch that did not arrive, or was never sent.
    pub(crate) fn take_back_all(&self) -> Result<(), SyncError> {
        let identity = self.identity();
        let objects = self.objects_in_flight()?;
        if objects.is_empty() && identity.parts == 0 {
            return Ok(());
        }
        self.take_back(identity.batch, &objects)
    }

    fn take_back(&self, batch: BatchNo, objects: &[ObjectNo]) -> Result<(), SyncError> {
        if !objects.is_empty() {
            log::info!(
                "batch {batch} did not arrive: {} objects are to be sent again",
                objects.len()
            );
        }
        for no in objects {
            // The note becomes smaller.
            let cost = Cost::note()
                .with_note(self.note_of(*no)?.encode().len())
                .freeing();
            let op = self.begin_operation(cost)?;
            let _locked = op.lock(&[*no]).ok();
            let mut note = self.note_of(*no)?;
            if let Some(in_flight) = note.in_flight.take() {
                // Changes made since the cut stay; those of the batch are dirty again beneath them.
                note.dirty.take_back(in_flight.components);
                let bytes = (!note.is_empty()).then(|| note.encode());
                op.set_note(*no, bytes.as_deref())?;
            }
        }
        // Never committed, its counter is free: all up to the last one are known to be this
        // store's.
        self.update_identity(|identity| {
            identity.parts = 0;
            if identity.batch == batch {
                identity.batch = batch.previous();
            }
        })?;
        self.becomes_dirty(self.monotonic());
        Ok(())
    }
}

/// Returns whether a refusal comes again until a person has removed its cause.
fn is_lasting(code: RefusalCode) -> bool {
    matches!(
        code,
        RefusalCode::NoSpace
            | RefusalCode::ReadOnly
            | RefusalCode::Damaged
            | RefusalCode::BadRequest
    )
}

/// The outcome of a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlushOutcome {
    /// Nothing was dirty.
    Nothing,
    /// A batch was sent, and more is dirty than fitted.
    Partial,
    /// All that was dirty at its beginning is at the server.
    All,
}
