//! What is only here, what the server was asked, and whether it can be.

use super::reach::Reach;
use super::{PinStatus, Replica, StuckObject, SyncError, unexpected};
use std::ops::ControlFlow;
use std::time::Duration;
use teal_proto::{ClientRequest, ConflictNote, REQUEST_KINDS, ServerReply};
use teal_types::{Author, CommitSeq, ObjectNo};
use teal_volume::FsError;

/// Whether the server can be asked.
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
    /// It does not want this client any more.
    Denied {
        /// Why.
        why: String,
    },
}

/// What the server of a volume lacks.
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

/// Where this replica stands.
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
    /// Whether the server can be asked.
    pub connection: ServerConnection,
    /// Why the server, though it answers, does not take what it is sent.
    pub stuck: Option<String>,
    /// What is held back, one way or the other, and how many there are in all.
    pub stuck_objects: (usize, Vec<StuckObject>),
    /// Whether the server has been spoken to since the store was opened, or since it was last lost.
    pub is_connected: bool,
    /// Whether another client of the volume is connected.
    pub is_live: bool,
    /// How long ago the last flush was.
    pub last_flush: Option<Duration>,
    /// Not all that is here has been told to a new server, or compared with one that was restored.
    pub announcing: bool,
    /// What is always to be here.
    pub pins: PinStatus,
    /// Figures by name.
    pub counts: Vec<(&'static str, u64)>,
    /// Requests made of the server, by [`REQUEST_KINDS`].
    pub requests: [u64; REQUEST_KINDS.len()],
}

impl Replica {
    /// Returns where this replica stands.
    ///
    /// # Errors
    /// What reading the notes met.
    pub fn upstream_status(&self) -> Result<UpstreamStatus, FsError> {
        let now = self.monotonic();
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

    /// Returns what this machine has and the server lacks.
    ///
    /// # Errors
    /// What reading the notes met.
    pub fn left_to_send(&self) -> Result<UnsentTotals, FsError> {
        let (objects, bytes) = self.only_here()?;
        let identity = self.identity();
        Ok(UnsentTotals {
            objects,
            bytes,
            announcing: identity.announce != 0 || identity.offer != 0,
        })
    }

    /// The conflicts of the volume that nobody has resolved.
    ///
    /// # Errors
    /// [`FsError::Unreachable`].
    pub fn unresolved_conflicts(&self) -> Result<Vec<ConflictNote>, FsError> {
        self.connect()?;
        let mut found: Vec<ConflictNote> = Vec::new();
        loop {
            let after = found.last().map_or(0, |note| note.id);
            let asked = self
                .ask_server(&ClientRequest::Conflicts { after })
                .map_err(SyncError::from)?;
            match asked {
                ServerReply::Conflicts(more) if more.is_empty() => return Ok(found),
                ServerReply::Conflicts(more) => found.extend(more),
                _ => return Err(SyncError::from(unexpected("to conflicts")).into()),
            }
        }
    }

    /// Settles a conflict: it is not shown any more.
    ///
    /// # Errors
    /// As [`conflicts`](Self::conflicts), or what stood in the way of a flush before.
    pub fn resolve_conflict(&self, conflict: u64) -> Result<(), FsError> {
        match self.flush_upstream() {
            Ok(()) | Err(FsError::Stuck(_)) => {}
            Err(e) => return Err(e),
        }
        self.ask_server(&ClientRequest::Resolve { conflict })
            .map_err(SyncError::from)?;
        Ok(())
    }

    /// Returns how many objects the server lacks something of, and how many bytes of content.
    pub(crate) fn only_here(&self) -> Result<(u64, u64), FsError> {
        let mut ours = Vec::new();
        self.store().each_note(ObjectNo::ROOT, &mut |no, head| {
            if super::ObjectNote::summary(head).is_ours() {
                ours.push(no);
            }
            ControlFlow::Continue(())
        })?;
        let bytes = ours
            .iter()
            .map(|no| self.dirty_bytes(*no))
            .sum::<Result<u64, FsError>>()?;
        Ok((ours.len() as u64, bytes))
    }

    fn dirty_bytes(&self, no: ObjectNo) -> Result<u64, FsError> {
        let Ok(attr) = self.store().attr(no) else {
            return Ok(0);
        };
        let note = self.note_of(no)?;
        if self.store().names(no)?.is_empty() && no != ObjectNo::ROOT {
            // What has no name is not for the server.
            return Ok(0);
        }
        let parts = [
            Some(&note.dirty),
            note.in_flight
                .as_ref()
                .map(|in_flight| &in_flight.components),
        ];
        if parts.into_iter().flatten().any(|part| part.created) {
            return Ok(attr.size);
        }
        let ranges = parts
            .into_iter()
            .flatten()
            .filter_map(|part| part.data.as_ref())
            .flat_map(|d| d.ranges.iter());
        Ok(ranges
            .map(|(from, to)| to.min(attr.size).saturating_sub(from))
            .sum())
    }
}
