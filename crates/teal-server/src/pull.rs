//! What has changed since a commit: a scan of the commits behind it, grouped by object.
//!
//! # Guarantees
//! 1. A reply is about one state, and has about `REPLY_BYTES`; a longer answer goes on behind an object.
//! 2. Waiting costs nothing but a thread; a commit ends it, and so does the coming of another client where there was none. Where many wait,
//!    they are told a little later, of all that has come meanwhile: a server is not kept busy by telling everybody everything at once.
//!
//! Every client sees the one ordered stream; a filter for each client (what it keeps) has its place in `changed_objects`.

use crate::commit::volume_of;
use crate::hello::replica_of;
use crate::limits::{ITEM_BYTES, PAGE, SCAN_MAX};
use crate::refusal::{Outcome, Refusal, bad};
use crate::rules::changed::Changed;
use crate::seeded::{Bug, bug};
use crate::server::{Peer, Server};
use crate::version;
use std::collections::BTreeMap;
use std::time::Duration;
use teal_meta::{Ranges, Read};
use teal_proto::{Change, Pulled, REPLY_BYTES, RefusalCode, Reply, WAIT_MAX};
use teal_types::{CommitSeq, ObjectNo};

/// Who asks, and what it has already.
pub(crate) struct From {
    pub(crate) incarnation: u32,
    pub(crate) since: CommitSeq,
    pub(crate) digest: [u8; 32],
    /// Where an answer goes on.
    pub(crate) after: Option<(ObjectNo, CommitSeq)>,
}

impl Server {
    pub(crate) fn pull(&self, peer: Peer, from: &From, wait_ms: u32) -> Outcome<Reply> {
        let until = self.clock().monotonic() + Duration::from_millis(wait_ms.into()).min(WAIT_MAX);
        self.room.lock().holds(peer);
        let outcome = self.pull_until(peer, from, until);
        self.room.lock().releases(peer, self.clock().monotonic());
        let mut pulled = outcome?;
        pulled.is_live = self.room.lock().has_company(peer, self.clock().monotonic());
        Ok(Reply::Pulled(pulled))
    }

    fn pull_until(&self, peer: Peer, from: &From, until: Duration) -> Outcome<Pulled> {
        loop {
            let before = self.room.lock().news(peer.volume);
            let pulled = self.read(peer.volume, |txn| pulled(txn, peer, from))?;
            self.note_position(peer, from.since)?;
            if pulled.to > from.since || from.after.is_some() {
                return Ok(pulled);
            }
            let mut room = self.room.lock();
            let (byes, mut had_company, bell) = (room.byes(peer), true, room.bell(peer.volume));
            while room.news(peer.volume) == before {
                let has_company = room.has_company(peer, self.clock().monotonic());
                if (has_company && !had_company) || room.byes(peer) != byes {
                    return Ok(pulled);
                }
                had_company = has_company;
                if room.is_stopping() {
                    return Err(Refusal::new(RefusalCode::Stopping, "the server is ending; connect again in a while"));
                }
                let left = until.saturating_sub(self.clock().monotonic());
                if left.is_zero() || bell.wait_for(&mut room, left).timed_out() {
                    return Ok(pulled);
                }
            }
            let told = self.clock().monotonic() + room.gathering(peer.volume);
            while !room.is_stopping() && self.clock().monotonic() < told {
                self.ending.wait_for(&mut room, told.saturating_sub(self.clock().monotonic()));
            }
        }
    }

    /// Keeps how far a client surely is, for the day this database is put back from a copy.
    fn note_position(&self, peer: Peer, since: CommitSeq) -> Outcome<()> {
        let is_verified = self.room.lock().is_verified(peer);
        if !is_verified || self.read(peer.volume, |txn| Ok(replica_of(txn, peer)?.position >= since))? {
            return Ok(());
        }
        self.write_soon(peer.volume, |txn| {
            let mut replica = replica_of(txn, peer)?;
            replica.position = replica.position.max(since);
            Ok(txn.put_replica(peer.replica, &replica)?)
        })
    }
}

fn pulled(txn: &dyn Read, peer: Peer, from: &From) -> Outcome<Pulled> {
    let From { incarnation, since, after, .. } = *from;
    let volume = volume_of(txn)?;
    let (behind, to) = after.unwrap_or((ObjectNo::new(0), volume.head));
    if since > to || to > volume.head {
        return bad("this history ends before the commit that was named; say hello again");
    }
    let is_other = || -> Outcome<bool> {
        Ok(txn.commit(since)?.is_none_or(|commit| commit.digest != from.digest) && !bug(Bug::OtherHistory))
    };
    if since > CommitSeq::new(0) && is_other()? {
        return bad("this is another history than that of the commit that was named; say hello again");
    }
    let digest = if to == volume.head { Some(volume.digest) } else { txn.commit(to)?.map(|commit| commit.digest) };
    let (changes, more) = if since == CommitSeq::new(0) && to > since {
        everything(txn, behind)?
    } else {
        changed_objects(txn, since, to, behind)?
    };
    let acknowledged = txn.last_batch(peer.replica, incarnation, to)?;
    Ok(Pulled { to, digest: digest.unwrap_or_default(), changes, more, acknowledged, is_live: false })
}

/// One reply's worth of changes.
#[derive(Default)]
struct Page {
    changes: Vec<Change>,
    bytes: usize,
    last: Option<ObjectNo>,
}

impl Page {
    /// False if the reply is full: the object is not in it.
    fn add(&mut self, txn: &dyn Read, object: ObjectNo, ranges: Ranges) -> Outcome<bool> {
        let change = match version::live(txn, object)? {
            Some(version) => Change::Is { version: Box::new(version), ranges },
            None => Change::Gone { object },
        };
        let weight = match &change {
            Change::Is { version, ranges } => {
                version::weight(version) + ranges.as_ref().map_or(0, Vec::len) * ITEM_BYTES
            }
            Change::Gone { .. } => ITEM_BYTES,
        };
        if !self.changes.is_empty() && self.bytes + weight > REPLY_BYTES {
            return Ok(false);
        }
        self.bytes += weight;
        self.last = Some(object);
        self.changes.push(change);
        Ok(true)
    }
}

/// For whoever has nothing yet: all that lives.
fn everything(txn: &dyn Read, mut behind: ObjectNo) -> Outcome<(Vec<Change>, Option<ObjectNo>)> {
    let mut page = Page::default();
    loop {
        let objects = txn.objects_after(behind, PAGE)?;
        let Some(last) = objects.last().copied() else { return Ok((page.changes, None)) };
        for object in objects {
            if !page.add(txn, object, None)? {
                return Ok((page.changes, page.last));
            }
        }
        behind = last;
    }
}

fn changed_objects(
    txn: &dyn Read,
    since: CommitSeq,
    to: CommitSeq,
    behind: ObjectNo,
) -> Outcome<(Vec<Change>, Option<ObjectNo>)> {
    let (found, is_cut) = scan(txn, since, to, behind)?;
    let mut page = Page::default();
    for (object, changed) in found {
        if !page.add(txn, object, changed.and_then(|changed| changed.ranges()))? {
            return Ok((page.changes, page.last));
        }
    }
    let more = if is_cut { page.last } else { None };
    Ok((page.changes, more))
}

/// The first objects behind `behind` that changed, with where their content did (`None`: anywhere), and whether there are more.
fn scan(
    txn: &dyn Read,
    since: CommitSeq,
    to: CommitSeq,
    behind: ObjectNo,
) -> Outcome<(BTreeMap<ObjectNo, Option<Changed>>, bool)> {
    let (mut found, mut is_cut) = (BTreeMap::<ObjectNo, Option<Changed>>::new(), false);
    txn.changes(since, to, &mut |_, object, ranges| {
        if object <= behind {
            return;
        }
        let known = found.entry(object).or_insert_with(|| Some(Changed::default()));
        match ranges {
            None => *known = None,
            Some(ranges) => {
                let known = known.iter_mut();
                known.for_each(|known| {
                    ranges.iter().for_each(|(start, len)| known.add(*start, start.saturating_add(*len)))
                });
            }
        }
        if found.len() > SCAN_MAX {
            found.pop_last();
            is_cut = true;
        }
    })?;
    Ok((found, is_cut))
}
