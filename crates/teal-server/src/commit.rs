//! Committing a batch: one transaction, durable before the answer.
//!
//! # Guarantees
//! 1. *Once*: a batch is known by replica, incarnation, counter and digest; again, it is answered
//!    as before and nothing happens.
//! 2. *No twins*: a counter that belongs to another batch, or an incarnation that is not the
//!    present one, means that the store is a copy.
//! 3. *Whole*: every chunk it names is durable, and pinned until the names are.
//! 4. *Always*: what cannot be done as it was meant becomes a conflict that is shown; only nonsense
//!    is refused.
//!
//! The parts: `removals` and `placements` (names), `states`, `content` and `appends` (the rest),
//! `rebirth` (what others removed), `finish` and `snapshots` (history).

mod appends;
mod content;
mod execution;
mod finish;
mod placements;
mod removals;
mod revival;
mod snapshots;
mod states;

use crate::peer::Peer;
use crate::recent::CommitConcern;
use crate::refusal::{Outcome, RequestRefusal, bad_request, damaged, refuse};
use crate::rules::valid;
use crate::seeded::{Bug, bug};
use crate::server::Server;
use crate::volume::{chained_digest, current_replica, volume_of};
use execution::BatchExecution;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use teal_chunk::ChunkStore;
use teal_meta::{BatchRow, CommitRow, ReadTransaction, WriteTransaction};
use teal_proto::{RefusalCode, ServerReply, batch_digest, decode_ops, encode_ops};
use teal_types::limits::{BATCH_BYTES_MAX, BATCH_PARTS_MAX};
use teal_types::{BatchId, ChunkId, CommitSeq, FileType, ObjectNo, Op, PieceSource, Timestamp};

/// A batch as its author names it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchName {
    pub(crate) id: BatchId,
    pub(crate) parts: u32,
    pub(crate) digest: [u8; 32],
}

/// The result of a commit, for the counters and the notifications.
struct CommitOutcome {
    seq: CommitSeq,
    ops: usize,
    conflicts: usize,
    ancestor_steps: u64,
    /// The objects that the batch changed; `None` if it had been committed before.
    concern: Option<Arc<CommitConcern>>,
}

impl Server {
    pub(crate) fn stage_part(
        &self,
        peer: Peer,
        batch: BatchId,
        part: u32,
        ops: &[Op],
    ) -> Outcome<ServerReply> {
        let no = batch.batch;
        if part >= BATCH_PARTS_MAX || no.is_none() || i64::try_from(no.get()).is_err() {
            return bad_request(format!(
                "part {part} of batch {no}: batches count from 1, parts from 0 below \
                 {BATCH_PARTS_MAX}"
            ));
        }
        // Operations are checked part by part, before anything is stored.
        if let Some(fault) = ops.iter().find_map(valid::find_fault) {
            return bad_request(fault);
        }
        let bytes = encode_ops(ops)
            .map_err(|error| RequestRefusal::new(RefusalCode::BadRequest, error.to_string()))?;
        // Parts need not be durable: after a crash the commit finds them missing, and the client
        // stages them again.
        self.write_soon(peer.volume, |txn| {
            let replica = current_replica(txn, peer, batch.incarnation)?;
            if batch.batch <= replica.last_batch {
                // Committed already; the commit will say so, or that it is another one.
                return Ok(());
            }
            let staged = txn.staged_parts(peer.replica)?;
            let (mut held, mut is_new) = (0, true);
            for of in &staged {
                if (of.incarnation, of.batch, of.part) == (batch.incarnation, batch.batch, part) {
                    // A part that comes again replaces itself, and does not count twice.
                    is_new = false;
                } else {
                    held += of.len;
                }
            }
            if held + bytes.len() as u64 > BATCH_BYTES_MAX
                || (is_new && staged.len() >= BATCH_PARTS_MAX as usize)
            {
                let words = format!(
                    "more than {BATCH_BYTES_MAX} bytes of operations wait for their commit: \
                     commit smaller batches"
                );
                return refuse(RefusalCode::Busy, words);
            }
            Ok(txn.stage_part(batch, part, &bytes)?)
        })?;
        Ok(ServerReply::Done)
    }

    pub(crate) fn commit_batch(&self, peer: Peer, named: BatchName) -> Outcome<ServerReply> {
        // A batch that was committed before is answered without its parts, which are gone by then.
        if let Some(seq) = self.read(peer.volume, |txn| committed_seq(txn, peer, &named))? {
            return Ok(ServerReply::Committed { seq });
        }
        let ops = self.read(peer.volume, |txn| staged_ops(txn, &named))?;
        let chunks = chunks_of(&ops);
        // The pin protects the chunks from a collection until history names them.
        let pin = self.chunks().pin(&chunks)?;
        // Their author has them with all that is in them.
        for filter in self.presence.lock().filters_of(peer) {
            filter.add_objects(ops.iter().filter_map(new_dir));
        }
        let moment = (self.clock().civil_time(), self.draw_number());
        let work =
            |txn: &mut dyn WriteTransaction| self.commit_once(txn, peer, &named, &ops, moment);
        let done = if bug(Bug::AnsweredTooEarly) {
            self.write_soon(peer.volume, work)?
        } else {
            self.write(peer.volume, work)?
        };
        // History names the chunks from now on.
        drop(pin);
        self.uploads.lock().record_named(peer, &chunks);
        self.counters()
            .count_commit(done.ops, done.conflicts, done.ancestor_steps);
        if let Some(concern) = &done.concern {
            self.presence.lock().notify_of_commit(peer.volume, concern);
        }
        Ok(ServerReply::Committed { seq: done.seq })
    }

    /// Carries a batch out in a transaction, unless another connection of the same client was
    /// faster.
    fn commit_once(
        &self,
        txn: &mut dyn WriteTransaction,
        peer: Peer,
        named: &BatchName,
        ops: &[Op],
        moment: (Timestamp, u32),
    ) -> Outcome<CommitOutcome> {
        if let Some(seq) = committed_seq(txn, peer, named)? {
            return Ok(CommitOutcome {
                seq,
                ops: 0,
                conflicts: 0,
                ancestor_steps: 0,
                concern: None,
            });
        }
        let done = carry_out((txn, self.chunks()), peer, named, ops, moment)?;
        // Commits are remembered in their order, and before a reader can see this one.
        if let Some(concern) = &done.concern {
            self.presence.lock().remember_commit(peer.volume, concern);
        }
        Ok(done)
    }
}

/// Returns where a batch has its place in history, if it has one.
fn committed_seq(
    txn: &dyn ReadTransaction,
    peer: Peer,
    named: &BatchName,
) -> Outcome<Option<CommitSeq>> {
    // An old incarnation is refused before its batches are looked at.
    let replica = current_replica(txn, peer, named.id.incarnation)?;
    if named.id.batch > replica.last_batch || bug(Bug::BatchTwice) {
        return Ok(None);
    }
    match txn.batch(named.id)? {
        Some(batch) if batch.digest == named.digest => Ok(Some(batch.seq)),
        // A counter up to the last one, without a row of this digest, was used by another batch.
        _ => {
            let words = format!(
                "batch {} of this device is known as another one: its store is a copy of one that \
                 went on; it gets a new incarnation",
                named.id.batch
            );
            refuse(RefusalCode::Cloned, words)
        }
    }
}

/// Returns the operations of a batch, put together from its parts.
fn staged_ops(txn: &dyn ReadTransaction, named: &BatchName) -> Outcome<Vec<Op>> {
    // Bounded before the loop, because the number comes from the client.
    if named.parts > BATCH_PARTS_MAX {
        return bad_request(format!(
            "a batch of {} parts; at most {BATCH_PARTS_MAX} are allowed",
            named.parts
        ));
    }
    let mut parts = Vec::new();
    for part in 0..named.parts {
        match txn.staged_part(named.id, part)? {
            Some(bytes) => parts.push(bytes),
            None => {
                let words = format!(
                    "part {part} of batch {} is not here; stage the batch again",
                    named.id.batch
                );
                return refuse(RefusalCode::NeedsParts, words);
            }
        }
    }
    if batch_digest(parts.iter().map(|part| &part[..])) != named.digest {
        let words = format!(
            "the parts of batch {} are not those of its digest; stage the batch again",
            named.id.batch
        );
        return refuse(RefusalCode::NeedsParts, words);
    }
    let mut ops = Vec::new();
    for part in parts {
        // The parts were checked when they were staged, so a failure here means damage.
        ops.extend(decode_ops(&part).map_err(damaged)?);
    }
    Ok(ops)
}

/// Returns the directory that an operation makes.
fn new_dir(op: &Op) -> Option<ObjectNo> {
    match op {
        Op::Create {
            object,
            kind: FileType::Dir,
            ..
        } => Some(*object),
        _ => None,
    }
}

/// Returns the chunks that operations name, each once.
fn chunks_of(ops: &[Op]) -> Vec<ChunkId> {
    let mut chunks = BTreeSet::new();
    for op in ops {
        let (Op::SetContent { change, .. } | Op::Append { change, .. }) = op else {
            continue;
        };
        for piece in &change.pieces {
            if let PieceSource::Chunk { id, .. } = piece.source {
                chunks.insert(id);
            }
        }
    }
    Vec::from_iter(chunks)
}

fn carry_out(
    (txn, chunks): (&mut dyn WriteTransaction, &ChunkStore),
    peer: Peer,
    named: &BatchName,
    ops: &[Op],
    (clock, draw): (Timestamp, u32),
) -> Outcome<CommitOutcome> {
    let mut replica = current_replica(txn, peer, named.id.incarnation)?;
    let volume = volume_of(txn)?;
    debug_assert!(
        named.id.batch > replica.last_batch || bug(Bug::BatchTwice),
        "batches are counted up"
    );
    let author = (named.id.author(), replica.device.clone());
    let mut work = BatchExecution::new(txn, chunks, volume, author, (clock, draw));
    work.author_seen = seen_by_author(ops);
    work.apply_ops(if bug(Bug::HalfABatch) && ops.len() > 6 {
        &ops[..ops.len() / 2]
    } else {
        ops
    })?;
    let seq = work.seq;
    let (conflicts, ancestor_steps) = (work.conflicts.len(), work.ancestor_steps);
    let concern = Some(Arc::new(work.finish_commit(named.id, &named.digest)?));
    // The batch's row and its staged parts change in one transaction: a batch either waits or is
    // committed.
    let row = BatchRow {
        digest: named.digest,
        seq,
    };
    txn.add_batch(named.id, &row)?;
    txn.drop_staged(named.id)?;
    replica.last_batch = named.id.batch;
    txn.put_replica(peer.replica, &replica)?;
    Ok(CommitOutcome {
        seq,
        ops: ops.len(),
        conflicts,
        ancestor_steps,
        concern,
    })
}

/// Returns for each object the commit up to which history had been applied when the author changed
/// its content, or the rest of its state if the content is unchanged.
fn seen_by_author(ops: &[Op]) -> HashMap<ObjectNo, CommitSeq> {
    let mut rest: HashMap<ObjectNo, CommitSeq> = HashMap::new();
    let mut content = HashMap::new();
    for op in ops {
        match op {
            Op::SetAttributes { object, base, .. } | Op::SetXattr { object, base, .. } => {
                let newest = rest.entry(*object).or_default();
                *newest = (*newest).max(*base);
            }
            Op::SetContent { object, base, .. } | Op::Append { object, base, .. } => {
                content.insert(*object, *base);
            }
            Op::Create { .. } | Op::Remove { .. } | Op::Place { .. } | Op::Move { .. } => {}
        }
    }
    // The base of a content change counts more than that of the rest.
    rest.extend(content);
    rest
}

impl BatchExecution<'_> {
    /// Carries out the operations, in the order of their kinds.
    fn apply_ops(&mut self, ops: &[Op]) -> Outcome<()> {
        // Objects are made first, because names and content of the batch refer to them.
        for op in ops {
            if let Op::Create {
                object,
                kind,
                attributes,
                target,
            } = op
            {
                self.create_object(*object, *kind, attributes, target)?;
            }
        }
        // An object that gets a name in this batch must not go with its old one.
        let mut named = HashSet::new();
        for op in ops {
            if matches!(op, Op::Place { .. } | Op::Move { .. }) {
                named.insert(op.object());
            }
        }
        // Old names are taken away before new ones are placed, so that a batch can swap two names.
        let found = self.carry_out_removals(ops, &named)?;
        self.carry_out_placements(ops, &found)?;
        // States come last: by now it is decided which objects are live.
        for op in ops {
            match op {
                Op::SetAttributes {
                    object,
                    base,
                    attributes,
                } => self.set_attributes(*object, *base, *attributes)?,
                Op::SetXattr {
                    object,
                    base,
                    name,
                    value,
                } => {
                    self.set_xattr(*object, *base, name, value.as_deref())?;
                }
                Op::SetContent {
                    object,
                    base,
                    change,
                } => self.set_content(*object, *base, change, ops)?,
                Op::Append {
                    object,
                    base,
                    change,
                } => self.append_content(*object, *base, change, ops)?,
                Op::Create { .. } | Op::Remove { .. } | Op::Place { .. } | Op::Move { .. } => {}
            }
        }
        self.remove_nameless()
    }

    /// Writes the history of the batch and the commit itself; what it changed.
    pub(crate) fn finish_commit(
        mut self,
        batch: BatchId,
        batch_digest: &[u8; 32],
    ) -> Outcome<CommitConcern> {
        debug_assert_eq!(
            self.seq.get(),
            self.volume.head.get() + 1,
            "commits have no gaps"
        );
        let concern = self.store_history()?;
        // Conflicts are numbered in the order of the history.
        for note in std::mem::take(&mut self.conflicts) {
            self.txn
                .put_conflict(self.volume.next_conflict, Some(&note))?;
            self.volume.next_conflict += 1;
        }
        // The chain of digests lets a client find out that a server has another history.
        self.volume.head = self.seq;
        self.volume.time = self.now;
        self.volume.digest = chained_digest(&self.volume.digest, self.seq, batch, batch_digest);
        let row = CommitRow {
            batch,
            time: self.now,
            digest: self.volume.digest,
        };
        self.txn.add_commit(self.seq, &row)?;
        self.txn.put_volume(&self.volume)?;
        Ok(concern)
    }
}
