//! The state of the replica for people: the unsent changes, the connection, the counters.

use super::reach::Reach;
use super::{PinStatus, Replica, StuckObject};
use std::time::Duration;
use teal_proto::REQUEST_KINDS;
use teal_types::{Author, CommitSeq, ObjectNo};
use teal_volume::FsError;

/// The connection to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerConnection {
    /// As far as known.
    Up,
    /// Not now.
    Down {
        /// Why.
        why: String,
        /// For how long.
        since: Duration,
    },
    /// The server does not want this client any more.
    Denied {
        /// Why.
        why: String,
    },
}

/// The changes that the server of a volume lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnsentTotals {
    /// Objects of which something is only here.
    pub objects: u64,
    /// Bytes of content among that, at most.
    pub bytes: u64,
    /// Not all that is here has been told to a new server, or compared with one that was restored:
    /// there may be more.
    pub announcing: bool,
}

/// The state of a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamStatus {
    /// The incarnation that its batches have as their author.
    pub author: Author,
    /// The commit up to which history is applied.
    pub seen: CommitSeq,
    /// Objects of which something is only here; 0: it is safe to lose this machine.
    pub only_here: u64,
    /// Bytes of content among that, at most.
    pub only_here_bytes: u64,
    /// The connection to the server.
    pub connection: ServerConnection,
    /// Why the server, though it answers, does not take what it is sent.
    pub stuck: Option<String>,
    /// The number of objects that are held back, in either direction, and the first of them.
    pub stuck_objects: (usize, Vec<StuckObject>),
    /// Is true if the server has answered since the store was opened, or since it was last lost.
    pub is_connected: bool,
    /// Is true if another client of the volume is connected.
    pub is_live: bool,
    /// The time since the last flush.
    pub last_flush: Option<Duration>,
    /// Not all that is here has been told to a new server, or compared with one that was restored.
    pub announcing: bool,
    /// The state of the pins.
    pub pins: PinStatus,
    /// Figures by name.
    pub counts: Vec<(&'static str, u64)>,
    /// Requests made of the server, by [`REQUEST_KINDS`].
    pub requests: [u64; REQUEST_KINDS.len()],
}

impl Replica {
    /// Returns the state of this replica.
    ///
    /// # Errors
    /// Errors of reading the notes.
    pub fn upstream_status(&self) -> Result<UpstreamStatus, FsError> {
        let now = self.monotonic();
        // Sums are taken before the lock of the state: they read the store.
        let (only_here, only_here_bytes) = self.only_here()?;
        let pins = self.pin_status();
        let identity = self.identity();
        let stuck_objects = self.stuck().report();
        let link = match self.state().reach() {
            Reach::Denied { why } => ServerConnection::Denied { why },
            Reach::Down { why, since, .. } => ServerConnection::Down {
                why,
                since: now.saturating_sub(since),
            },
            Reach::Up => ServerConnection::Up,
        };
        Ok(UpstreamStatus {
            author: identity.author(),
            seen: identity.seen,
            only_here,
            only_here_bytes,
            connection: link,
            stuck: self.state().refusal(),
            stuck_objects,
            is_connected: self.state().is_connected(),
            is_live: self.state().is_live(),
            last_flush: self
                .state()
                .last_flush()
                .map(|then| now.saturating_sub(then)),
            announcing: identity.announce != 0 || identity.offer != 0,
            pins,
            counts: self.counters().list(),
            requests: self.counters().requests(),
        })
    }

    /// Returns the totals of the changes that the server lacks.
    ///
    /// # Errors
    /// Errors of reading the notes.
    pub fn left_to_send(&self) -> Result<UnsentTotals, FsError> {
        let (objects, bytes) = self.only_here()?;
        let identity = self.identity();
        Ok(UnsentTotals {
            objects,
            bytes,
            announcing: identity.announce != 0 || identity.offer != 0,
        })
    }

    /// Returns how many objects the server lacks something of, and how many bytes of content.
    pub(crate) fn only_here(&self) -> Result<(u64, u64), FsError> {
        let ours = self.noted_objects(|summary| summary.is_ours())?;
        let mut bytes = 0;
        for no in &ours {
            bytes += self.dirty_bytes(*no)?;
        }
        Ok((ours.len() as u64, bytes))
    }

    fn dirty_bytes(&self, no: ObjectNo) -> Result<u64, FsError> {
        // An object that is gone has no content to send.
        let Ok(attr) = self.store().attr(no) else {
            return Ok(0);
        };
        let note = self.note_of(no)?;
        if self.store().names(no)?.is_empty() && no != ObjectNo::ROOT {
            // An object without a name is not for the server.
            return Ok(0);
        }
        let mut bytes = 0;
        for part in note.unsent_parts() {
            // All of a new object is unsent.
            if part.created {
                return Ok(attr.size);
            }
            if let Some(dirty) = &part.data {
                // Ranges may end behind a file that was cut.
                bytes += dirty.ranges.clipped_to(0, attr.size).byte_count();
            }
        }
        Ok(bytes)
    }
}
