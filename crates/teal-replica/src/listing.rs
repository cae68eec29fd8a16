//! Fetching the entries of directories that only the server has.
//!
//! # Guarantees
//! 1. *Not stale*: a listing is installed only at the position it was read at.
//! 2. *Not empty*: what cannot be fetched is [`FsError::Unreachable`], at once if the server was
//!    out of reach a moment ago.
//! 3. *Kept*: content that is here stays when a listing shows one more name of its file.
//! 4. *Ahead*: with a directory come those below it, and those around it that are not here and what
//!    is below them: few when somebody looks at one, as many as a reply holds in a walk
//!    ([`Window`](super::ahead::Window)).

use super::{ObjectNote, Replica, SyncError, unexpected};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use teal_log::{Cost, StoreError};
use teal_proto::{ClientRequest, DirectoryListing, ServerReply};
use teal_types::{CommitSeq, ObjectNo, ObjectVersion};
use teal_volume::FsError;

/// How often a listing may be overtaken before the operation fails.
const RETRIES: u32 = 16;
/// Directories around the one that is needed that are asked for with it.
const WITH: usize = 128;

impl Replica {
    /// Makes sure that a directory's entries are here.
    ///
    /// # Errors
    /// [`FsError::Unreachable`], [`FsError::Stale`].
    pub(crate) fn ensure_listed(&self, dir: ObjectNo) -> Result<(), FsError> {
        if !self.note_of(dir)?.unlisted {
            self.names_ahead().note_use(dir, 1);
            return Ok(());
        }
        self.try_reach()?;
        self.count_waiting(format_args!("the names in {dir}"), || {
            if self.identity().incarnation.is_none() {
                // Whoever has never been welcomed has no numbers for what may be made in it.
                self.connect()?;
            }
            Ok(self.retry_after_greeting(|| self.fetch_listing(dir))?)
        })
    }

    pub(crate) fn fetch_listing(&self, dir: ObjectNo) -> Result<(), SyncError> {
        let _applying = self.lock_applying()?;
        let ahead = self.names_ahead().note_wait();
        for _ in 0..RETRIES {
            if !self.note_of(dir)?.unlisted {
                return Ok(());
            }
            let begun = self.monotonic();
            let Some((head, listings)) = self.read_listings(dir, ahead)? else {
                continue;
            };
            self.names_ahead()
                .note_duration(self.monotonic().saturating_sub(begun));
            if head > self.position() {
                self.pull_all(None)?;
            }
            if head != self.position() {
                continue;
            }
            for listing in listings {
                let entries = listing.entries.as_ref().map_or(0, Vec::len).max(1);
                if listing.dir != dir {
                    self.names_ahead()
                        .note_prefetched(listing.dir, 0, entries as u64);
                }
                self.install_listing(listing)?;
            }
            return Ok(());
        }
        Err(
            FsError::Unreachable("the directory changes faster than it can be listed".into())
                .into(),
        )
    }

    /// The whole listing of a directory, and those of others that came along, with the position
    /// they were read at; `None` when it changed between its parts.
    fn read_listings(
        &self,
        dir: ObjectNo,
        ahead: u64,
    ) -> Result<Option<(CommitSeq, Vec<DirectoryListing>)>, SyncError> {
        let with = if ahead > 0 {
            self.unlisted_around(dir)?
        } else {
            Vec::new()
        };
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
        let mut begun: Option<(CommitSeq, DirectoryListing)> = None;
        loop {
            let last = begun
                .as_ref()
                .and_then(|(_, listing)| Some(listing.entries.as_ref()?.last()?.0.clone()));
            let dirs = std::iter::once((dir, last))
                .chain(with.iter().map(|dir| (*dir, None)))
                .collect();
            let ServerReply::Listings { head, dirs } =
                self.ask_server(&ClientRequest::List { dirs, ahead })?
            else {
                return Err(unexpected("to a listing").into());
            };
            let mut dirs = dirs.into_iter();
            let Some(part) = dirs.next().filter(|listing| listing.dir == dir) else {
                return Err(unexpected("another directory").into());
            };
            let is_cut = part.more;
            if is_cut && part.entries.as_ref().is_none_or(Vec::is_empty) {
                return Err(unexpected("a part of a directory with nothing in it").into());
            }
            let mut whole = match begun.take() {
                Some((at, _)) if at != head => return Ok(None),
                Some((_, mut whole)) => {
                    if let (Some(entries), Some(more)) = (&mut whole.entries, part.entries) {
                        entries.extend(more);
                    }
                    whole
                }
                None => part,
            };
            whole.more = false;
            if !is_cut {
                let along = dirs.filter(|listing| !listing.more);
                return Ok(Some((head, std::iter::once(whole).chain(along).collect())));
            }
            begun = Some((head, whole));
        }
    }

    /// Directories around this one that are here without their entries.
    fn unlisted_around(&self, dir: ObjectNo) -> Result<Vec<ObjectNo>, SyncError> {
        let mut found = Vec::new();
        self.visit_neighbours::<SyncError>(dir, &mut |object, kind| {
            if kind.is_dir() && self.note_of(object)?.unlisted {
                found.push(object);
            }
            Ok(if found.len() < WITH {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            })
        })?;
        Ok(found)
    }

    /// Returns whether the content that is here is that of the version, read at the position: of
    /// what is here all changes have been told (`keep`).
    fn is_content_current(&self, version: &ObjectVersion) -> Result<bool, SyncError> {
        match self.store().attr(version.object) {
            Err(StoreError::NotFound(_)) => return Ok(false),
            attr => drop(attr?),
        }
        let note = self.note_of(version.object)?;
        let is_of_it = note.absent.is_empty() || note.data_seq == version.data_seq;
        Ok(is_of_it && !note.is_ours() && !note.needs_look && !self.listings().has_again())
    }

    /// Enters a listing read at the position; under `applying`.
    fn install_listing(&self, listing: DirectoryListing) -> Result<(), SyncError> {
        let dir = listing.dir;
        match self.store().attr(dir) {
            Err(StoreError::NotFound(_)) => return Ok(()),
            attr => drop(attr?),
        }
        let unlisted = self.note_of(dir)?.unlisted;
        // A directory that is gone there comes back with what is here, or goes with the next pull.
        let Some(entries) = listing.entries.filter(|_| unlisted) else {
            return Ok(());
        };
        let coming_in = self.listings().begin(dir);
        let entered = entries.iter().try_for_each(|(_, version)| {
            let ranges = self.is_content_current(version)?.then_some(&[][..]);
            self.install_listed(version, ranges)
        });
        drop(coming_in);
        entered?;
        // Only now may a name that is not there be called absent.
        let cost = Cost::note().with_note(4096);
        let op = self.begin_operation(cost)?;
        let locked = op.lock(&[dir])?;
        let note = ObjectNote {
            unlisted: false,
            ..self.note_of(dir)?
        };
        self.set_note(&locked, dir, &note)?;
        self.counters().listings.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
