//! What has changed since a commit: a scan of the commits behind it, grouped by object.
//!
//! # Guarantees
//! 1. A reply is about one state, and has about `REPLY_BYTES`; a longer answer goes on behind an object.
//! 2. Waiting costs nothing but a thread; a commit that concerns the client ends it (`filter`), and so does the coming of another client where
//!    there was none. Where a commit concerns many who wait, they are told a little later, of all that has come meanwhile: a server is not kept
//!    busy by telling everybody everything at once.
//! 3. What is left out by a filter is about nothing that its client knows; the position passes over it.

use crate::commit::volume_of;
use crate::filter::{Filter, News, news};
use crate::limits::{ITEM_BYTES, PAGE, SCAN_MAX};
use crate::refusal::{Outcome, Refusal, bad};
use crate::room::{Ticket, gathering};
use crate::rules::changed::Changed;
use crate::seeded::{Bug, bug};
use crate::server::{Peer, Server};
use crate::version;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use teal_meta::{Ranges, Read};
use teal_proto::{Change, Pulled, REPLY_BYTES, RefusalCode, Reply, WAIT_MAX};
use teal_types::{CommitSeq, ObjectNo};

/// Who asks, and what it has already.
pub(crate) struct From {
    pub(crate) incarnation: u32,
    pub(crate) since: CommitSeq,
    pub(crate) digest: [u8; 32],
    pub(crate) filter: u64,
    /// Where an answer goes on.
    pub(crate) after: Option<(ObjectNo, CommitSeq)>,
}

/// Who waits.
struct Waiter {
    peer: Peer,
    filter: Option<Arc<Filter>>,
    ticket: Ticket,
    until: Duration,
}

/// Why waiting has ended.
enum Ended {
    /// There is news.
    News,
    /// There is company, or it says goodbye, or it has waited for long enough.
    Otherwise,
}

impl Server {
    pub(crate) fn pull(&self, peer: Peer, from: &From, wait_ms: u32) -> Outcome<Reply> {
        let now = self.clock().monotonic();
        let until = now + Duration::from_millis(wait_ms.into()).min(WAIT_MAX);
        let waiter = {
            let mut room = self.room.lock();
            let filter = room.filter(peer, from.filter, now);
            Waiter {
                peer,
                ticket: room.holds(peer, filter.clone()),
                filter,
                until,
            }
        };
        let outcome = self.pull_until(&waiter, from);
        self.room
            .lock()
            .releases(peer, waiter.ticket, self.clock().monotonic());
        let mut pulled = outcome?;
        pulled.is_live = self.room.lock().has_company(peer, self.clock().monotonic());
        if let Some(filter) = &waiter.filter {
            pulled.filter = from.filter;
            let told = pulled.changes.iter().filter_map(|change| match change {
                Change::Is { version, .. } => Some(&**version),
                Change::Gone { .. } => None,
            });
            filter.add(version::dirs(told));
        }
        Ok(Reply::Pulled(pulled))
    }

    fn pull_until(&self, waiter: &Waiter, from: &From) -> Outcome<Pulled> {
        let mut has_ended = false;
        loop {
            self.room.lock().rung(waiter.ticket);
            let (pulled, is_news) =
                self.read(waiter.peer.volume, |txn| self.pulled(txn, waiter, from))?;
            self.room.lock().has_come_to(waiter.peer, from.since);
            let is_over = has_ended || waiter.until <= self.clock().monotonic();
            if is_news || is_over || from.after.is_some() {
                return Ok(pulled);
            }
            has_ended = matches!(self.wait(waiter)?, Ended::Otherwise);
        }
    }

    fn wait(&self, waiter: &Waiter) -> Outcome<Ended> {
        let Waiter {
            peer,
            ticket,
            until,
            ..
        } = *waiter;
        let mut room = self.room.lock();
        let (byes, mut had_company, bell) = (room.byes(peer), true, room.bell(ticket));
        let many = loop {
            if let Some(many) = room.rung(ticket) {
                break many;
            }
            let has_company = room.has_company(peer, self.clock().monotonic());
            if (has_company && !had_company) || room.byes(peer) != byes || room.is_shut_out(peer) {
                return Ok(Ended::Otherwise);
            }
            had_company = has_company;
            if room.is_stopping() {
                return Err(Refusal::new(
                    RefusalCode::Stopping,
                    "the server is ending; connect again in a while",
                ));
            }
            let left = until.saturating_sub(self.clock().monotonic());
            if left.is_zero() || bell.wait_for(&mut room, left).timed_out() {
                return Ok(Ended::Otherwise);
            }
        };
        let told = self.clock().monotonic() + gathering(many);
        while !room.is_stopping() && self.clock().monotonic() < told {
            self.ending
                .wait_for(&mut room, told.saturating_sub(self.clock().monotonic()));
        }
        Ok(Ended::News)
    }

    /// What is to be answered now, and whether that is worth an answer before its time.
    fn pulled(&self, txn: &dyn Read, waiter: &Waiter, from: &From) -> Outcome<(Pulled, bool)> {
        let From {
            incarnation,
            since,
            after,
            ..
        } = *from;
        let volume = volume_of(txn)?;
        let (behind, to) = after.unwrap_or((ObjectNo::new(0), volume.head));
        if since > to || to > volume.head {
            return bad("this history ends before the commit that was named; say hello again");
        }
        let is_other = || -> Outcome<bool> {
            Ok(txn
                .commit(since)?
                .is_none_or(|commit| commit.digest != from.digest)
                && !bug(Bug::OtherHistory))
        };
        if since > CommitSeq::new(0) && is_other()? {
            return bad(
                "this is another history than that of the commit that was named; say hello again",
            );
        }
        let digest = if to == volume.head {
            Some(volume.digest)
        } else {
            txn.commit(to)?.map(|commit| commit.digest)
        };
        // The filter is looked at when the state has been: what is listed behind this state is in it by then.
        let recent = self.room.lock().recent(waiter.peer.volume, since, to);
        let news = news(txn, waiter.filter.as_deref(), (since, to), recent)?;
        let (changes, more) = match &news {
            News::Of(objects, _) if objects.is_empty() => (Vec::new(), None),
            News::All if since == CommitSeq::new(0) && to > since => everything(txn, behind)?,
            News::Of(objects, _) if since == CommitSeq::new(0) => {
                let objects = objects.range(behind..).filter(|object| **object > behind);
                page(txn, objects.map(|object| (*object, None)))?
            }
            _ => changed_objects(txn, since, to, behind, &news)?,
        };
        let is_news = match news {
            News::All => to > since,
            News::Of(_, is_loud) => is_loud,
        };
        let acknowledged = txn.last_batch(waiter.peer.replica, incarnation, to)?;
        let digest = digest.unwrap_or_default();
        Ok((
            Pulled {
                to,
                digest,
                changes,
                more,
                acknowledged,
                is_live: false,
                filter: 0,
            },
            is_news,
        ))
    }
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
            Some(version) => Change::Is {
                version: Box::new(version),
                ranges,
            },
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
        let Some(last) = objects.last().copied() else {
            return Ok((page.changes, None));
        };
        for object in objects {
            if !page.add(txn, object, None)? {
                return Ok((page.changes, page.last));
            }
        }
        behind = last;
    }
}

/// As many of these as one reply has room for, and the last of them if there are more.
fn page(
    txn: &dyn Read,
    objects: impl IntoIterator<Item = (ObjectNo, Ranges)>,
) -> Outcome<(Vec<Change>, Option<ObjectNo>)> {
    let mut page = Page::default();
    for (object, ranges) in objects {
        if !page.add(txn, object, ranges)? {
            return Ok((page.changes, page.last));
        }
    }
    Ok((page.changes, None))
}

fn changed_objects(
    txn: &dyn Read,
    since: CommitSeq,
    to: CommitSeq,
    behind: ObjectNo,
    news: &News,
) -> Outcome<(Vec<Change>, Option<ObjectNo>)> {
    let (found, is_cut) = scan(txn, since, to, behind, news)?;
    let last = found.keys().next_back().copied().filter(|_| is_cut);
    let ranges = |changed: Option<Changed>| changed.and_then(|changed| changed.ranges());
    let (changes, more) = page(
        txn,
        found
            .into_iter()
            .map(|(object, changed)| (object, ranges(changed))),
    )?;
    Ok((changes, more.or(last)))
}

/// The first objects behind `behind` that changed and are news, with where their content did (`None`: anywhere), and whether there are more.
fn scan(
    txn: &dyn Read,
    since: CommitSeq,
    to: CommitSeq,
    behind: ObjectNo,
    news: &News,
) -> Outcome<(BTreeMap<ObjectNo, Option<Changed>>, bool)> {
    let (mut found, mut is_cut) = (BTreeMap::<ObjectNo, Option<Changed>>::new(), false);
    txn.changes(since, to, &mut |_, object, ranges| {
        if object <= behind || !news.has(object) {
            return;
        }
        let known = found
            .entry(object)
            .or_insert_with(|| Some(Changed::default()));
        match ranges {
            None => *known = None,
            Some(ranges) => {
                let known = known.iter_mut();
                known.for_each(|known| {
                    ranges
                        .iter()
                        .for_each(|(start, len)| known.add(*start, start.saturating_add(*len)))
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
