//! Presence: which clients are connected to which volume, what each keeps, and which pulls wait for
//! news.
//!
//! # Guarantees
//! 1. *Separate volumes*: an event in one volume notifies no pull in another.
//! 2. *No lost news*: a notification stays with its pull until the pull takes it, so that news
//!    between two looks is not missed.
//! 3. *Bounded filters*: a client has at most [`FILTERS_EACH`] filters, and one that is unused for
//!    [`FILTER_FOR`] goes.

use crate::filter::Filter;
use crate::limits::{
    FILTER_FOR, FILTERS_EACH, GATHER_FOR_EACH, GATHER_MAX, GATHERING_FROM, LIVE_FOR,
};
use crate::peer::Peer;
use crate::recent::{CommitConcern, RecentCommits};
use parking_lot::Condvar;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use teal_types::{CommitSeq, ReplicaNo, VolumeId};

/// A filter of a client, with the number that the client gave it.
#[derive(Debug)]
struct NumberedFilter {
    id: u64,
    filter: Arc<Filter>,
    state: FilterState,
    last_use: Duration,
}

/// Says whether a filter can be used already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FilterState {
    /// The client is still sending what it keeps.
    Filling,
    /// The client has sent all that it keeps.
    Usable,
}

/// A pull that waits for news.
#[derive(Debug)]
struct WaitingPull {
    replica: ReplicaNo,
    filter: Option<Arc<Filter>>,
    /// The number of pulls that were notified together, from the notification until the pull takes
    /// it.
    notification: Option<u32>,
    /// Wakes the thread of the pull.
    wakeup: Arc<Condvar>,
}

impl WaitingPull {
    fn wake(&self) {
        self.wakeup.notify_one();
    }
}

/// Names one waiting pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PullTicket {
    volume: VolumeId,
    number: u64,
}

/// The state of one client since the server was opened.
#[derive(Debug, Default)]
struct ClientPresence {
    /// The time of the client's last request; `None` after it has said goodbye.
    last_request: Option<Duration>,
    /// The number of pulls that the client holds open.
    open_pulls: u32,
    /// Counts the client's goodbyes.
    goodbyes: u64,
    has_greeted: bool,
    /// The client's position in history, which is shown to people.
    position: CommitSeq,
    /// The filters of the client's programs, the oldest first.
    filters: Vec<NumberedFilter>,
}

impl ClientPresence {
    fn is_live(&self, now: Duration) -> bool {
        let is_recent = |time: Duration| now.saturating_sub(time) < LIVE_FOR;
        self.open_pulls > 0 || self.last_request.is_some_and(is_recent)
    }
}

/// The clients of one volume.
#[derive(Debug, Default)]
struct VolumePresence {
    clients: HashMap<ReplicaNo, ClientPresence>,
    /// The waiting pulls, by the number of their ticket.
    waiting: HashMap<u64, WaitingPull>,
    /// Becomes true when a client has seen more history than there is.
    is_restored: bool,
    /// The last commits, from the time on at which the first filter begins.
    recent: Option<RecentCommits>,
}

impl VolumePresence {
    fn wake_all(&self) {
        self.waiting.values().for_each(WaitingPull::wake);
    }

    fn live_clients(&self, now: Duration) -> usize {
        let live = self.clients.values().filter(|client| client.is_live(now));
        live.count()
    }
}

/// The presence of all clients, volume by volume.
#[derive(Debug, Default)]
pub(crate) struct PresenceRegistry {
    volumes: HashMap<VolumeId, VolumePresence>,
    is_stopping: bool,
    /// Clients that were shut out since the server was opened: requests of theirs that are under
    /// way are not answered.
    shut_out: HashSet<Peer>,
    last_ticket: u64,
    /// The number of objects in all filters.
    filtered_objects: Arc<AtomicUsize>,
}

impl PresenceRegistry {
    fn volume(&mut self, volume: VolumeId) -> &mut VolumePresence {
        self.volumes.entry(volume).or_default()
    }

    fn client(&mut self, peer: Peer) -> &mut ClientPresence {
        let clients = &mut self.volume(peer.volume).clients;
        clients.entry(peer.replica).or_default()
    }

    fn known_client(&self, peer: Peer) -> Option<&ClientPresence> {
        self.volumes.get(&peer.volume)?.clients.get(&peer.replica)
    }

    /// Records a request of `peer`. A first companion wakes the pulls of the volume, which tell
    /// their clients of it.
    pub(crate) fn record_request(&mut self, peer: Peer, now: Duration) {
        let is_new = !self.is_live(peer, now);
        self.client(peer).last_request = Some(now);
        let volume = self.volume(peer.volume);
        // With three or more, each of the others had company already, and learns nothing new.
        if is_new && volume.live_clients(now) <= 2 {
            volume.wake_all();
        }
    }

    /// Records that `peer` has said hello.
    pub(crate) fn record_greeting(&mut self, peer: Peer) {
        self.client(peer).has_greeted = true;
    }

    pub(crate) fn has_greeted(&self, peer: Peer) -> bool {
        let client = self.known_client(peer);
        client.is_some_and(|client| client.has_greeted)
    }

    /// Records the position in history that `peer` has reached.
    pub(crate) fn record_position(&mut self, peer: Peer, position: CommitSeq) {
        self.client(peer).position = position;
    }

    /// Returns the position that `peer` has told; the beginning of history if it has told none.
    pub(crate) fn position(&self, peer: Peer) -> CommitSeq {
        let client = self.known_client(peer);
        client.map_or(CommitSeq::new(0), |client| client.position)
    }

    /// Records that a client has seen more history of the volume than there is. The first time,
    /// every client has to say hello again, and this returns `true`.
    pub(crate) fn record_restored_history(&mut self, volume: VolumeId) -> bool {
        let volume = self.volume(volume);
        let is_new = !std::mem::replace(&mut volume.is_restored, true);
        if is_new {
            for client in volume.clients.values_mut() {
                client.has_greeted = false;
            }
        }
        is_new
    }

    /// Records that `peer` has said goodbye: it is live no more, and its pulls end.
    pub(crate) fn record_goodbye(&mut self, peer: Peer) {
        let client = self.client(peer);
        client.last_request = None;
        client.goodbyes += 1;
        client.filters.clear();
        let waiting = self.volume(peer.volume).waiting.values();
        let own = waiting.filter(|pull| pull.replica == peer.replica);
        own.for_each(WaitingPull::wake);
    }

    /// Returns a number that changes whenever `peer` says goodbye.
    pub(crate) fn goodbye_count(&self, peer: Peer) -> u64 {
        self.known_client(peer).map_or(0, |client| client.goodbyes)
    }

    /// Shuts `peer` out, and ends its pulls.
    pub(crate) fn shut_out(&mut self, peer: Peer) {
        self.shut_out.insert(peer);
        self.record_goodbye(peer);
    }

    /// Lets `peer` in again.
    pub(crate) fn readmit(&mut self, peer: Peer) {
        self.shut_out.remove(&peer);
    }

    pub(crate) fn is_shut_out(&self, peer: Peer) -> bool {
        self.shut_out.contains(&peer)
    }

    /// Enters a pull that may have to wait, and returns its ticket;
    /// [`end_waiting`](Self::end_waiting) is due for it.
    pub(crate) fn begin_waiting(&mut self, peer: Peer, filter: Option<Arc<Filter>>) -> PullTicket {
        self.client(peer).open_pulls += 1;
        self.last_ticket += 1;
        let pull = WaitingPull {
            replica: peer.replica,
            filter,
            notification: None,
            wakeup: Arc::default(),
        };
        let ticket = PullTicket {
            volume: peer.volume,
            number: self.last_ticket,
        };
        let replaced = self.volume(peer.volume).waiting.insert(ticket.number, pull);
        debug_assert!(replaced.is_none(), "a ticket was given twice");
        ticket
    }

    /// Removes a pull that has been answered. Its client counts as live from now, unless it has
    /// said goodbye.
    pub(crate) fn end_waiting(&mut self, peer: Peer, ticket: PullTicket, now: Duration) {
        debug_assert_eq!(peer.volume, ticket.volume);
        self.volume(peer.volume).waiting.remove(&ticket.number);
        let client = self.client(peer);
        debug_assert!(client.open_pulls > 0, "a pull ends that did not begin");
        client.open_pulls = client.open_pulls.saturating_sub(1);
        client.last_request = client.last_request.map(|_| now);
    }

    /// Takes the notification of a pull, if it has one since the last time: the number of pulls
    /// that were notified together.
    pub(crate) fn take_notification(&mut self, ticket: PullTicket) -> Option<u32> {
        let waiting = &mut self.volume(ticket.volume).waiting;
        waiting.get_mut(&ticket.number)?.notification.take()
    }

    /// Returns what the thread of a pull waits on, with the registry's lock. It is woken by news
    /// for the pull, by clients that come or go, and when the server stops.
    pub(crate) fn wakeup(&mut self, ticket: PullTicket) -> Arc<Condvar> {
        let pull = self.volume(ticket.volume).waiting.get(&ticket.number);
        pull.map(|pull| Arc::clone(&pull.wakeup))
            .unwrap_or_default()
    }

    pub(crate) fn is_live(&self, peer: Peer, now: Duration) -> bool {
        let client = self.known_client(peer);
        client.is_some_and(|client| client.is_live(now))
    }

    /// Returns whether another replica of the same volume is live.
    pub(crate) fn has_company(&self, peer: Peer, now: Duration) -> bool {
        let Some(volume) = self.volumes.get(&peer.volume) else {
            return false;
        };
        let mut others = volume
            .clients
            .iter()
            .filter(|(replica, _)| **replica != peer.replica);
        others.any(|(_, client)| client.is_live(now))
    }

    /// Remembers what a commit is about to change, if any client has a filter.
    pub(crate) fn remember_commit(&mut self, volume: VolumeId, commit: &Arc<CommitConcern>) {
        if let Some(recent) = &mut self.volume(volume).recent {
            recent.push(Arc::clone(commit));
        }
    }

    /// Returns the commits in `(since, to]`, if all of them are remembered.
    pub(crate) fn recent_commits(
        &self,
        volume: VolumeId,
        since: CommitSeq,
        to: CommitSeq,
    ) -> Option<Vec<Arc<CommitConcern>>> {
        self.volumes
            .get(&volume)?
            .recent
            .as_ref()?
            .between(since, to)
    }

    /// Notifies the pulls that a commit concerns, and returns their number.
    pub(crate) fn notify_of_commit(&mut self, volume: VolumeId, commit: &CommitConcern) -> u32 {
        let is_concerned = |pull: &&mut WaitingPull| {
            let filter = pull.filter.as_ref();
            filter.is_none_or(|filter| filter.is_woken_by(commit))
        };
        let waiting = self.volume(volume).waiting.values_mut();
        let concerned: Vec<&mut WaitingPull> = waiting.filter(is_concerned).collect();
        let count = concerned.len() as u32;
        for pull in concerned {
            pull.notification = Some(count);
            pull.wake();
        }
        count
    }

    /// Begins a new filter of a client, at a time when history has come to `head` or further.
    pub(crate) fn begin_filter(&mut self, peer: Peer, id: u64, head: CommitSeq, now: Duration) {
        let filter = Arc::new(Filter::new(&self.filtered_objects));
        let volume = self.volume(peer.volume);
        volume.recent.get_or_insert(RecentCommits::new(head));
        // Filters that have been unused for a while are dropped before a new one is counted.
        for client in volume.clients.values_mut() {
            client
                .filters
                .retain(|filter| now.saturating_sub(filter.last_use) < FILTER_FOR);
        }
        let filters = &mut self.client(peer).filters;
        if filters.len() >= FILTERS_EACH {
            filters.remove(0);
        }
        filters.push(NumberedFilter {
            id,
            filter,
            state: FilterState::Filling,
            last_use: now,
        });
        debug_assert!(filters.len() <= FILTERS_EACH);
    }

    fn numbered_filter(&mut self, peer: Peer, id: u64) -> Option<&mut NumberedFilter> {
        let filters = &mut self.client(peer).filters;
        filters.iter_mut().find(|filter| filter.id == id)
    }

    /// Returns a filter to which something is added; from the last addition on it can be used.
    pub(crate) fn filter_to_fill(
        &mut self,
        peer: Peer,
        id: u64,
        is_last: bool,
    ) -> Option<Arc<Filter>> {
        let numbered = self.numbered_filter(peer, id)?;
        if is_last {
            numbered.state = FilterState::Usable;
        }
        Some(Arc::clone(&numbered.filter))
    }

    /// Returns a filter that can be used.
    pub(crate) fn usable_filter(
        &mut self,
        peer: Peer,
        id: u64,
        now: Duration,
    ) -> Option<Arc<Filter>> {
        let numbered = self.numbered_filter(peer, id)?;
        if numbered.state == FilterState::Filling {
            return None;
        }
        numbered.last_use = now;
        Some(Arc::clone(&numbered.filter))
    }

    /// Returns all filters of a client.
    pub(crate) fn filters_of(&self, peer: Peer) -> Vec<Arc<Filter>> {
        let Some(client) = self.known_client(peer) else {
            return Vec::new();
        };
        let filters = client.filters.iter();
        filters
            .map(|numbered| Arc::clone(&numbered.filter))
            .collect()
    }

    /// Ends all waiting.
    pub(crate) fn stop(&mut self) {
        self.is_stopping = true;
        self.volumes.values().for_each(VolumePresence::wake_all);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping
    }
}

/// Returns how long a notified pull gathers more news before it looks: not at all where few were
/// notified together.
pub(crate) fn gathering_time(notified: u32) -> Duration {
    if notified <= GATHERING_FROM {
        return Duration::ZERO;
    }
    (GATHER_FOR_EACH * notified).min(GATHER_MAX)
}

#[cfg(test)]
mod tests;
