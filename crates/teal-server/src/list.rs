//! Directories and single objects, all of one state.

use crate::limits::{ITEM_BYTES, PAGE};
use crate::peer::Peer;
use crate::refusal::{Outcome, bad_request};
use crate::server::Server;
use crate::version;
use crate::volume::volume_of;
use std::collections::{HashSet, VecDeque};
use std::ops::ControlFlow;
use teal_meta::ReadTransaction;
use teal_proto::{DirectoryListing, REPLY_BYTES, ServerReply, WANTS_MAX};
use teal_types::{Name, ObjectNo};

/// The listings of one reply, and the directories that come next.
struct ListingReply {
    listings: Vec<DirectoryListing>,
    bytes: usize,
    /// How many entries there may still be of directories behind the first.
    ahead: usize,
    /// Directories that were listed, or did not fit.
    known: HashSet<ObjectNo>,
    /// Directories below those that were listed, in the order in which they were found.
    below: VecDeque<ObjectNo>,
}

impl ListingReply {
    fn new(ahead: usize) -> Self {
        Self {
            listings: Vec::new(),
            bytes: 0,
            ahead,
            known: HashSet::new(),
            below: VecDeque::new(),
        }
    }

    fn has_room(&self) -> bool {
        (self.listings.is_empty() || self.ahead > 0) && self.bytes < REPLY_BYTES
    }

    /// Adds a directory from behind the name `after`. The first one may come in part, which ends
    /// the reply; another one comes whole or not at all.
    fn add_directory(
        &mut self,
        txn: &dyn ReadTransaction,
        dir: ObjectNo,
        after: Option<Name>,
    ) -> Outcome<ControlFlow<()>> {
        // The directory was listed before, for itself or below another one.
        if !self.known.insert(dir) {
            return Ok(ControlFlow::Continue(()));
        }
        let is_first = self.listings.is_empty();
        let before = self.bytes;
        // The first directory is not limited by `ahead`, only by the size of the reply.
        let most = if is_first { usize::MAX } else { self.ahead };
        let listing = read_listing(txn, dir, after, most, &mut self.bytes)?;
        if listing.more && !is_first {
            // Too large. A smaller one may fit, but they are not all tried.
            self.bytes = before;
            self.ahead /= 2;
            return Ok(ControlFlow::Continue(()));
        }
        let entries = listing.entries.as_deref().unwrap_or_default();
        if !is_first {
            self.ahead = self.ahead.saturating_sub(entries.len().max(1));
        }
        for (_, version) in entries {
            if version.kind.is_dir() {
                self.below.push_back(version.object);
            }
        }
        let is_full = listing.more;
        self.listings.push(listing);
        // The next request goes on in this directory.
        Ok(if is_full {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        })
    }
}

impl Server {
    /// Answers with the first of `dirs`, or as much of it as fits, then with whole directories of
    /// at most `ahead` entries together: those below the first, then the others.
    pub(crate) fn answer_list(
        &self,
        peer: Peer,
        dirs: &[(ObjectNo, Option<Name>)],
        ahead: u32,
    ) -> Outcome<ServerReply> {
        check_count(dirs.len())?;
        self.read_for_client(peer, dirs.first().map(|(dir, _)| *dir), |txn| {
            let head = volume_of(txn)?.head;
            let mut reply = ListingReply::new(ahead as usize);
            let mut asked = dirs.iter().cloned();
            while reply.has_room() {
                // Breadth first: directories near the first one are more likely to be looked at
                // next.
                let next = match reply.below.pop_front() {
                    Some(dir) => Some((dir, None)),
                    None => asked.next(),
                };
                let Some((dir, after)) = next else {
                    break;
                };
                if reply.add_directory(txn, dir, after)?.is_break() {
                    break;
                }
            }
            let known_dirs = dirs_known_by(&reply.listings);
            let reply = ServerReply::Listings {
                head,
                dirs: reply.listings,
            };
            Ok((reply, known_dirs))
        })
    }

    pub(crate) fn answer_look(&self, peer: Peer, objects: &[ObjectNo]) -> Outcome<ServerReply> {
        check_count(objects.len())?;
        self.read_for_client(peer, [], |txn| {
            let head = volume_of(txn)?.head;
            let (mut versions, mut bytes) = (Vec::new(), 0);
            for object in objects {
                let found = version::live_version(txn, *object)?;
                bytes += found.as_ref().map_or(1, version::message_weight);
                if !versions.is_empty() && bytes > REPLY_BYTES {
                    break;
                }
                versions.push(found);
            }
            // A client that was told an object knows the directories it lies in.
            let lie_in = version::parent_dirs(versions.iter().flatten());
            Ok((ServerReply::Versions { head, versions }, lie_in))
        })
    }
}

/// Returns the directories that a client knows by these listings.
fn dirs_known_by(listings: &[DirectoryListing]) -> Vec<ObjectNo> {
    let entries = listings.iter().flat_map(|listing| &listing.entries);
    let versions = entries.flatten().map(|(_, version)| version);
    let mut dirs = version::parent_dirs(versions);
    // A listed directory without entries is known from now on, too.
    dirs.extend(listings.iter().map(|listing| listing.dir));
    dirs
}

/// Refuses a request for more than [`WANTS_MAX`] things.
pub(crate) fn check_count(count: usize) -> Outcome<()> {
    if count > WANTS_MAX {
        return bad_request(format!(
            "{count} at once; at most {WANTS_MAX} are allowed in one message"
        ));
    }
    Ok(())
}

/// Reads a directory behind the name `after`, `most` entries at most. Adds their size to `bytes`,
/// the size of the reply so far.
fn read_listing(
    txn: &dyn ReadTransaction,
    dir: ObjectNo,
    mut after: Option<Name>,
    most: usize,
    bytes: &mut usize,
) -> Outcome<DirectoryListing> {
    if !txn.object(dir)?.is_some_and(|row| row.kind.is_dir()) {
        *bytes += ITEM_BYTES;
        return Ok(DirectoryListing {
            dir,
            entries: None,
            more: false,
        });
    }
    let mut entries: Vec<(Name, teal_types::ObjectVersion)> = Vec::new();
    loop {
        let page = txn.entries_after(dir, after.as_ref(), PAGE)?;
        let is_last = page.len() < PAGE;
        after = page.last().map(|(name, _)| name.clone());
        for (name, entry) in page {
            let Some(found) = version::live_version(txn, entry.object)? else {
                continue;
            };
            let weight = version::message_weight(&found) + name.as_bytes().len();
            // The first entry always goes in, so that the client gets on.
            if entries.len() == most || (*bytes > 0 && *bytes + weight > REPLY_BYTES) {
                return Ok(DirectoryListing {
                    dir,
                    entries: Some(entries),
                    more: true,
                });
            }
            *bytes += weight;
            entries.push((name, found));
        }
        if is_last {
            *bytes += ITEM_BYTES;
            return Ok(DirectoryListing {
                dir,
                entries: Some(entries),
                more: false,
            });
        }
    }
}
