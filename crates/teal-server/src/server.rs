//! The server: what it is made of, and who may ask it what.
//!
//! # Guarantees
//! 1. *Any bytes*: [`Server::handle_bytes`] answers whatever comes, in words if it makes no sense.
//! 2. *Own volume only*: a peer sees its volume, and nothing once it is revoked, what it waits for included.
//! 3. *Hello first*: history is given and taken only after a hello, which tells whether it is the one that the peer knows.
//! 4. *Durable*: what it has answered to a commit survives whatever the stores survive.
//!
//! | lock | guards | under it |
//! |---|---|---|
//! | `room` | who is here, who waits for what, and the last commits of each volume | the locks of filters; waiting lets it go |
//! | `guesses` | wrong tokens of late | nothing |
//! | `uploads` | content that no commit has named | `room`; waiting lets it go |

use crate::commit::{Named, volume_of};
use crate::counters::{Counters, Counts};
use crate::guesses::Guesses;
use crate::pull::From;
use crate::refusal::{Outcome, Refusal, bad, refuse};
use crate::room::Room;
use crate::seeded::{Bug, bug};
use crate::upkeep::is_no_room;
use crate::uploads::{Admission, Uploads};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use teal_chunk::{ChunkError, ChunkStore};
use teal_env::{Clock, Entropy};
use teal_meta::{Meta, MetaError, Read, Write};
use teal_proto::{
    CHUNKS_MAX, CodecError, RefusalCode, Reply, Request, decode_request, encode_reply,
};
use teal_types::VolumeId;

/// Who asks, as the transport has made sure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    /// The volume it may see.
    pub volume: VolumeId,
    /// Which replica it is.
    pub replica: u32,
}

/// Why a server cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The metadata cannot be read.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// The chunks cannot be.
    #[error(transparent)]
    Chunks(#[from] ChunkError),
    /// Metadata and chunks are not of the same server.
    #[error(
        "the chunk store belongs to another server's metadata; name the two that belong together"
    )]
    OtherDomain,
}

/// The primary replica of its volumes. Shared by all threads that serve.
pub struct Server {
    meta: Arc<dyn Meta>,
    chunks: ChunkStore,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    key: [u8; 32],
    counters: Counters,
    pub(crate) room: Mutex<Room>,
    /// Who gathers news sleeps on it, with the room's lock; rung at the end only.
    pub(crate) ending: Condvar,
    pub(crate) guesses: Mutex<Guesses>,
    pub(crate) uploads: Mutex<Uploads>,
    /// Whoever looks after the chunks sleeps on it, with the lock of `uploads`.
    pub(crate) upkeep_due: Condvar,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

impl Server {
    /// A server over its two stores. The chunk store must be that of [`domain`](crate::domain).
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(
        meta: Arc<dyn Meta>,
        chunks: ChunkStore,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, OpenError> {
        let (domain, key) = crate::domain::domain_and_key(&*meta, &*entropy)?;
        if domain != *chunks.domain() {
            return Err(OpenError::OtherDomain);
        }
        crate::lease::leave_own(&*meta)?;
        let uploads = Mutex::new(Uploads::new(clock.monotonic()));
        Ok(Self {
            meta,
            chunks,
            clock,
            entropy,
            key,
            counters: Counters::default(),
            room: Mutex::default(),
            ending: Condvar::new(),
            guesses: Mutex::default(),
            uploads,
            upkeep_due: Condvar::new(),
        })
    }

    /// Answers the bytes of a request with those of a reply.
    pub fn handle_bytes(&self, peer: Peer, bytes: &[u8]) -> Vec<u8> {
        let reply = match decode_request(bytes) {
            Ok(request) => self.handle(peer, request),
            Err(error) => self.codec_refusal(&error).into(),
        };
        encode_reply(&reply)
            .or_else(|error| encode_reply(&self.codec_refusal(&error).into()))
            .unwrap_or_else(|_| Vec::new())
    }

    fn codec_refusal(&self, error: &CodecError) -> Refusal {
        self.counters.refused();
        Refusal::new(RefusalCode::BadRequest, error.to_string())
    }

    /// Answers a request. Waits only in a pull, and as long as that says.
    pub fn handle(&self, peer: Peer, request: Request) -> Reply {
        self.counters.asked(&request);
        let outcome = self.admit(peer).and_then(|()| self.dispatch(peer, request));
        // What it waited for is not for a machine that was shut out meanwhile.
        let outcome = if self.room.lock().is_shut_out(peer) {
            refuse_stranger()
        } else {
            outcome
        };
        outcome.unwrap_or_else(|refusal| {
            self.counters.refused();
            refusal.into()
        })
    }

    fn dispatch(&self, peer: Peer, request: Request) -> Outcome<Reply> {
        let is_about_history = matches!(
            request,
            Request::Pull { .. }
                | Request::Stage { .. }
                | Request::Commit { .. }
                | Request::Keep { .. }
        );
        if is_about_history && !bug(Bug::OtherHistory) && !self.room.lock().has_greeted(peer) {
            // This may be another history than the one it has seen.
            return refuse(
                RefusalCode::Stopping,
                "the server has begun anew; say hello first",
            );
        }
        match request {
            Request::Hello(hello) => self.hello(peer, &hello),
            Request::Incarnate => self.incarnate(peer),
            Request::Pull {
                incarnation,
                since,
                digest,
                filter,
                after,
                wait_ms,
            } => {
                let from = From {
                    incarnation,
                    since,
                    digest,
                    filter,
                    after,
                };
                self.pull(peer, &from, wait_ms)
            }
            Request::Have { chunks } if chunks.len() > CHUNKS_MAX => {
                too_many(chunks.len(), CHUNKS_MAX)
            }
            Request::Have { chunks } => {
                self.uploads.lock().touch(peer, self.clock.monotonic());
                let have = self.chunks.have(&chunks);
                Ok(Reply::Missing(
                    (0_u32..)
                        .zip(have)
                        .filter(|(_, here)| !here)
                        .map(|(at, _)| at)
                        .collect(),
                ))
            }
            Request::Put { chunks } if chunks.len() > CHUNKS_MAX => {
                too_many(chunks.len(), CHUNKS_MAX)
            }
            Request::Put { chunks } => {
                let chunks: Vec<&[u8]> = chunks.iter().map(|chunk| &chunk[..]).collect();
                self.put(peer, &chunks)
            }
            Request::Stage {
                incarnation,
                batch,
                part,
                ops,
            } => self.stage(peer, incarnation, batch, part, &ops),
            Request::Commit {
                incarnation,
                batch,
                parts,
                digest,
            } => self.commit(
                peer,
                Named {
                    incarnation,
                    batch,
                    parts,
                    digest,
                },
            ),
            Request::List { dirs, ahead } => self.list(peer, &dirs, ahead),
            Request::Look { objects } => self.look(peer, &objects),
            Request::Read { wants } => self.read_content(peer, &wants),
            Request::Conflicts { after } => self.conflicts(peer, after),
            Request::Resolve { conflict } => self.resolve(peer, conflict),
            Request::History { object, after } => self.history(peer, object, after),
            Request::ReadPast {
                object,
                at,
                offset,
                len,
            } => self.read_past(peer, object, at, offset, len),
            Request::Bye => {
                self.room.lock().bye(peer);
                Ok(Reply::Done)
            }
            Request::Keep {
                filter,
                objects,
                is_last,
            } => self.keep(peer, filter, objects, is_last),
            Request::Devices(ask) => self.devices(peer, ask),
            Request::ListPast { dir, at, after } => self.list_past(peer, dir, at, after.as_ref()),
        }
    }

    /// Takes content in that a commit is going to name.
    fn put(&self, peer: Peer, chunks: &[&[u8]]) -> Outcome<Reply> {
        let bytes = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        let admission = {
            let mut uploads = self.uploads.lock();
            uploads.touch(peer, self.clock.monotonic());
            uploads.admit(peer, bytes, self.chunks.free_bytes())
        };
        match admission {
            Admission::Now => {}
            Admission::After(wait) => self.pause(wait),
            Admission::Not { chunks, bytes } => {
                self.uploads.lock().found_no_room(peer);
                self.wake_upkeep();
                let words = format!(
                    "no space left for more content of this machine in {}: {chunks} chunks of it ({bytes} bytes) wait for a \
                     commit that names them, and what is left is for the other machines; make room there, then try again",
                    self.chunks.place()
                );
                return refuse(RefusalCode::NoSpace, words);
            }
        }
        let (ids, pin) = self
            .chunks
            .put(chunks.iter().copied())
            .inspect_err(|error| {
                if is_no_room(error) {
                    self.uploads.lock().found_no_room(peer);
                    self.wake_upkeep();
                }
            })?;
        let lengths = chunks.iter().map(|chunk| chunk.len() as u64);
        if self.uploads.lock().sent(peer, ids.into_iter().zip(lengths)) {
            self.wake_upkeep();
        }
        drop(pin);
        self.counters
            .received(usize::try_from(bytes).unwrap_or(usize::MAX));
        Ok(Reply::Done)
    }

    /// Whether this peer may ask anything.
    fn admit(&self, peer: Peer) -> Outcome<()> {
        if self.room.lock().is_stopping() {
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
        self.room.lock().seen(peer, self.clock.monotonic());
        Ok(())
    }

    /// Ends whatever waits, and answers nothing more.
    pub fn stop(&self) {
        self.room.lock().stop();
        self.ending.notify_all();
        self.wake_upkeep();
    }

    /// What has been done since the server was opened.
    pub fn counts(&self) -> Counts {
        self.counters.counts()
    }

    pub(crate) fn read<T>(
        &self,
        volume: VolumeId,
        work: impl FnOnce(&dyn Read) -> Outcome<T>,
    ) -> Outcome<T> {
        teal_meta::read(&*self.meta, volume, work)
    }

    pub(crate) fn write<T>(
        &self,
        volume: VolumeId,
        work: impl FnOnce(&mut dyn Write) -> Outcome<T>,
    ) -> Outcome<T> {
        teal_meta::write(&*self.meta, volume, work)
    }

    pub(crate) fn write_soon<T>(
        &self,
        volume: VolumeId,
        work: impl FnOnce(&mut dyn Write) -> Outcome<T>,
    ) -> Outcome<T> {
        teal_meta::write_soon(&*self.meta, volume, work)
    }

    pub(crate) fn meta(&self) -> &dyn Meta {
        &*self.meta
    }
    pub(crate) fn chunks(&self) -> &ChunkStore {
        &self.chunks
    }
    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }
    pub(crate) fn entropy(&self) -> &dyn Entropy {
        &*self.entropy
    }
    pub(crate) fn key(&self) -> [u8; 32] {
        self.key
    }
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }
}

/// Refuses whoever is not enrolled, or not any more.
pub(crate) fn refuse_stranger<T>() -> Outcome<T> {
    let words = "this device is not enrolled any more: it was shut out; let it in again on the serving machine, or enrol it \
                 with a new token";
    refuse(RefusalCode::Denied, words)
}

fn too_many<T>(asked: usize, most: usize) -> Outcome<T> {
    bad(format!(
        "{asked} at once; at most {most} are allowed in one message"
    ))
}
