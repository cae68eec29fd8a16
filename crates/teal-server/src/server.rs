//! The server's state: its two stores, and what it remembers of its clients while it runs.
//!
//! # Guarantees
//! 1. *Own stores*: a server opens only metadata and chunks that belong together.
//! 2. *Durable*: what [`Server::write`] has returned survives whatever the stores survive.
//!
//! | lock | guards | under it |
//! |---|---|---|
//! | one machine's turn (`turns`) | that one of its requests is carried out | everything below |
//! | `presence` | the connected clients, the waiting pulls, and the last commits of each volume | the locks of filters; waiting releases it |
//! | `guesses` | the wrong tokens of the present window | nothing |
//! | `lost_chunks` | what the last check did not find | the locks of the chunk store |
//! | `uploads` | content that no commit has named | `presence`; waiting releases it |

use crate::counters::{ServerCounters, ServerCounts};
use crate::guesses::TokenGuesses;
use crate::presence::PresenceRegistry;
use crate::refusal::Outcome;
use crate::turns::PeerTurns;
use crate::uploads::UploadTracker;
use parking_lot::{Condvar, Mutex};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use teal_chunk::{ChunkError, ChunkStore};
use teal_env::{Clock, Entropy};
use teal_meta::{MetaError, MetaStore, ReadTransaction, WriteTransaction};
use teal_types::{ChunkId, VolumeId};

/// The reasons for which a server can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum ServerOpenError {
    /// The metadata cannot be read.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// The chunks cannot be read.
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
    meta: Arc<dyn MetaStore>,
    chunks: ChunkStore,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    key: [u8; 32],
    counters: ServerCounters,
    pub(crate) turns: PeerTurns,
    pub(crate) presence: Mutex<PresenceRegistry>,
    /// Wakes, when the server stops, the threads that gather news or pause. They wait on it with
    /// the lock of `presence`.
    pub(crate) stopping: Condvar,
    pub(crate) guesses: Mutex<TokenGuesses>,
    pub(crate) uploads: Mutex<UploadTracker>,
    /// Wakes the thread that looks after the chunks, which waits on it with the lock of `uploads`.
    pub(crate) upkeep_due: Condvar,
    /// Chunks that history names and the last check did not find.
    pub(crate) lost_chunks: Mutex<HashSet<ChunkId>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Opens a server over its two stores. The chunk store must be that of
    /// [`load_domain`](crate::load_domain).
    ///
    /// # Errors
    /// [`ServerOpenError`].
    pub fn open(
        meta: Arc<dyn MetaStore>,
        chunks: ChunkStore,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, ServerOpenError> {
        let (domain, key) = crate::domain::load_domain_and_key(&*meta, &*entropy)?;
        // Another domain names its chunks by another key.
        if domain != *chunks.domain() {
            return Err(ServerOpenError::OtherDomain);
        }
        crate::lease::abandon_own_leases(&*meta)?;
        let uploads = Mutex::new(UploadTracker::new(clock.monotonic_time()));
        Ok(Self {
            meta,
            chunks,
            clock,
            entropy,
            key,
            counters: ServerCounters::default(),
            turns: PeerTurns::default(),
            presence: Mutex::default(),
            stopping: Condvar::new(),
            guesses: Mutex::default(),
            uploads,
            upkeep_due: Condvar::new(),
            lost_chunks: Mutex::default(),
        })
    }

    /// Ends all waiting. From here on every request is refused.
    pub fn stop(&self) {
        self.presence.lock().stop();
        self.stopping.notify_all();
        self.wake_upkeep();
    }

    /// Returns the counters of everything done since the server was opened.
    pub fn counts(&self) -> ServerCounts {
        self.counters.snapshot()
    }

    /// Returns how many chunks are known to be damaged or lost, at least; what nobody has read or
    /// [checked](Self::check_data) since the server was opened is not known.
    pub fn damaged_chunks(&self) -> usize {
        let mut lost = self.lost_chunks.lock();
        // Chunks that were sent again are no longer lost.
        lost.retain(|chunk| self.chunks.peek_present(&[*chunk]) == [false]);
        // Both may count the same chunks.
        lost.len().max(self.chunks.damaged_chunks())
    }

    /// Draws a number at random.
    pub(crate) fn draw_number(&self) -> u32 {
        let mut raw = [0; 4];
        self.entropy().fill(&mut raw);
        u32::from_le_bytes(raw)
    }

    /// Wakes the thread that looks after the chunks.
    pub(crate) fn wake_upkeep(&self) {
        // Holds the lock, so that the thread can't miss the wake-up between looking and waiting.
        let _uploads = self.uploads.lock();
        self.upkeep_due.notify_all();
    }

    /// Waits for `time`, or until the server stops.
    pub(crate) fn pause(&self, time: Duration) {
        let until = self.clock.monotonic_time() + time;
        let mut presence = self.presence.lock();
        while !presence.is_stopping() {
            let left = until.saturating_sub(self.clock.monotonic_time());
            if left.is_zero() || self.stopping.wait_for(&mut presence, left).timed_out() {
                return;
            }
        }
    }

    /// Runs `work` on one state of a volume's metadata.
    pub(crate) fn read<T>(
        &self,
        volume: VolumeId,
        work: impl FnOnce(&dyn ReadTransaction) -> Outcome<T>,
    ) -> Outcome<T> {
        teal_meta::read(&*self.meta, volume, work)
    }

    /// Runs `work` in a transaction that is durable when this returns.
    pub(crate) fn write<T>(
        &self,
        volume: VolumeId,
        work: impl FnOnce(&mut dyn WriteTransaction) -> Outcome<T>,
    ) -> Outcome<T> {
        teal_meta::write(&*self.meta, volume, work)
    }

    /// Runs `work` in a transaction that becomes durable with the next one of
    /// [`write`](Self::write), at the latest.
    pub(crate) fn write_soon<T>(
        &self,
        volume: VolumeId,
        work: impl FnOnce(&mut dyn WriteTransaction) -> Outcome<T>,
    ) -> Outcome<T> {
        teal_meta::write_soon(&*self.meta, volume, work)
    }

    pub(crate) fn meta(&self) -> &dyn MetaStore {
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
    pub(crate) fn domain_key(&self) -> [u8; 32] {
        self.key
    }
    pub(crate) fn counters(&self) -> &ServerCounters {
        &self.counters
    }
}
