//! Fetching the entries of directories that only the server has.
//!
//! # Guarantees
//! 1. *Not stale*: a listing is installed only at the position it was read at.
//! 2. *Not empty*: a listing that cannot be fetched is [`FsError::Unreachable`], at once if the
//!    server was out of reach a moment ago.
//! 3. *Kept*: content that is here stays when a listing shows one more name of its file.
//! 4. *Ahead*: with a directory come those below it, and unlisted ones near it with those below
//!    them: few for a single listing, as many as a reply holds in a walk
//!    ([`PrefetchWindow`](super::prefetch_window::PrefetchWindow)).

use super::{ObjectNote, Replica, SyncError, unexpected};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use teal_log::{Cost, StoreError};
use teal_proto::{ClientRequest, DirectoryListing, ServerReply};
use teal_types::{CommitSeq, Name, ObjectNo, ObjectVersion};
use teal_volume::FsError;

/// The most times that a listing may be overtaken by changes before the operation fails.
const RETRIES: u32 = 16;
/// Directories around the one that is needed that are asked for with it.
const WITH: usize = 128;

/// The server's answer to one request for the entries of a directory.
struct ListingPart {
    /// The commit that the listings were read at.
    head: CommitSeq,
    part: DirectoryListing,
    /// The listings of other directories that came along.
    along: Vec<DirectoryListing>,
}

/// Returns the last name of a listing that is not complete yet.
fn last_name(listing: &DirectoryListing) -> Option<Name> {
    let (name, _) = listing.entries.as_ref()?.last()?;
    Some(name.clone())
}

impl Replica {
    /// Makes sure that a directory's entries are here.
    ///
    /// # Errors
    /// [`FsError::Unreachable`], [`FsError::Stale`].
    pub(crate) fn ensure_listed(&self, dir: ObjectNo) -> Result<(), FsError> {
        if !self.note_of(dir)?.unlisted {
            // The names are here: the reader uses them.
            self.names_ahead().note_use(dir, 1);
            return Ok(());
        }
        self.try_reach()?;
        self.count_waiting(format_args!("the names in {dir}"), || {
            if self.identity().incarnation.is_none() {
                // A replica that was never welcomed has no numbers for objects made in the
                // directory.
                self.connect()?;
            }
            Ok(self.retry_after_greeting(|| self.fetch_listing(dir))?)
        })
    }

    pub(crate) fn fetch_listing(&self, dir: ObjectNo) -> Result<(), SyncError> {
        // Nothing is installed while the entries come, so that all are of one commit.
        let _applying = self.lock_applying()?;
        let ahead = self.names_ahead().note_wait();
        for _ in 0..RETRIES {
            // Another thread has listed it meanwhile.
            if !self.note_of(dir)?.unlisted {
                return Ok(());
            }
            let begun = self.monotonic();
            // The directory changed between two parts: begin again.
            let Some((head, listings)) = self.read_listings(dir, ahead)? else {
                continue;
            };
            self.names_ahead()
                .note_duration(self.monotonic().saturating_sub(begun));
            // Entries are installed at exactly the position of their listing.
            if head > self.position() {
                self.pull_all(None)?;
            }
            if head != self.position() {
                continue;
            }
            for listing in listings {
                let entries = listing.entries.as_ref().map_or(0, Vec::len).max(1);
                // Listings of neighbours come unasked: the window counts them until they are used.
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

    /// Reads the whole listing of a directory and those of others that come along, with the
    /// position they were read at. Returns `None` if the directory changed between the parts.
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
        // A large directory comes in parts.
        loop {
            let last = begun.as_ref().and_then(|(_, listing)| last_name(listing));
            let ListingPart { head, part, along } = self.ask_listing((dir, last), &with, ahead)?;
            let is_cut = part.more;
            let mut whole = match begun.take() {
                // The server has moved on since the first part.
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
            // The last part brings the neighbours along. Only complete ones are used.
            if !is_cut {
                let mut listings = vec![whole];
                listings.extend(along.into_iter().filter(|listing| !listing.more));
                return Ok(Some((head, listings)));
            }
            begun = Some((head, whole));
        }
    }

    /// Asks for the entries of a directory behind `last`, and for those of the directories `with`.
    fn ask_listing(
        &self,
        (dir, last): (ObjectNo, Option<Name>),
        with: &[ObjectNo],
        ahead: u32,
    ) -> Result<ListingPart, SyncError> {
        let mut dirs = vec![(dir, last)];
        dirs.extend(with.iter().map(|dir| (*dir, None)));
        let ServerReply::Listings { head, dirs } =
            self.ask_server(&ClientRequest::List { dirs, ahead })?
        else {
            return Err(unexpected("to a listing").into());
        };
        let mut dirs = dirs.into_iter();
        let Some(part) = dirs.next().filter(|listing| listing.dir == dir) else {
            return Err(unexpected("another directory").into());
        };
        if part.more && part.entries.as_ref().is_none_or(Vec::is_empty) {
            return Err(unexpected("a part of a directory with nothing in it").into());
        }
        let along = dirs.collect();
        Ok(ListingPart { head, part, along })
    }

    /// Returns directories near this one that are here without their entries.
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
        // The content is of the version in the listing, so no range of it changed.
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
        // Lets names enter this directory before it counts as listed.
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
