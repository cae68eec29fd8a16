//! Directories and single objects, all of one state.

use crate::limits::{ITEM_BYTES, PAGE};
use crate::peer::Peer;
use crate::refusal::{Outcome, bad_request};
use crate::server::Server;
use crate::version;
use crate::volume::volume_of;
use std::collections::{HashSet, VecDeque};
use teal_meta::ReadTransaction;
use teal_proto::{DirectoryListing, REPLY_BYTES, ServerReply, WANTS_MAX};
use teal_types::{Name, ObjectNo};

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
            let (mut listings, mut bytes, mut ahead) = (Vec::new(), 0, ahead as usize);
            let (mut known, mut asked) = (HashSet::new(), dirs.iter().cloned());
            // Breadth first: directories near the first one are more likely to be looked at next.
            let mut below = VecDeque::new();
            while (listings.is_empty() || ahead > 0)
                && bytes < REPLY_BYTES
                && let Some((dir, after)) = below
                    .pop_front()
                    .map(|dir| (dir, None))
                    .or_else(|| asked.next())
            {
                // The directory was listed before, for itself or below another one.
                if !known.insert(dir) {
                    continue;
                }
                let before = bytes;
                // The first directory is not limited by `ahead`, only by the size of the reply.
                let most = match listings.is_empty() {
                    true => usize::MAX,
                    false => ahead,
                };
                let listing = read_listing(txn, dir, after, most, &mut bytes)?;
                let entries = listing.entries.as_deref().unwrap_or_default();
                if !listings.is_empty() {
                    if listing.more {
                        // Too large. A smaller one may fit, but they are not all tried.
                        (bytes, ahead) = (before, ahead / 2);
                        continue;
                    }
                    ahead = ahead.saturating_sub(entries.len().max(1));
                }
                let dirs = entries.iter().filter(|(_, version)| version.kind.is_dir());
                below.extend(dirs.map(|(_, version)| version.object));
                // The next request goes on in this directory.
                let is_full = listing.more;
                listings.push(listing);
                if is_full {
                    break;
                }
            }
            let known_dirs = dirs_known_by(&listings);
            let reply = ServerReply::Listings {
                head,
                dirs: listings,
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
