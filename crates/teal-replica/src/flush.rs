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
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use teal_device::UpstreamError;
use teal_log::Cost;
use teal_proto::{ClientRequest, RefusalCode, STAGE_BYTES, ServerReply, encode_ops};
use teal_types::limits::BATCH_BYTES_MAX;
use teal_types::{BatchNo, CommitSeq, ObjectNo, Op};
use teal_volume::FsError;

impl Replica {
    /// Asks the server within the usual deadline.
    pub(crate) fn ask_server(&self, request: &ClientRequest) -> Result<ServerReply, UpstreamError> {
        self.call_server(request, self.options().deadline)
    }

    /// Sends one batch of what is dirty; says whether there is more, or something was sent at all.
    /// Keeps in mind what stands in the way for as long as nobody does something about it.
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
        let _flushing = self.hold_flush();
        self.resolve_earlier_batch()?;
        self.catch_up()?;
        // What has lost its name by that has another one at the server.
        self.retry_uninstalled()?;
        let Some(cut) = self.take_cut()? else {
            return Ok(FlushOutcome::Nothing);
        };
        let (batch, is_partial) = (cut.batch, cut.is_partial);
        let objects = cut.objects.clone();
        let _sending = self.drive_set().begin_sending();
        let mut unread = Vec::new();
        let staged = self.stage_batch(cut, &mut unread);
        let (parts, digest) = match staged {
            Ok(staged) if unread.is_empty() => staged,
            staged => {
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
        self.update_identity(|identity| (identity.parts, identity.batch_digest) = (parts, digest))?;
        if !bug(Bug::UnsyncedCommit) {
            self.volume().sync()?;
        }
        if let Err(e) = self.resolve_batch() {
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
    fn resolve_earlier_batch(&self) -> Result<(), SyncError> {
        if self.identity().parts == 0 {
            return Ok(());
        }
        let objects = self.objects_in_flight()?;
        match self.resolve_batch() {
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
        contents.sort_by_cached_key(|(no, _)| self.store().attr(*no).map_or(0, |attr| attr.size));
        for (no, dirty) in &contents {
            match sending.add_file(*no, dirty, &mut others) {
                Err(e @ SyncError::Fs(_)) if !bug(Bug::OneStopsAll) => unread.push((*no, e)),
                sent => sent?,
            }
        }
        sending.send_missing()?;
        if !unread.is_empty() {
            return Ok((0, [0; 32]));
        }
        let ops: Vec<Op> = [creates, removals, placements, others]
            .into_iter()
            .flatten()
            .collect();
        self.counters()
            .ops
            .fetch_add(ops.len() as u64, Ordering::Relaxed);
        let incarnation = self.identity().incarnation;
        let (mut parts, mut digest) = (0, blake3::Hasher::new());
        let mut gathered = Vec::new();
        let (mut bytes, mut bytes_in_all) = (0, 0);
        let mut stage = |ops: Vec<Op>, parts: &mut u32| -> Result<(), SyncError> {
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
            if bytes + len > STAGE_BYTES && !gathered.is_empty() {
                stage(std::mem::take(&mut gathered), &mut parts)?;
                bytes = 0;
            }
            bytes += len;
            bytes_in_all += len as u64;
            if bytes_in_all > BATCH_BYTES_MAX {
                return Err(SyncError::TooLarge);
            }
            gathered.push(op);
        }
        stage(gathered, &mut parts)?;
        Ok((parts, *digest.finalize().as_bytes()))
    }

    /// Finds out what has become of the batch that is in flight, if one does, and acknowledges it.
    pub(crate) fn resolve_batch(&self) -> Result<(), SyncError> {
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
            Ok(ServerReply::Committed { seq }) => seq,
            Ok(_) => return Err(unexpected("to a commit").into()),
            Err(UpstreamError::Refused(refused)) => {
                // Whoever is shut out is not told what became of it; that is asked again when it is
                // let in.
                let needs_look = matches!(
                    refused.code,
                    RefusalCode::Busy | RefusalCode::Stopping | RefusalCode::Denied
                );
                if !needs_look {
                    // It was not committed, and never will be in this form.
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
            self.pull_all(Some(CommittedBatch { batch, seq }))?;
            self.acknowledge_rest(batch, seq)?;
            self.update_identity(|identity| identity.parts = 0)?;
        }
        if self.options().queue.is_some() {
            self.count_queue()?;
        }
        self.state().flush_ended(self.monotonic());
        Ok(())
    }

    /// Everything that is in flight.
    pub(crate) fn objects_in_flight(&self) -> Result<Vec<ObjectNo>, FsError> {
        let mut in_flight = Vec::new();
        self.store().each_note(ObjectNo::ROOT, &mut |no, head| {
            if super::ObjectNote::summary(head).is_in_flight {
                in_flight.push(no);
            }
            ControlFlow::Continue(())
        })?;
        Ok(in_flight)
    }

    /// After a batch that did not arrive, or was never sent.
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
            let cost = Cost::note()
                .with_note(self.note_of(*no)?.encode().len())
                .freeing();
            let op = self.begin_operation(cost)?;
            let _locked = op.lock(&[*no]).ok();
            let mut note = self.note_of(*no)?;
            if let Some(in_flight) = note.in_flight.take() {
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

/// Returns whether a refusal comes again until somebody has done something about it.
fn is_lasting(code: RefusalCode) -> bool {
    matches!(
        code,
        RefusalCode::NoSpace
            | RefusalCode::ReadOnly
            | RefusalCode::Damaged
            | RefusalCode::BadRequest
    )
}

/// What a flush has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlushOutcome {
    /// Nothing was dirty.
    Nothing,
    /// A batch was sent, and more is dirty than fitted.
    Partial,
    /// All that was dirty at its beginning is at the server.
    All,
}
