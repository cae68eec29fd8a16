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
use super::{Replica, SyncError, unexpected};
use crate::seeded::{Bug, bug};
use std::sync::atomic::Ordering;
use teal_device::UpstreamError;
use teal_log::Cost;
use teal_proto::{ClientRequest, RefusalCode, STAGE_BYTES, ServerReply, encode_ops};
use teal_types::limits::BATCH_BYTES_MAX;
use teal_types::{BatchNo, CommitSeq, ObjectNo, Op};
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
        let staged = self.stage_batch(cut, &mut unread);
        let (parts, digest) = match staged {
            Ok(staged) if unread.is_empty() => staged,
            staged => {
                // Nothing of the batch was committed: all its objects are dirty again.
                self.take_back(batch, &objects)?;
                for (no, e) in unread {
                    self.hold_unread(no, e)?;
                }
                return match staged {
                    Ok(_) | Err(SyncError::Later) => Ok(FlushOutcome::Partial),
                    Err(e) => self
                        .narrow_batch(&objects, e)
                        .map(|()| FlushOutcome::Partial),
                };
            }
        };
        // The number of parts marks the batch as complete: after a crash it is committed, not taken
        // back.
        self.update_identity(|identity| (identity.parts, identity.batch_digest) = (parts, digest))?;
        if !bug(Bug::UnsyncedCommit) {
            // The mark is durable before the server can commit the batch.
            self.volume().sync()?;
        }
        if let Err(e) = self.resolve_batch(&flushing) {
            // Taken back if it was refused; if not, it is found out later what became of it.
            if self.identity().parts > 0 {
                return Err(e);
            }
            return self
                .narrow_batch(&objects, e)
                .map(|()| FlushOutcome::Partial);
        }
        self.stuck().batch_arrived(&objects);
        Ok(if is_partial {
            FlushOutcome::Partial
        } else {
            FlushOutcome::All
        })
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

    /// Sends the parts of a batch and all its content, the smallest files first; how many parts,
    /// and their digest. `unread`: files that cannot be read here.
    fn stage_batch(
        &self,
        cut: BatchCut,
        unread: &mut Vec<(ObjectNo, SyncError)>,
    ) -> Result<(u32, [u8; 32]), SyncError> {
        let BatchCut {
            batch,
            creates,
            removals,
            placements,
            mut others,
            mut contents,
            ..
        } = cut;
        let mut sending = ChunkSender::new(self);
        // Small files first: the large one does not hold up the rest of the batch.
        contents.sort_by_cached_key(|(no, _)| self.store().attr(*no).map_or(0, |attr| attr.size));
        for (no, dirty) in &contents {
            match sending.add_file(*no, dirty, &mut others) {
                // A file that cannot be read here is held back; the others go.
                Err(e @ SyncError::Fs(_)) if !bug(Bug::OneStopsAll) => unread.push((*no, e)),
                sent => sent?,
            }
        }
        sending.send_missing()?;
        // The batch is cut again, without the unread files.
        if !unread.is_empty() {
            return Ok((0, [0; 32]));
        }
        // Creations before names, and names before the rest: each operation finds its object.
        let ops: Vec<Op> = [creates, removals, placements, others]
            .into_iter()
            .flatten()
            .collect();
        self.counters()
            .ops
            .fetch_add(ops.len() as u64, Ordering::Relaxed);
        let incarnation = self.identity().incarnation;
        let mut parts = 0;
        let mut digest = blake3::Hasher::new();
        let mut gathered = Vec::new();
        let mut bytes = 0;
        let mut bytes_in_all = 0;
        let mut stage = |ops: Vec<Op>, parts: &mut u32| -> Result<(), SyncError> {
            // Both sides compute the digest of all parts: the server commits only what was sent.
            digest.update(&encode_ops(&ops).map_err(UpstreamError::from)?);
            let request = ClientRequest::Stage {
                incarnation,
                batch,
                part: *parts,
                ops,
            };
            *parts += 1;
            match self.ask_server(&request)? {
                ServerReply::Done => Ok(()),
                _ => Err(unexpected("to a part of a batch").into()),
            }
        };
        for op in ops {
            let len = encode_ops(std::slice::from_ref(&op))
                .map_err(UpstreamError::from)?
                .len();
            // One message holds at most so many bytes.
            if bytes + len > STAGE_BYTES && !gathered.is_empty() {
                stage(std::mem::take(&mut gathered), &mut parts)?;
                bytes = 0;
            }
            bytes += len;
            bytes_in_all += len as u64;
            // The server would refuse it: a batch is committed in one transaction.
            if bytes_in_all > BATCH_BYTES_MAX {
                return Err(SyncError::TooLarge);
            }
            gathered.push(op);
        }
        debug_assert!(bytes_in_all <= BATCH_BYTES_MAX);
        stage(gathered, &mut parts)?;
        debug_assert!(parts > 0, "a batch has at least one part");
        Ok((parts, *digest.finalize().as_bytes()))
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
