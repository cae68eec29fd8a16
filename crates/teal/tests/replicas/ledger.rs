//! The batches that the server has acknowledged: all of them must be in its history.
//!
//! # Guarantees
//! 1. *Once*: a batch has one place in history, however often it is asked for.
//! 2. *Whole*: each operation of an acknowledged batch is found in the state of its commit, content
//!    byte for byte, or in a conflict of that commit with a copy that has the content.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use teal_chunk::{DedupDomain, DomainId};
use teal_proto::{
    ClientRequest, ConflictKind, ConflictNote, ContentAnswer, ServerReply, VersionNote,
    batch_digest, encode_ops,
};
use teal_server::{Peer, Server};
use teal_types::{
    BatchId, BatchNo, ChunkId, CommitSeq, ContentChange, FileType, Incarnation, ObjectNo,
    ObjectVersion, Op, PieceSource, ReplicaNo,
};

fn name(peer: Peer, incarnation: Incarnation, batch: BatchNo) -> BatchId {
    BatchId {
        replica: peer.replica,
        incarnation,
        batch,
    }
}

struct Batch {
    seq: CommitSeq,
    ops: Vec<Op>,
}

#[derive(Default)]
pub(crate) struct Ledger {
    domain: Option<DedupDomain>,
    chunks: HashMap<ChunkId, Vec<u8>>,
    /// The operations under each stamp: copied stores use the same stamps. Batches here have one
    /// part.
    staged: BTreeMap<BatchId, Vec<Vec<Op>>>,
    committed: BTreeMap<(BatchId, [u8; 32]), Batch>,
}

impl Ledger {
    pub(crate) fn note(&mut self, peer: Peer, request: &ClientRequest, reply: &ServerReply) {
        match (request, reply) {
            (_, ServerReply::Welcome(welcome)) => {
                self.domain = Some(DedupDomain::new(DomainId::new([0; 16]), welcome.domain))
            }
            (ClientRequest::Put { chunks }, ServerReply::Done) => {
                let domain = self.domain.as_ref().expect("said hello first");
                self.chunks.extend(
                    chunks
                        .iter()
                        .map(|chunk| (domain.name_content(chunk), chunk.to_vec())),
                );
            }
            (
                ClientRequest::Stage {
                    incarnation,
                    batch,
                    part: 0,
                    ops,
                },
                ServerReply::Done,
            ) => {
                self.staged
                    .entry(name(peer, *incarnation, *batch))
                    .or_default()
                    .push(ops.clone());
            }
            (
                ClientRequest::Commit {
                    incarnation,
                    batch,
                    parts: 1,
                    digest,
                },
                ServerReply::Committed { seq },
            ) => {
                let id = name(peer, *incarnation, *batch);
                let staged = self.staged.get(&id).into_iter().flatten();
                let is_it =
                    |ops: &&Vec<Op>| batch_digest([&encode_ops(*ops).unwrap()[..]]) == *digest;
                let ops = staged
                    .into_iter()
                    .find(is_it)
                    .expect("nothing is committed that was not staged")
                    .clone();
                let known = self
                    .committed
                    .entry((id, *digest))
                    .or_insert(Batch { seq: *seq, ops });
                assert_eq!(known.seq, *seq, "batch {id:?} has one place in history");
            }
            _ => {}
        }
    }

    /// The server has lost what is behind this commit.
    pub(crate) fn forget_after(&mut self, head: CommitSeq) {
        self.committed.retain(|_, batch| batch.seq <= head);
    }

    /// Batches acknowledged.
    pub(crate) fn batches(&self) -> u64 {
        self.committed.len() as u64
    }

    /// Returns what was acknowledged and is not in history.
    pub(crate) fn missing(&self, eyes: &Eyes<'_>) -> Vec<String> {
        let conflicts = eyes.conflicts();
        let mut places = BTreeMap::new();
        let mut missing = Vec::new();
        for ((id, _), batch) in &self.committed {
            if let Some(other) = places.insert(batch.seq, id) {
                missing.push(format!(
                    "batches {other:?} and {id:?} have the same place {:?}",
                    batch.seq
                ));
            }
            let at: Vec<&ConflictNote> = conflicts
                .iter()
                .filter(|note| note.seq == batch.seq)
                .collect();
            let check = Check {
                ledger: self,
                eyes,
                batch,
                conflicts: &at,
            };
            let lost = batch.ops.iter().filter(|op| !check.is_kept(op));
            missing.extend(lost.map(|op| format!("{id:?}, commit {:?}: {op:?}", batch.seq)));
        }
        missing
    }

    /// Returns the conflicts of an author's content with its own.
    pub(crate) fn with_oneself(&self, eyes: &Eyes<'_>) -> Vec<ConflictNote> {
        let mut found = eyes.with_oneself();
        found.retain(|note| !self.has_met_another(eyes, note));
        found
    }

    /// Returns whether another author has changed the content between the base of the losing change
    /// and its commit. An author that appends goes on behind content from elsewhere, without having
    /// seen it, and may write over its beginning then.
    fn has_met_another(&self, eyes: &Eyes<'_>, note: &ConflictNote) -> bool {
        let batch = self.committed.iter().find(|(_, of)| of.seq == note.seq);
        let Some(((id, _), batch)) = batch else {
            return false;
        };
        let base = batch.ops.iter().find_map(|op| match op {
            Op::SetContent { object, base, .. } | Op::Append { object, base, .. } => {
                (*object == note.object).then_some(*base)
            }
            _ => None,
        });
        let before = CommitSeq::new(note.seq.get() - 1);
        let versions = eyes.versions(note.object, base.unwrap_or(before), before);
        versions.into_iter().any(|at| {
            eyes.data_seq(note.object, at) == Some(at)
                && eyes.author(note.object, at) != Some(id.replica)
        })
    }

    /// Returns what is known of an object's content after the changes of a batch to what was there
    /// before.
    fn content(&self, ops: &[Op], object: ObjectNo, before: Option<Vec<u8>>) -> Vec<Option<u8>> {
        let unknown = before.as_ref().map(|_| 0);
        let mut content: Vec<Option<u8>> = before.into_iter().flatten().map(Some).collect();
        for op in ops {
            let (Op::SetContent {
                object: of, change, ..
            }
            | Op::Append {
                object: of, change, ..
            }) = op
            else {
                continue;
            };
            let ContentChange {
                cut, size, pieces, ..
            } = change;
            if *of != object {
                continue;
            }
            content.truncate(usize::try_from(*cut).unwrap_or(usize::MAX));
            content.resize(*size as usize, unknown);
            for piece in pieces {
                let bytes = match piece.source {
                    PieceSource::Chunk { id, offset } => self.chunks[&id][offset as usize..]
                        [..piece.len as usize]
                        .iter()
                        .map(|b| Some(*b))
                        .collect(),
                    PieceSource::Hole => vec![Some(0); piece.len as usize],
                };
                content.splice(
                    piece.offset as usize..(piece.offset + piece.len) as usize,
                    bytes,
                );
            }
        }
        content
    }
}

/// One batch against the history.
struct Check<'a> {
    ledger: &'a Ledger,
    eyes: &'a Eyes<'a>,
    batch: &'a Batch,
    conflicts: &'a [&'a ConflictNote],
}

impl Check<'_> {
    fn is_kept(&self, op: &Op) -> bool {
        let (object, at) = (op.object(), self.batch.seq);
        let is_shown = self
            .conflicts
            .iter()
            .any(|note| note.object == object || note.copy == Some(object));
        let version = self.eyes.past(object, at);
        let of = version.as_ref();
        match op {
            Op::SetContent { base, .. } => self.has_content(object, *base),
            Op::Append { base, change, .. } => {
                self.has_content(object, *base) || self.has_behind(object, change)
            }
            _ if is_shown => true,
            Op::Create { .. } => of.is_some(),
            Op::Remove { link, .. } => of.is_none_or(|version| !version.links.contains(link)),
            Op::Place { link, .. } | Op::Move { to: link, .. } => {
                of.is_some_and(|it| it.links.contains(link))
            }
            Op::SetAttributes { attributes, .. } => {
                of.is_none_or(|it| it.attributes.perm == attributes.perm)
            }
            Op::SetXattr { name, value, .. } => of.is_none_or(|version| {
                let there = version.xattrs.iter().find(|(of, _)| of == name);
                there.map(|(_, value)| &value[..]) == value.as_deref()
            }),
        }
    }

    /// A tail is behind all that was there before.
    fn has_behind(&self, object: ObjectNo, change: &ContentChange) -> bool {
        let at = self.batch.seq;
        let before = self
            .eyes
            .content(object, CommitSeq::new(at.get() - 1))
            .unwrap_or_default();
        let tail = change.pieces.iter().flat_map(|piece| match piece.source {
            PieceSource::Chunk { id, offset } => {
                &self.ledger.chunks[&id][offset as usize..][..piece.len as usize]
            }
            PieceSource::Hole => panic!("a hole in what was appended"),
        });
        let wanted: Vec<u8> = before.iter().chain(tail).copied().collect();
        self.eyes
            .content(object, at)
            .is_some_and(|there| there == wanted)
    }

    /// The change is applied to what was there; or, in a copy, to what its author had seen.
    fn has_content(&self, object: ObjectNo, base: CommitSeq) -> bool {
        let at = self.batch.seq;
        let copies = self
            .conflicts
            .iter()
            .filter(|note| note.object == object)
            .filter_map(|note| note.copy);
        let before = CommitSeq::new(at.get() - 1);
        [(object, before)]
            .into_iter()
            .chain(copies.map(|copy| (copy, base)))
            .any(|(place, before)| {
                let wanted =
                    self.ledger
                        .content(&self.batch.ops, object, self.eyes.content(object, before));
                let there = self.eyes.content(place, at);
                there.is_some_and(|there| {
                    there.len() == wanted.len()
                        && there
                            .iter()
                            .zip(&wanted)
                            .all(|(is, w)| w.is_none_or(|w| w == *is))
                })
            })
    }
}

/// A look at the server's history.
pub(crate) struct Eyes<'a> {
    pub(crate) server: &'a Arc<Server>,
    pub(crate) peer: Peer,
}

impl Eyes<'_> {
    pub(crate) fn ask(&self, request: ClientRequest) -> ServerReply {
        self.server.handle(self.peer, request)
    }

    pub(crate) fn conflicts(&self) -> Vec<ConflictNote> {
        let mut found: Vec<ConflictNote> = Vec::new();
        loop {
            match self.ask(ClientRequest::Conflicts {
                after: found.last().map_or(0, |note| note.id),
            }) {
                ServerReply::Conflicts(more) if more.is_empty() => return found,
                ServerReply::Conflicts(more) => found.extend(more),
                other => panic!("{other:?}"),
            }
        }
    }

    fn read(
        &self,
        object: ObjectNo,
        at: CommitSeq,
        len: u64,
    ) -> (Option<ObjectVersion>, ContentAnswer) {
        match self.ask(ClientRequest::ReadPast {
            object,
            at,
            offset: 0,
            len,
        }) {
            ServerReply::Past { version, got } => (version, got),
            other => panic!("{object} at {at:?}: {other:?}"),
        }
    }

    pub(crate) fn past(&self, object: ObjectNo, at: CommitSeq) -> Option<ObjectVersion> {
        self.read(object, at, 0).0
    }

    /// Content at a commit; `None`: there was no such object.
    pub(crate) fn content(&self, object: ObjectNo, at: CommitSeq) -> Option<Vec<u8>> {
        let size = self.past(object, at)?.size;
        let (_, ContentAnswer::Is { pieces, .. }) = self.read(object, at, size) else {
            panic!("{object} at {at:?} is damaged")
        };
        let mut content = vec![0; size as usize];
        for piece in pieces {
            content[piece.offset as usize..][..piece.bytes.len()].copy_from_slice(&piece.bytes);
        }
        Some(content)
    }

    /// The commit that had changed content last at a commit.
    pub(crate) fn data_seq(&self, object: ObjectNo, at: CommitSeq) -> Option<CommitSeq> {
        self.past(object, at).map(|version| version.data_seq)
    }

    /// The commits behind `after`, up to `to`, that made a version of an object which has content.
    pub(crate) fn versions(
        &self,
        object: ObjectNo,
        after: CommitSeq,
        to: CommitSeq,
    ) -> Vec<CommitSeq> {
        let ServerReply::History(notes) = self.ask(ClientRequest::History { object, after }) else {
            panic!("no history of {object}")
        };
        let is_one = |note: &&VersionNote| {
            let version = note.version.as_ref();
            note.seq <= to
                && version.is_some_and(|version| version.kind == FileType::File && version.size > 0)
        };
        notes.iter().filter(is_one).map(|note| note.seq).collect()
    }

    fn author(&self, object: ObjectNo, at: CommitSeq) -> Option<ReplicaNo> {
        let before = CommitSeq::new(at.get().saturating_sub(1));
        match self.ask(ClientRequest::History {
            object,
            after: before,
        }) {
            ServerReply::History(notes) => notes
                .first()
                .filter(|VersionNote { seq, .. }| *seq == at)
                .map(|note| note.batch.replica),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the author that ended an object which was gone before a commit.
    fn ended_by(&self, object: ObjectNo, at: CommitSeq) -> Option<ReplicaNo> {
        let ServerReply::History(notes) = self.ask(ClientRequest::History {
            object,
            after: CommitSeq::new(0),
        }) else {
            panic!("no history of {object}")
        };
        let last = notes.iter().take_while(|note| note.seq < at).last();
        last.filter(|note| note.version.is_none())
            .map(|note| note.batch.replica)
    }

    /// Returns the conflicts of content with content that the same author has changed last.
    fn with_oneself(&self) -> Vec<ConflictNote> {
        let mut found = self.conflicts();
        found.retain(|note| {
            let (ConflictKind::Content, Some(copy)) = (note.kind, note.copy) else {
                return false;
            };
            let content = || {
                self.past(note.object, note.seq)
                    .and_then(|first| self.author(note.object, first.data_seq))
            };
            // For a file that was replaced, the renaming came first, whichever author wrote its
            // content.
            let first = self.ended_by(copy, note.seq).or_else(content);
            first.is_some() && first == self.author(copy, note.seq)
        });
        found
    }
}
