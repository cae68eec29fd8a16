//! Pulls: what has changed since a commit, found by a scan of the commits after it, grouped by
//! object.
//!
//! # Guarantees
//! 1. A reply is about one state, and has about `REPLY_BYTES`; a longer answer goes on behind an
//!    object.
//! 2. Waiting costs nothing but a thread; a commit that concerns the client ends it (`filter`), and
//!    so does the coming of another client where there was none. Where a commit concerns many
//!    waiting clients, they are told a little later, of all that has come meanwhile: the server is
//!    not kept busy by answering every pull at every commit.
//! 3. What is left out by a filter is about nothing that its client knows; the position passes over
//!    it.

use crate::filter::{Filter, HistoryNews, news_for};
use crate::limits::{ITEM_BYTES, PAGE, SCAN_MAX};
use crate::peer::Peer;
use crate::presence::{PullTicket, gathering_time};
use crate::refusal::{Outcome, RequestRefusal, bad_request};
use crate::rules::changed_ranges::ChangedRanges;
use crate::seeded::{Bug, bug};
use crate::server::Server;
use crate::turns::TurnKind;
use crate::version;
use crate::volume::volume_of;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use teal_meta::{Ranges, ReadTransaction};
use teal_proto::{PulledChanges, PulledObject, REPLY_BYTES, RefusalCode, ServerReply, WAIT_MAX};
use teal_types::{CommitSeq, Incarnation, ObjectNo};

/// The request of a pull: the history that the client has, and the end of its last answer.
pub(crate) struct PullRequest {
    pub(crate) incarnation: Incarnation,
    pub(crate) since: CommitSeq,
    /// The digest of the client's history at `since`.
    pub(crate) digest: [u8; 32],
    pub(crate) filter: u64,
    /// The object behind which a long answer goes on, and the commit that the answer describes.
    pub(crate) after: Option<(ObjectNo, CommitSeq)>,
}

/// A pull that has been entered among those that wait.
struct PullWaiter {
    peer: Peer,
    filter: Option<Arc<Filter>>,
    ticket: PullTicket,
    until: Duration,
}

/// The reason for which a wait has ended.
enum WaitEnd {
    News,
    /// A first companion came, the client said goodbye, or its time is over.
    Otherwise,
}

/// Says whether an answer is worth sending before the pull's time is over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AnswerUrgency {
    AnswerNow,
    CanWait,
}

impl Server {
    /// Answers a pull: at once if there is news, else when there is some, `wait_ms` later at the
    /// latest.
    pub(crate) fn answer_pull(
        &self,
        peer: Peer,
        request: &PullRequest,
        wait_ms: u32,
    ) -> Outcome<ServerReply> {
        let now = self.clock().monotonic_time();
        let until = now + Duration::from_millis(wait_ms.into()).min(WAIT_MAX);
        let waiter = self.enter_pull(peer, request.filter, now, until);
        let outcome = self.pull_until(&waiter, request);
        let now = self.clock().monotonic_time();
        self.presence.lock().end_waiting(peer, waiter.ticket, now);
        let mut pulled = outcome?;
        pulled.is_live = self.presence.lock().has_company(peer, now);
        if let Some(filter) = &waiter.filter {
            pulled.filter = request.filter;
            let told = pulled.changes.iter().filter_map(|change| match change {
                PulledObject::Is { version, .. } => Some(&**version),
                PulledObject::Gone { .. } => None,
            });
            // The client knows these directories from now on, so its filter has them before the
            // answer goes out.
            filter.add_objects(version::parent_dirs(told));
        }
        Ok(ServerReply::Pulled(pulled))
    }

    fn enter_pull(&self, peer: Peer, filter: u64, now: Duration, until: Duration) -> PullWaiter {
        let mut presence = self.presence.lock();
        let filter = presence.usable_filter(peer, filter, now);
        let ticket = presence.begin_waiting(peer, filter.clone());
        PullWaiter {
            peer,
            filter,
            ticket,
            until,
        }
    }

    fn pull_until(&self, waiter: &PullWaiter, request: &PullRequest) -> Outcome<PulledChanges> {
        let mut has_ended = false;
        loop {
            // The notification is taken before the state is read, so that the state includes its
            // commit.
            self.presence.lock().take_notification(waiter.ticket);
            let volume = waiter.peer.volume;
            let gather = || self.read(volume, |txn| self.changes_for(txn, waiter, request));
            let (pulled, urgency) = self.turns.run(waiter.peer, TurnKind::Gather, gather)?;
            self.presence
                .lock()
                .record_position(waiter.peer, request.since);
            let is_over = has_ended || waiter.until <= self.clock().monotonic_time();
            if urgency == AnswerUrgency::AnswerNow || is_over || request.after.is_some() {
                return Ok(pulled);
            }
            has_ended = matches!(self.wait_for_news(waiter)?, WaitEnd::Otherwise);
        }
    }

    /// Waits for a notification of the pull, and for more news where many pulls were notified
    /// together.
    fn wait_for_news(&self, waiter: &PullWaiter) -> Outcome<WaitEnd> {
        let PullWaiter {
            peer,
            ticket,
            until,
            ..
        } = *waiter;
        let mut presence = self.presence.lock();
        let goodbyes = presence.goodbye_count(peer);
        let wakeup = presence.wakeup(ticket);
        // Company that is there from the beginning ends no wait.
        let mut had_company = true;
        let notified = loop {
            if let Some(notified) = presence.take_notification(ticket) {
                break notified;
            }
            let now = self.clock().monotonic_time();
            let has_company = presence.has_company(peer, now);
            let has_new_company = has_company && !had_company;
            let has_left = presence.goodbye_count(peer) != goodbyes || presence.is_shut_out(peer);
            if has_new_company || has_left {
                return Ok(WaitEnd::Otherwise);
            }
            had_company = has_company;
            if presence.is_stopping() {
                let words = "the server is ending; connect again in a while";
                return Err(RequestRefusal::new(RefusalCode::Stopping, words));
            }
            let left = until.saturating_sub(now);
            if left.is_zero() || wakeup.wait_for(&mut presence, left).timed_out() {
                return Ok(WaitEnd::Otherwise);
            }
        };
        // If many pulls were notified, more commits are likely to follow, and one answer then
        // covers all of them.
        let gathered = self.clock().monotonic_time() + gathering_time(notified);
        while !presence.is_stopping() && self.clock().monotonic_time() < gathered {
            let left = gathered.saturating_sub(self.clock().monotonic_time());
            self.stopping.wait_for(&mut presence, left);
        }
        Ok(WaitEnd::News)
    }

    /// Returns what there is to answer now, and whether that is worth an answer before the pull's
    /// time is over.
    fn changes_for(
        &self,
        txn: &dyn ReadTransaction,
        waiter: &PullWaiter,
        request: &PullRequest,
    ) -> Outcome<(PulledChanges, AnswerUrgency)> {
        let since = request.since;
        let volume = volume_of(txn)?;
        let (behind, to) = request.after.unwrap_or((ObjectNo::new(0), volume.head));
        check_history(txn, request, to, volume.head)?;
        let digest = if to == volume.head {
            Some(volume.digest)
        } else {
            txn.commit(to)?.map(|commit| commit.digest)
        };
        // Looks at the filter after the state: what the client lists after this state is in the
        // filter by then.
        let recent = self
            .presence
            .lock()
            .recent_commits(waiter.peer.volume, since, to);
        let news = news_for(txn, waiter.filter.as_deref(), (since, to), recent)?;
        let (changes, more) = page_of_news(txn, since, to, behind, &news)?;
        let author = waiter.peer.author(request.incarnation);
        let pulled = PulledChanges {
            to,
            digest: digest.unwrap_or_default(),
            changes,
            more,
            acknowledged: txn.last_batch(author, to)?,
            is_live: false,
            filter: 0,
        };
        Ok((pulled, urgency_of(&news, since, to)))
    }
}

/// Refuses a pull whose client has seen another history, or a longer one, as it may have where a
/// server was restored.
fn check_history(
    txn: &dyn ReadTransaction,
    request: &PullRequest,
    to: CommitSeq,
    head: CommitSeq,
) -> Outcome<()> {
    let since = request.since;
    if since > to || to > head {
        return bad_request("this history ends before the commit that was named; say hello again");
    }
    if since > CommitSeq::new(0) && is_other_history(txn, since, &request.digest)? {
        return bad_request(
            "this is another history than that of the commit that was named; say hello again",
        );
    }
    Ok(())
}

/// Returns whether news is worth an answer before the pull's time is over.
fn urgency_of(news: &HistoryNews, since: CommitSeq, to: CommitSeq) -> AnswerUrgency {
    let is_urgent = match news {
        HistoryNews::All => to > since,
        HistoryNews::Objects { is_notable, .. } => *is_notable,
    };
    if is_urgent {
        AnswerUrgency::AnswerNow
    } else {
        AnswerUrgency::CanWait
    }
}

/// Returns as much of the news as one reply has room for, and the last object if there is more. A
/// client that has nothing yet gets objects as they are, and needs no history.
fn page_of_news(
    txn: &dyn ReadTransaction,
    since: CommitSeq,
    to: CommitSeq,
    behind: ObjectNo,
    news: &HistoryNews,
) -> Outcome<(Vec<PulledObject>, Option<ObjectNo>)> {
    let has_nothing = since == CommitSeq::new(0);
    match news {
        HistoryNews::Objects { objects, .. } if objects.is_empty() => Ok((Vec::new(), None)),
        HistoryNews::All if has_nothing && to > since => page_of_all_objects(txn, behind),
        HistoryNews::Objects { objects, .. } if has_nothing => {
            let objects = objects.range(behind..).filter(|object| **object > behind);
            page_of_objects(txn, objects.map(|object| (*object, None)))
        }
        HistoryNews::All | HistoryNews::Objects { .. } => {
            changed_objects(txn, since, to, behind, news)
        }
    }
}

/// Returns whether the commit `since` of the volume's history has another digest than the client
/// says.
fn is_other_history(
    txn: &dyn ReadTransaction,
    since: CommitSeq,
    digest: &[u8; 32],
) -> Outcome<bool> {
    let commit = txn.commit(since)?;
    let is_other = commit.is_none_or(|commit| commit.digest != *digest);
    Ok(is_other && !bug(Bug::OtherHistory))
}

/// The changes of one reply.
#[derive(Default)]
struct ChangePage {
    changes: Vec<PulledObject>,
    bytes: usize,
    last: Option<ObjectNo>,
}

impl ChangePage {
    /// Adds the state of an object; returns `false`, and adds nothing, if the reply is full.
    fn add_object(
        &mut self,
        txn: &dyn ReadTransaction,
        object: ObjectNo,
        ranges: Ranges,
    ) -> Outcome<bool> {
        let change = match version::live_version(txn, object)? {
            Some(version) => PulledObject::Is {
                version: Box::new(version),
                ranges,
            },
            None => PulledObject::Gone { object },
        };
        let weight = match &change {
            PulledObject::Is { version, ranges } => {
                version::message_weight(version) + ranges.as_ref().map_or(0, Vec::len) * ITEM_BYTES
            }
            PulledObject::Gone { .. } => ITEM_BYTES,
        };
        // The first change always goes in, so that the client gets on.
        if !self.changes.is_empty() && self.bytes + weight > REPLY_BYTES {
            return Ok(false);
        }
        self.bytes += weight;
        self.last = Some(object);
        self.changes.push(change);
        Ok(true)
    }
}

/// Returns all live objects behind `behind`, for a client that has nothing yet.
fn page_of_all_objects(
    txn: &dyn ReadTransaction,
    mut behind: ObjectNo,
) -> Outcome<(Vec<PulledObject>, Option<ObjectNo>)> {
    let mut page = ChangePage::default();
    loop {
        // Read page by page, so that a large volume does not fill the memory.
        let objects = txn.objects_after(behind, PAGE)?;
        let Some(last) = objects.last().copied() else {
            return Ok((page.changes, None));
        };
        for object in objects {
            if !page.add_object(txn, object, None)? {
                return Ok((page.changes, page.last));
            }
        }
        behind = last;
    }
}

/// Returns as many of `objects` as one reply has room for, and the last of them if there are more.
fn page_of_objects(
    txn: &dyn ReadTransaction,
    objects: impl IntoIterator<Item = (ObjectNo, Ranges)>,
) -> Outcome<(Vec<PulledObject>, Option<ObjectNo>)> {
    let mut page = ChangePage::default();
    for (object, ranges) in objects {
        if !page.add_object(txn, object, ranges)? {
            return Ok((page.changes, page.last));
        }
    }
    Ok((page.changes, None))
}

fn changed_objects(
    txn: &dyn ReadTransaction,
    since: CommitSeq,
    to: CommitSeq,
    behind: ObjectNo,
    news: &HistoryNews,
) -> Outcome<(Vec<PulledObject>, Option<ObjectNo>)> {
    let (found, is_cut) = scan_history(txn, since, to, behind, news)?;
    // A scan that was cut has all changes up to this object, and goes on behind it.
    let last = found.keys().next_back().copied().filter(|_| is_cut);
    let mut objects = Vec::new();
    for (object, changed) in found {
        let ranges = changed.and_then(|changed| changed.bounded_list());
        objects.push((object, ranges));
    }
    let (changes, more) = page_of_objects(txn, objects)?;
    Ok((changes, more.or(last)))
}

/// Returns the first objects behind `behind` that changed and are news, each with the ranges in
/// which its content changed (`None`: anywhere), and whether there are more.
fn scan_history(
    txn: &dyn ReadTransaction,
    since: CommitSeq,
    to: CommitSeq,
    behind: ObjectNo,
    news: &HistoryNews,
) -> Outcome<(BTreeMap<ObjectNo, Option<ChangedRanges>>, bool)> {
    let (mut found, mut is_cut) = (BTreeMap::<ObjectNo, Option<ChangedRanges>>::new(), false);
    txn.visit_changes(since, to, &mut |_, object, ranges| {
        if object <= behind || !news.contains(object) {
            return;
        }
        let known = found
            .entry(object)
            .or_insert_with(|| Some(ChangedRanges::default()));
        match (ranges, &mut *known) {
            (None, _) => *known = None,
            (Some(ranges), Some(known)) => {
                for (start, len) in ranges {
                    known.insert_range(start, start.saturating_add(len));
                }
            }
            // The content may have changed anywhere: ranges say no more.
            (Some(_), None) => {}
        }
        // Only the lowest numbers are kept; a long answer goes on behind the last of them.
        if found.len() > SCAN_MAX {
            found.pop_last();
            is_cut = true;
        }
    })?;
    debug_assert!(found.len() <= SCAN_MAX, "the scan is bounded");
    Ok((found, is_cut))
}
