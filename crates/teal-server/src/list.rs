//! Directories and single objects, all of one state.

use crate::commit::volume_of;
use crate::limits::{ITEM_BYTES, PAGE};
use crate::refusal::{Outcome, bad};
use crate::server::{Peer, Server};
use crate::version;
use teal_meta::Read;
use teal_proto::{Listing, REPLY_BYTES, Reply, WANTS_MAX};
use teal_types::{Name, ObjectNo};

impl Server {
    pub(crate) fn list(&self, peer: Peer, dirs: &[(ObjectNo, Option<Name>)]) -> Outcome<Reply> {
        check_count(dirs.len())?;
        self.telling(peer, dirs.iter().map(|(dir, _)| *dir), |txn| {
            let head = volume_of(txn)?.head;
            let (mut listings, mut bytes): (Vec<Listing>, _) = (Vec::new(), 0);
            for (dir, after) in dirs {
                let listing = listing(txn, *dir, after.clone(), &mut bytes)?;
                let is_full = listing.more;
                // One that has no room for its first name is left for the next request.
                if listings.is_empty() || !is_full || listing.entries.as_ref().is_some_and(|names| !names.is_empty()) {
                    listings.push(listing);
                }
                if is_full || bytes >= REPLY_BYTES {
                    break;
                }
            }
            let entries = listings.iter().flat_map(|listing| &listing.entries).flatten();
            let lie_in = version::dirs(entries.map(|(_, version)| version));
            Ok((Reply::Listings { head, dirs: listings }, lie_in))
        })
    }

    pub(crate) fn look(&self, peer: Peer, objects: &[ObjectNo]) -> Outcome<Reply> {
        check_count(objects.len())?;
        self.telling(peer, [], |txn| {
            let head = volume_of(txn)?.head;
            let (mut versions, mut bytes) = (Vec::new(), 0);
            for object in objects {
                let found = version::live(txn, *object)?;
                bytes += found.as_ref().map_or(1, version::weight);
                if !versions.is_empty() && bytes > REPLY_BYTES {
                    break;
                }
                versions.push(found);
            }
            let lie_in = version::dirs(versions.iter().flatten());
            Ok((Reply::Versions { head, versions }, lie_in))
        })
    }
}

pub(crate) fn check_count(count: usize) -> Outcome<()> {
    if count > WANTS_MAX {
        return bad(format!("{count} at once; at most {WANTS_MAX} are allowed in one message"));
    }
    Ok(())
}

fn listing(txn: &dyn Read, dir: ObjectNo, mut after: Option<Name>, bytes: &mut usize) -> Outcome<Listing> {
    if !txn.object(dir)?.is_some_and(|row| row.kind.is_dir()) {
        *bytes += ITEM_BYTES;
        return Ok(Listing { dir, entries: None, more: false });
    }
    let mut entries: Vec<(Name, teal_types::Version)> = Vec::new();
    loop {
        let page = txn.entries_after(dir, after.as_ref(), PAGE)?;
        let is_last = page.len() < PAGE;
        after = page.last().map(|(name, _)| name.clone());
        for (name, entry) in page {
            let Some(found) = version::live(txn, entry.object)? else { continue };
            let weight = version::weight(&found) + name.as_bytes().len();
            if *bytes > 0 && *bytes + weight > REPLY_BYTES {
                return Ok(Listing { dir, entries: Some(entries), more: true });
            }
            *bytes += weight;
            entries.push((name, found));
        }
        if is_last {
            *bytes += ITEM_BYTES;
            return Ok(Listing { dir, entries: Some(entries), more: false });
        }
    }
}
