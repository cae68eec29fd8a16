//! Requests: which peer may ask what, and which part of the server answers.
//!
//! # Guarantees
//! 1. *Any bytes*: [`Server::handle_bytes`] answers whatever comes, in words if it makes no sense.
//! 2. *Own volume only*: a peer sees its volume, and nothing once it is revoked, pulls that were
//!    waiting included.
//! 3. *Hello first*: history is given and taken only after a hello, which tells whether it is the
//!    one that the peer knows.

use crate::commit::BatchName;
use crate::peer::Peer;
use crate::pull::PullRequest;
use crate::refusal::{Outcome, RequestRefusal, bad_request, is_no_room, refuse, refuse_stranger};
use crate::seeded::{Bug, bug};
use crate::server::Server;
use crate::turns::TurnKind;
use crate::uploads::UploadAdmission;
use crate::volume::volume_of;
use teal_proto::{
    CHUNKS_MAX, ClientRequest, CodecError, RefusalCode, ServerReply, decode_request, encode_reply,
};
use teal_types::ChunkId;

impl Server {
    /// Answers the bytes of a request with those of a reply.
    pub fn handle_bytes(&self, peer: Peer, bytes: &[u8]) -> Vec<u8> {
        let reply = match decode_request(bytes) {
            Ok(request) => self.handle(peer, request),
            Err(error) => self.codec_refusal(&error).into(),
        };
        // A reply that is too large becomes a refusal, which always fits.
        encode_reply(&reply)
            .or_else(|error| encode_reply(&self.codec_refusal(&error).into()))
            .unwrap_or_else(|_| Vec::new())
    }

    fn codec_refusal(&self, error: &CodecError) -> RequestRefusal {
        self.counters().count_refusal();
        RequestRefusal::new(RefusalCode::BadRequest, error.to_string())
    }

    /// Answers a request. Waits only in a pull, and no longer than the pull says.
    pub fn handle(&self, peer: Peer, request: ClientRequest) -> ServerReply {
        self.counters().count_request(&request);
        let outcome = self.admit_peer(peer).and_then(|()| {
            let has_turns = is_change(&request);
            let carry_out = || self.dispatch(peer, request);
            if has_turns {
                self.turns.run(peer, TurnKind::Change, carry_out)
            } else {
                carry_out()
            }
        });
        // A machine that was shut out while it waited doesn't get the answer.
        let outcome = if self.presence.lock().is_shut_out(peer) {
            refuse_stranger()
        } else {
            outcome
        };
        outcome.unwrap_or_else(|refusal| {
            self.counters().count_refusal();
            refusal.into()
        })
    }

    /// Has the part of the server answer to which a request belongs.
    fn dispatch(&self, peer: Peer, request: ClientRequest) -> Outcome<ServerReply> {
        if is_about_history(&request) && !bug(Bug::OtherHistory) {
            self.require_hello(peer)?;
        }
        match request {
            ClientRequest::Hello(hello) => self.answer_hello(peer, &hello),
            ClientRequest::Incarnate => self.answer_incarnate(peer),
            ClientRequest::Pull {
                incarnation,
                since,
                digest,
                filter,
                after,
                wait_ms,
            } => {
                let pull = PullRequest {
                    incarnation,
                    since,
                    digest,
                    filter,
                    after,
                };
                self.answer_pull(peer, &pull, wait_ms)
            }
            ClientRequest::Have { chunks } => self.answer_have(peer, &chunks),
            ClientRequest::Put { chunks } => {
                let mut contents: Vec<&[u8]> = Vec::new();
                for chunk in &chunks {
                    contents.push(chunk);
                }
                self.store_chunks(peer, &contents)
            }
            ClientRequest::Stage {
                incarnation,
                batch,
                part,
                ops,
            } => self.stage_part(peer, peer.author(incarnation).batch(batch), part, &ops),
            ClientRequest::Commit {
                incarnation,
                batch,
                parts,
                digest,
            } => {
                let id = peer.author(incarnation).batch(batch);
                self.commit_batch(peer, BatchName { id, parts, digest })
            }
            ClientRequest::List { dirs, ahead } => self.answer_list(peer, &dirs, ahead),
            ClientRequest::Look { objects } => self.answer_look(peer, &objects),
            ClientRequest::Read { wants } => self.read_content(peer, &wants),
            ClientRequest::Conflicts { after } => self.answer_conflicts(peer, after),
            ClientRequest::Resolve { conflict } => self.resolve_conflict(peer, conflict),
            ClientRequest::History { object, after } => self.answer_history(peer, object, after),
            ClientRequest::ReadPast {
                object,
                at,
                offset,
                len,
            } => self.answer_read_past(peer, object, at, offset, len),
            ClientRequest::Bye => {
                self.presence.lock().record_goodbye(peer);
                Ok(ServerReply::Done)
            }
            ClientRequest::Keep {
                filter,
                objects,
                is_last,
            } => self.answer_keep(peer, filter, objects, is_last),
            ClientRequest::Devices(ask) => self.answer_devices(peer, ask),
            ClientRequest::ListPast { dir, at, after } => {
                self.answer_list_past(peer, dir, at, after.as_ref())
            }
        }
    }

    /// Refuses a peer that has not said hello: it may have seen another history than this one,
    /// and hello is what tells.
    fn require_hello(&self, peer: Peer) -> Outcome<()> {
        if self.presence.lock().has_greeted(peer) {
            return Ok(());
        }
        refuse(
            RefusalCode::Stopping,
            "the server has begun anew; say hello first",
        )
    }

    /// Answers which of some chunks are missing. The question begins an upload or goes on with
    /// it, which protects the chunks from a collection.
    fn answer_have(&self, peer: Peer, chunks: &[ChunkId]) -> Outcome<ServerReply> {
        check_chunk_count(chunks.len())?;
        let now = self.clock().monotonic_time();
        self.uploads.lock().touch_upload(peer, now);
        // The answer names the missing chunks by their places in the request.
        let mut missing = Vec::new();
        for (place, is_here) in (0_u32..).zip(self.chunks().find_present(chunks)) {
            if !is_here {
                missing.push(place);
            }
        }
        Ok(ServerReply::Missing(missing))
    }

    /// Stores content that a commit is going to name.
    fn store_chunks(&self, peer: Peer, chunks: &[&[u8]]) -> Outcome<ServerReply> {
        check_chunk_count(chunks.len())?;
        let bytes = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        self.admit_upload(peer, bytes)?;
        let stored = self.chunks().put(chunks.iter().copied());
        if let Err(error) = &stored
            && is_no_room(error)
        {
            self.record_no_room(peer);
        }
        let (ids, pin) = stored?;
        let lengths = chunks.iter().map(|chunk| chunk.len() as u64);
        let sent = ids.into_iter().zip(lengths);
        let is_upkeep_due = self.uploads.lock().record_sent(peer, sent);
        if is_upkeep_due {
            self.wake_upkeep();
        }
        // The tracker protects the chunks now, so the pin can go.
        drop(pin);
        self.counters()
            .count_received(usize::try_from(bytes).unwrap_or(usize::MAX));
        Ok(ServerReply::Done)
    }

    /// Lets a peer send so many bytes of content, after a pause if its share of the place is
    /// nearly used, or refuses them.
    fn admit_upload(&self, peer: Peer, bytes: u64) -> Outcome<()> {
        // The lock is released before a pause, and before the chunks are written.
        let admission = {
            let mut uploads = self.uploads.lock();
            uploads.touch_upload(peer, self.clock().monotonic_time());
            uploads.admit_content(peer, bytes, self.chunks().free_bytes())
        };
        match admission {
            UploadAdmission::Now => Ok(()),
            UploadAdmission::After(wait) => {
                self.pause(wait);
                Ok(())
            }
            UploadAdmission::Refused { chunks, bytes } => {
                self.record_no_room(peer);
                let words = format!(
                    "no space left for more content of this machine in {}: \
                     {chunks} chunks of it ({bytes} bytes) wait for a \
                     commit that names them, and what is left is for the other machines; \
                     make room there, then try again",
                    self.chunks().place()
                );
                refuse(RefusalCode::NoSpace, words)
            }
        }
    }

    /// Records that content of a peer found no room. A collection may free space for the next
    /// attempt.
    fn record_no_room(&self, peer: Peer) {
        self.uploads.lock().record_no_room(peer);
        self.wake_upkeep();
    }

    /// Refuses a peer that may not ask anything, and records the request of any other.
    fn admit_peer(&self, peer: Peer) -> Outcome<()> {
        // A request that begins now might be cut off by the end of the server.
        if self.presence.lock().is_stopping() {
            return refuse(
                RefusalCode::Stopping,
                "the server is ending; connect again in a while",
            );
        }
        let is_welcome = self.read(peer.volume, |txn| {
            volume_of(txn)?;
            Ok(txn
                .replica(peer.replica)?
                .is_some_and(|replica| !replica.is_revoked))
        })?;
        if !is_welcome {
            return refuse_stranger();
        }
        // Only a peer that may ask counts as live by asking.
        self.presence
            .lock()
            .record_request(peer, self.clock().monotonic_time());
        Ok(())
    }
}

/// Returns whether a request uses the writer of the metadata, stores content, or changes a filter.
fn is_change(request: &ClientRequest) -> bool {
    match request {
        ClientRequest::Put { .. }
        | ClientRequest::Stage { .. }
        | ClientRequest::Commit { .. }
        | ClientRequest::Incarnate
        | ClientRequest::Resolve { .. }
        | ClientRequest::Keep { .. }
        | ClientRequest::Hello(_)
        | ClientRequest::Devices(_) => true,
        ClientRequest::Pull { .. }
        | ClientRequest::Have { .. }
        | ClientRequest::List { .. }
        | ClientRequest::Look { .. }
        | ClientRequest::Read { .. }
        | ClientRequest::Conflicts { .. }
        | ClientRequest::History { .. }
        | ClientRequest::ReadPast { .. }
        | ClientRequest::ListPast { .. }
        | ClientRequest::Bye => false,
    }
}

/// Returns whether a request gives or takes history.
fn is_about_history(request: &ClientRequest) -> bool {
    matches!(
        request,
        ClientRequest::Pull { .. }
            | ClientRequest::Stage { .. }
            | ClientRequest::Commit { .. }
            | ClientRequest::Keep { .. }
    )
}

/// Refuses more chunks than one message may name.
fn check_chunk_count(asked: usize) -> Outcome<()> {
    if asked <= CHUNKS_MAX {
        return Ok(());
    }
    bad_request(format!(
        "{asked} at once; at most {CHUNKS_MAX} are allowed in one message"
    ))
}
