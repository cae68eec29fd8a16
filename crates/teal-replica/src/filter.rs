//! What this replica keeps, for the server's filter: of what does not concern it, it is told
//! nothing.
//!
//! # Guarantees
//! 1. *All of it*: an object that is here lies at the server, as it was at the position, in a
//!    directory that is said, or is said itself; so is every directory that is listed here.
//!    (`teal-server/src/filter.rs` says how it stays so.)
//! 2. *Nothing between*: from the beginning of a filter until it is used nothing is installed but
//!    what brings the position up; an answer that was asked for with another filter is not
//!    installed.
//! 3. Whoever keeps too much hears of everything.
//!
//! # How
//! An object that is here, and of which nothing is dirty, has the names here that it has there. So
//! the directories in which something is, or that are listed, are found from the root; what has a
//! note (something of it is dirty, or it did not fit in) is said itself, with the directories in
//! which the server has it.

use super::filter_announcement::FilterAnnouncement;
use super::{ObjectNote, Replica, SyncError, unexpected};
use crate::seeded::{Bug, bug};
use std::collections::HashSet;
use std::ops::ControlFlow;
use teal_log::StoreError;
use teal_proto::{ClientRequest, KEPT_MAX, ServerReply};
use teal_types::{FileType, ObjectNo};

/// The most objects that are said.
const FILTER_OBJECTS_MAX: usize = 50_000;
/// The most entries of directories that are looked at for that.
const LOOKED_MAX: usize = 1 << 20;

impl Replica {
    /// Tells the server what is kept here, if that is still to be done.
    pub(crate) fn announce_filter(&self) -> Result<(), SyncError> {
        if !self.news().is_untold() {
            return Ok(());
        }
        let _applying = self.lock_applying()?;
        let mut filter = self.send_filter_part(0, Vec::new(), false)?;
        // Who has nothing yet needs nothing of the past.
        if self.position().get() > 0 || self.store().space().objects > 1 {
            self.pull_all(None)?;
        }
        let Some(kept) = self.kept_objects()? else {
            self.news().set_told(FilterAnnouncement::TooMuch);
            return Ok(());
        };
        let parts = kept
            .chunks(KEPT_MAX)
            .map(<[ObjectNo]>::to_vec)
            .chain([Vec::new()]);
        let last = kept.len().div_ceil(KEPT_MAX);
        for (n, part) in parts.enumerate() {
            if filter != 0 {
                filter = self.send_filter_part(filter, part, n == last)?;
            }
        }
        if filter != 0 {
            self.news().set_told(FilterAnnouncement::All(filter));
        }
        Ok(())
    }

    fn send_filter_part(
        &self,
        filter: u64,
        objects: Vec<ObjectNo>,
        is_last: bool,
    ) -> Result<u64, SyncError> {
        match self.ask_server(&ClientRequest::Keep {
            filter,
            objects,
            is_last,
        })? {
            ServerReply::Kept { filter } => Ok(filter),
            _ => Err(unexpected("to what is kept").into()),
        }
    }

    /// Returns what is to be said; `None`: too much.
    fn kept_objects(&self) -> Result<Option<Vec<ObjectNo>>, SyncError> {
        let (mut kept, mut walk) = (HashSet::new(), DirectoryWalk::default());
        if !self.walk_directories(&mut walk, ObjectNo::ROOT, &mut kept)? {
            return Ok(None);
        }
        // Behind the walk: what moves past it is dirty.
        let mut noted = Vec::new();
        self.store().each_note(ObjectNo::ROOT, &mut |no, head| {
            let summary = ObjectNote::summary(head);
            noted.extend((summary.is_ours() || summary.needs_look).then_some(no));
            if noted.len() <= FILTER_OBJECTS_MAX {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        for no in noted {
            let note = self.note_of(no)?;
            let parts = [
                Some(&note.dirty),
                note.in_flight
                    .as_ref()
                    .map(|in_flight| &in_flight.components),
            ];
            let links = parts
                .into_iter()
                .flatten()
                .filter_map(|part| part.links.as_ref())
                .flat_map(|(_, links)| links);
            kept.extend(links.map(|link| link.dir).chain([no]));
            if !self.walk_directories(&mut walk, no, &mut kept)? {
                return Ok(None);
            }
        }
        if bug(Bug::KeptHalfSaid) {
            kept.retain(|no| no.get() % 2 == 0);
        }
        let mut kept: Vec<ObjectNo> = kept.into_iter().collect();
        kept.sort_unstable();
        Ok(Some(kept))
    }

    /// Gathers the directories from one on that are listed, or in which something is; `false`: too
    /// many.
    fn walk_directories(
        &self,
        walk: &mut DirectoryWalk,
        from: ObjectNo,
        kept: &mut HashSet<ObjectNo>,
    ) -> Result<bool, SyncError> {
        let mut dirs = vec![from];
        while let Some(dir) = dirs.pop() {
            if !walk.known.insert(dir) {
                continue;
            }
            let before = walk.looked;
            let seen = self.store().each_entry(dir, 0, &mut |_, child, kind, _| {
                walk.looked += 1;
                dirs.extend((kind == FileType::Dir).then_some(child));
                if walk.looked < LOOKED_MAX {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            });
            match seen {
                Err(StoreError::NotFound(_)) => continue,
                seen => seen?,
            }
            if walk.looked > before || !self.note_of(dir)?.unlisted {
                kept.insert(dir);
            }
            if kept.len() > FILTER_OBJECTS_MAX || walk.looked >= LOOKED_MAX {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// What has been looked at.
#[derive(Default)]
struct DirectoryWalk {
    known: HashSet<ObjectNo>,
    looked: usize,
}
