//! The conflicts that people have not resolved yet.

use super::{Replica, SyncError, unexpected};
use teal_proto::{ClientRequest, ConflictNote, ServerReply, VersionNote};
use teal_types::{CommitSeq, ObjectNo};
use teal_volume::FsError;

/// A conflict that is not resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnresolvedConflict {
    /// What the server has noted. Its paths are the last ones, also of files that were removed;
    /// empty where none is known, and where the later state is no file.
    pub note: ConflictNote,
    /// Whether the object itself has no name any more.
    pub is_removed: bool,
    /// Whether the object with the later state has no name any more.
    pub is_copy_removed: bool,
}

impl Replica {
    /// Returns the conflicts of the volume that are not resolved, by their numbers.
    ///
    /// # Errors
    /// [`FsError::Unreachable`].
    pub fn unresolved_conflicts(&self) -> Result<Vec<UnresolvedConflict>, FsError> {
        self.connect()?;
        let mut notes: Vec<ConflictNote> = Vec::new();
        loop {
            // A page at a time, in the order of the numbers.
            let after = notes.last().map_or(0, |note| note.id);
            match self.ask_server(&ClientRequest::Conflicts { after }) {
                Ok(ServerReply::Conflicts(more)) if more.is_empty() => break,
                Ok(ServerReply::Conflicts(more)) => notes.extend(more),
                Ok(_) => return Err(SyncError::from(unexpected("to conflicts")).into()),
                Err(e) => return Err(SyncError::from(e).into()),
            }
        }
        let found = notes.into_iter().map(|note| self.to_unresolved(note));
        Ok(found.collect::<Result<_, SyncError>>()?)
    }

    /// Adds the last paths of files that were removed since.
    fn to_unresolved(&self, mut note: ConflictNote) -> Result<UnresolvedConflict, SyncError> {
        let is_removed = note.path.is_empty();
        let is_copy_removed = note.copy.is_some() && note.copy_path.is_empty();
        if is_removed {
            note.path = self.last_path(note.object)?;
        }
        if let Some(copy) = note.copy.filter(|_| is_copy_removed) {
            note.copy_path = self.last_path(copy)?;
        }
        Ok(UnresolvedConflict {
            note,
            is_removed,
            is_copy_removed,
        })
    }

    /// Returns where a removed object lay last; empty if the server does not know.
    fn last_path(&self, object: ObjectNo) -> Result<String, SyncError> {
        let (mut last, mut after) = (None, CommitSeq::default());
        loop {
            let request = ClientRequest::History { object, after };
            let ServerReply::History(notes) = self.ask_server(&request)? else {
                return Err(unexpected("to a question about history").into());
            };
            // Each answer goes on behind the one before; one that does not would never end.
            let Some(newest) = notes.last().filter(|newest| newest.seq > after) else {
                break;
            };
            after = newest.seq;
            let links = |note: VersionNote| note.version?.links.into_iter().next();
            last = notes.into_iter().rev().find_map(links).or(last);
        }
        Ok(last.map_or_else(String::new, |link| self.path_of_link(&link)))
    }

    /// Settles a conflict: it is not shown any more.
    ///
    /// # Errors
    /// As [`unresolved_conflicts`](Self::unresolved_conflicts), or what stood in the way of a flush before.
    pub fn resolve_conflict(&self, conflict: u64) -> Result<(), FsError> {
        match self.flush_upstream() {
            // Stuck objects do not keep a conflict from being resolved.
            Ok(()) | Err(FsError::Stuck(_)) => {}
            Err(e) => return Err(e),
        }
        self.ask_server(&ClientRequest::Resolve { conflict })
            .map_err(SyncError::from)?;
        Ok(())
    }
}
