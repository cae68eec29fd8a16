//! Pulling: changes at the server are asked for and installed, piece by piece.
//!
//! # Guarantees
//! 1. The position moves only when everything up to it is installed, or held back with a note of
//!    that (`hold_back`). After a crash the same changes are asked for again, and installing them
//!    twice is harmless.
//! 2. Changes that do not concern this replica are not told (`filter`), and cost no I/O: a poll
//!    that brings nothing moves the position in memory only.
//! 3. Objects that a copy of this store has made are not installed before this one has a life of
//!    its own.
//! 4. The time of a directory changes after the names in it: a program that lists it at its new
//!    time has all of them.

use super::committed::CommittedBatch;
use super::install::is_replicated_number;
use super::news::Since;
use super::{Replica, SyncError, unexpected};
use crate::seeded::{Bug, bug};
use std::sync::atomic::Ordering;
use teal_log::StoreError;
use teal_proto::{
    ClientRequest, PulledChanges, PulledObject, RefusalCode, RefusalReply, ServerReply,
};
use teal_types::{CommitSeq, HardLink, ObjectNo, ObjectVersion};

/// The most directories that get their attributes after everything else; more of them get theirs in
/// turn.
const LATER_MAX: usize = 4096;

/// Changes that are installed after the rest of an answer.
#[derive(Debug, Default)]
struct DeferredInstalls {
    gone: Vec<ObjectNo>,
    dirs: Vec<ObjectVersion>,
}

impl Replica {
    /// Returns the start of the next pull: the position, or a later commit if no change up to it
    /// concerns this replica.
    fn pull_start(&self) -> Since {
        self.news().since(&self.identity())
    }

    fn pull_request(
        &self,
        since: &Since,
        after: Option<(ObjectNo, CommitSeq)>,
        wait_ms: u32,
    ) -> ClientRequest {
        let Since { at, digest, filter } = *since;
        let incarnation = self.identity().incarnation;
        ClientRequest::Pull {
            incarnation,
            since: at,
            digest,
            filter,
            after,
            wait_ms,
        }
    }

    /// Checks whether all batches of this life in history are of this store. If not, what a copy of
    /// it has made may have numbers of the same lease as what is new here: nothing is installed
    /// before the server has given this one another life.
    fn check_author(&self, pulled: &PulledChanges) -> Result<(), RefusalReply> {
        // The server counts batches of this replica that the replica never sent.
        if pulled.acknowledged <= self.identity().batch || bug(Bug::CopyUnnoticed) {
            return Ok(());
        }
        self.state().set_disconnected();
        let words = format!(
            "batch {} of this device was made by a copy of this store",
            pulled.acknowledged
        );
        Err(RefusalReply {
            code: RefusalCode::Cloned,
            words,
        })
    }
}

impl Replica {
    /// Brings the position up to the server's newest commit.
    pub(crate) fn catch_up(&self) -> Result<(), SyncError> {
        let _applying = self.lock_applying()?;
        self.pull_all(None)
    }

    /// Brings the position up to the newest commit, under `applying`.
    pub(crate) fn pull_all(&self, committed: Option<CommittedBatch>) -> Result<(), SyncError> {
        // Each round takes up one state of the server; the last one brings nothing new.
        loop {
            let since = self.pull_start();
            let request = self.pull_request(&since, None, 0);
            let ServerReply::Pulled(first) = self.ask_server(&request)? else {
                return Err(unexpected("to a pull").into());
            };
            if first.to <= since.at {
                self.state().set_live(first.is_live);
                // The position passes commits that changed nothing here.
                if since.at > self.position() {
                    self.move_position(since.at, since.digest)?;
                }
                return Ok(());
            }
            self.install_answer(&since, first, committed)?;
        }
    }

    /// Installs one answer with all its continuations, and moves the position; under `applying`.
    pub(crate) fn install_answer(
        &self,
        since: &Since,
        first: PulledChanges,
        committed: Option<CommittedBatch>,
    ) -> Result<(), SyncError> {
        // Before anything is installed: a copy of this store may have sent batches.
        self.check_author(&first)?;
        let to = first.to;
        let digest = first.digest;
        let is_live = first.is_live;
        let mut later = DeferredInstalls::default();
        let mut more = first.more;
        // A page at a time, so that memory stays bounded.
        let mut changes = first.changes;
        self.news().heard_with(since, first.filter);
        if bug(Bug::PositionTooEarly) {
            self.update_identity(|identity| identity.set_position(to, digest))?;
            self.volume().sync()?;
        }
        if bug(Bug::NewsSkipped)
            && since.at > CommitSeq::default()
            && self.counters().pulls.load(Ordering::Relaxed) == 0
        {
            changes.clear();
        }
        loop {
            self.install_changes(changes, committed, &mut later)?;
            let Some(after) = more else { break };
            let request = self.pull_request(since, Some((after, to)), 0);
            let ServerReply::Pulled(next) = self.ask_server(&request)? else {
                return Err(unexpected("to a pull").into());
            };
            more = next.more;
            changes = next.changes;
        }
        // Removals come last: an object may have moved out of a removed directory first.
        self.remove_gone(later.gone, committed)?;
        // Directories that keep their names were deferred, so that their times are set after their
        // entries.
        later
            .dirs
            .iter()
            .try_for_each(|version| self.install_or_hold(version, None, committed))?;
        // A thread that sees this position must find the kernel's sizes as they are at it.
        self.volume()
            .invalidations()
            .wait_until_heard(super::engine::HEARD_WITHIN);
        // The position moves last: a crash installs the same states again, which changes nothing.
        self.move_position(to, digest)?;
        self.state().set_live(is_live);
        self.counters().pulls.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Moves the position, up to which everything is installed.
    fn move_position(&self, to: CommitSeq, digest: [u8; 32]) -> Result<(), StoreError> {
        self.update_identity(|identity| identity.set_position(to, digest))?;
        self.settled_content().position_moved(to);
        Ok(())
    }

    /// Asks the server for what has changed and waits for it, for about `wait`; installs it.
    pub(crate) fn poll(&self) -> Result<(), SyncError> {
        let since = self.pull_start();
        let wait = self.options().keep_alive;
        let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
        let request = self.pull_request(&since, None, wait_ms);
        let ServerReply::Pulled(first) =
            self.call_server(&request, wait + self.options().deadline)?
        else {
            return Err(unexpected("to a pull").into());
        };
        let _applying = self.lock_applying()?;
        self.state().set_live(first.is_live);
        // A batch of this replica may have committed meanwhile. The thread that sent it knows its
        // commit, and pulls itself.
        let flies = self.identity().parts > 0;
        // Another thread has moved the position meanwhile: the answer is of the past.
        if first.to <= since.at || self.pull_start() != since || flies {
            return Ok(());
        }
        if first.changes.is_empty() {
            // Nothing is written for what others do elsewhere.
            self.check_author(&first)?;
            self.news().heard_with(&since, first.filter);
            self.news()
                .set_quiet(self.position(), first.to, first.digest);
            return Ok(());
        }
        self.install_answer(&since, first, None)
    }

    fn install_changes(
        &self,
        changes: Vec<PulledObject>,
        committed: Option<CommittedBatch>,
        later: &mut DeferredInstalls,
    ) -> Result<(), SyncError> {
        // Removed objects and unmoved directories wait for the end of all pages.
        for change in changes {
            match change {
                PulledObject::Is { version, .. }
                    if later.dirs.len() < LATER_MAX
                        && self.has_same_names(&version).unwrap_or(false) =>
                {
                    later.dirs.push(*version);
                }
                PulledObject::Is { version, ranges } => {
                    self.install_or_hold(&version, ranges.as_deref(), committed)?
                }
                PulledObject::Gone { object }
                    // The server never removes the root, and has no other numbers.
                    if !is_replicated_number(object) || object == ObjectNo::ROOT =>
                {
                    return Err(unexpected("an end of what cannot end").into());
                }
                PulledObject::Gone { object } => later.gone.push(object),
            }
        }
        Ok(())
    }

    /// Returns whether it is a directory that is here, as the server has it, where it is.
    fn has_same_names(&self, version: &ObjectVersion) -> Result<bool, SyncError> {
        if !version.kind.is_dir() || !is_replicated_number(version.object) {
            return Ok(false);
        }
        let names = match self.store().names(version.object) {
            Err(StoreError::NotFound(_)) => return Ok(false),
            // Names are compared only where the state can be installed at all.
            names => names?,
        };
        let note = self.note_of(version.object)?;
        let is_theirs = !note.is_ours() && note.in_flight.is_none() && !note.needs_look;
        let is_there = |(dir, name): (ObjectNo, _)| version.links.contains(&HardLink { dir, name });
        Ok(is_theirs && names.len() == version.links.len() && names.into_iter().all(is_there))
    }
}
