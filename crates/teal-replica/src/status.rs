//! What is only here, what the server was asked, and whether it can be.

use super::trouble::{Trouble, TroubleKind};
use super::{PinsShown, Replica, StuckObject, SyncError, unexpected};
use std::ops::ControlFlow;
use std::time::Duration;
use teal_proto::{ConflictNote, REQUEST_KINDS, Reply, Request};
use teal_types::{Author, CommitSeq, ObjectNo};
use teal_volume::FsError;

/// Whether the server can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
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
pub struct Unsent {
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
    pub link: Link,
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
    pub pins: PinsShown,
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
        let pins = self.pins_shown();
        let identity = *self.identity.lock();
        let stuck_objects = self.stuck.lock().shown();
        let state = self.state.lock();
        let link = match &state.trouble {
            None => Link::Up,
            Some(Trouble { kind, why, since }) => match kind {
                TroubleKind::Denied => Link::Denied { why: why.clone() },
                TroubleKind::Away | TroubleKind::Silent => Link::Down {
                    why: why.clone(),
                    since: now.saturating_sub(*since),
                },
            },
        };
        Ok(UpstreamStatus {
            author: identity.author(),
            seen: identity.seen,
            only_here,
            only_here_bytes,
            link,
            stuck: state.stuck.clone(),
            stuck_objects,
            is_connected: state.is_connected,
            is_live: state.is_live,
            last_flush: state.last_flush.map(|then| now.saturating_sub(then)),
            announcing: identity.announce != 0 || identity.offer != 0,
            pins,
            counts: self.counters.list(),
            requests: self.counters.requests(),
        })
    }

    /// Returns what this machine has and the server lacks.
    ///
    /// # Errors
    /// What reading the notes met.
    pub fn left_to_send(&self) -> Result<Unsent, FsError> {
        let (objects, bytes) = self.only_here()?;
        let identity = *self.identity.lock();
        Ok(Unsent {
            objects,
            bytes,
            announcing: identity.announce != 0 || identity.offer != 0,
        })
    }

    /// The conflicts of the volume that nobody has resolved.
    ///
    /// # Errors
    /// What [lies with the server](FsError::into_words_of_server), such as [`FsError::Unreachable`].
    pub fn conflicts(&self) -> Result<Vec<ConflictNote>, FsError> {
        self.connect()?;
        let mut found: Vec<ConflictNote> = Vec::new();
        loop {
            let after = found.last().map_or(0, |note| note.id);
            let asked = self
                .ask(&Request::Conflicts { after })
                .map_err(SyncError::from)?;
            match asked {
                Reply::Conflicts(more) if more.is_empty() => return Ok(found),
                Reply::Conflicts(more) => found.extend(more),
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
        self.ask(&Request::Resolve { conflict })
            .map_err(SyncError::from)?;
        Ok(())
    }

    /// Returns how many objects the server lacks something of, and how many bytes of content.
    pub(crate) fn only_here(&self) -> Result<(u64, u64), FsError> {
        let mut ours = Vec::new();
        self.store().each_note(ObjectNo::ROOT, &mut |no, head| {
            if super::Note::summary(head).is_ours() {
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
        let note = self.note(no)?;
        if self.store().names(no)?.is_empty() && no != ObjectNo::ROOT {
            // What has no name is not for the server.
            return Ok(0);
        }
        let parts = [
            Some(&note.dirty),
            note.in_flight.as_ref().map(|in_flight| &in_flight.part),
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
