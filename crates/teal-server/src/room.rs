//! Who is here, what each keeps, and who waits for what.

use crate::filter::Filter;
use crate::limits::{FEW, FILTER_FOR, FILTERS_EACH, GATHER_FOR_EACH, GATHER_MAX, LIVE_FOR};
use crate::recent::{Concern, Recent};
use crate::server::Peer;
use parking_lot::Condvar;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use teal_types::{CommitSeq, VolumeId};

/// A filter of a peer, by the number it was given.
#[derive(Debug)]
struct Named {
    id: u64,
    filter: Arc<Filter>,
    /// Whether its client has said all it keeps.
    is_filled: bool,
    used: Duration,
}

/// A pull that waits for news.
#[derive(Debug)]
struct Waiting {
    replica: u32,
    filter: Option<Arc<Filter>>,
    /// There was news; how many were told to look together.
    rung: Option<u32>,
    /// Rung when it has to look.
    bell: Arc<Condvar>,
}

impl Waiting {
    fn ring(&self) {
        self.bell.notify_one();
    }
}

/// A place among those who wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ticket(VolumeId, u64);

/// What is known of a peer since the server was opened.
#[derive(Debug, Default)]
struct Presence {
    /// When it asked for something last; `None`: it has said goodbye.
    asked: Option<Duration>,
    /// How many pulls it holds.
    pulls: u32,
    /// How often it has said goodbye.
    byes: u64,
    /// It has said hello.
    has_greeted: bool,
    /// How far it has come, for people.
    position: CommitSeq,
    /// What its programs keep, the oldest first.
    filters: Vec<Named>,
}

/// Everybody who asks about one volume.
#[derive(Debug, Default)]
struct Hall {
    /// By replica.
    peers: HashMap<u32, Presence>,
    waiting: HashMap<u64, Waiting>,
    /// Whether somebody has seen more history than there is.
    is_restored: bool,
    /// From when somebody has a filter.
    recent: Option<Recent>,
}

impl Hall {
    fn ring_all(&self) {
        self.waiting.values().for_each(Waiting::ring);
    }
}

/// Everybody, volume by volume: what happens in one wakes nobody in another.
#[derive(Debug, Default)]
pub(crate) struct Room {
    halls: HashMap<VolumeId, Hall>,
    is_stopping: bool,
    /// Shut out since the server was opened: what is on its way to them is not answered.
    shut_out: HashSet<Peer>,
    next_ticket: u64,
    /// Objects in all filters.
    kept: Arc<AtomicUsize>,
}

impl Room {
    fn hall(&mut self, volume: VolumeId) -> &mut Hall {
        self.halls.entry(volume).or_default()
    }
    fn presence(&mut self, peer: Peer) -> &mut Presence {
        self.hall(peer.volume)
            .peers
            .entry(peer.replica)
            .or_default()
    }
    fn known(&self, peer: Peer) -> Option<&Presence> {
        self.halls.get(&peer.volume)?.peers.get(&peer.replica)
    }

    /// It asks for something.
    pub(crate) fn seen(&mut self, peer: Peer, now: Duration) {
        let is_new = !self.is_live(peer, now);
        self.presence(peer).asked = Some(now);
        let hall = self.hall(peer.volume);
        // Where two were here before, each of them had company already.
        if is_new
            && hall
                .peers
                .values()
                .filter(|presence| presence.is_live(now))
                .count()
                <= 2
        {
            hall.ring_all();
        }
    }
    /// It says hello.
    pub(crate) fn greets(&mut self, peer: Peer) {
        self.presence(peer).has_greeted = true;
    }
    pub(crate) fn has_greeted(&self, peer: Peer) -> bool {
        self.known(peer)
            .is_some_and(|presence| presence.has_greeted)
    }
    /// It has history up to here.
    pub(crate) fn has_come_to(&mut self, peer: Peer, position: CommitSeq) {
        self.presence(peer).position = position;
    }
    /// Somebody has seen more history of the volume than there is: whether that is new since the server was opened. Then nobody goes on before
    /// he has said hello again.
    pub(crate) fn finds_restored(&mut self, volume: VolumeId) -> bool {
        let hall = self.hall(volume);
        let is_new = !std::mem::replace(&mut hall.is_restored, true);
        if is_new {
            hall.peers
                .values_mut()
                .for_each(|presence| presence.has_greeted = false);
        }
        is_new
    }
    /// How far it has come, if it has said so.
    pub(crate) fn position(&self, peer: Peer) -> CommitSeq {
        self.known(peer)
            .map_or(CommitSeq::new(0), |presence| presence.position)
    }
    pub(crate) fn bye(&mut self, peer: Peer) {
        let presence = self.presence(peer);
        presence.asked = None;
        presence.byes += 1;
        presence.filters.clear();
        let waiting = self.hall(peer.volume).waiting.values();
        waiting
            .filter(|waiting| waiting.replica == peer.replica)
            .for_each(Waiting::ring);
    }
    /// It is shut out: whoever waits for it is told.
    pub(crate) fn shut_out(&mut self, peer: Peer) {
        self.shut_out.insert(peer);
        self.bye(peer);
    }
    /// It is let in again.
    pub(crate) fn readmit(&mut self, peer: Peer) {
        self.shut_out.remove(&peer);
    }
    pub(crate) fn is_shut_out(&self, peer: Peer) -> bool {
        self.shut_out.contains(&peer)
    }
    /// Another number than before: it has said goodbye since.
    pub(crate) fn byes(&self, peer: Peer) -> u64 {
        self.known(peer).map_or(0, |presence| presence.byes)
    }
    /// It holds a pull, for which it may wait.
    pub(crate) fn holds(&mut self, peer: Peer, filter: Option<Arc<Filter>>) -> Ticket {
        self.presence(peer).pulls += 1;
        self.next_ticket += 1;
        let waiting = Waiting {
            replica: peer.replica,
            filter,
            rung: None,
            bell: Arc::default(),
        };
        let ticket = self.next_ticket;
        self.hall(peer.volume).waiting.insert(ticket, waiting);
        Ticket(peer.volume, ticket)
    }
    pub(crate) fn releases(&mut self, peer: Peer, ticket: Ticket, now: Duration) {
        self.hall(peer.volume).waiting.remove(&ticket.1);
        let presence = self.presence(peer);
        presence.pulls = presence.pulls.saturating_sub(1);
        presence.asked = presence.asked.map(|_| now);
    }
    /// How many were told to look together, if there was news for whoever has this ticket since he asked last.
    pub(crate) fn rung(&mut self, ticket: Ticket) -> Option<u32> {
        self.hall(ticket.0)
            .waiting
            .get_mut(&ticket.1)
            .and_then(|waiting| waiting.rung.take())
    }
    /// What to wait for, with the room's lock: it rings when there is news for whoever has this ticket, when somebody comes or goes, and at the end.
    pub(crate) fn bell(&mut self, ticket: Ticket) -> Arc<Condvar> {
        self.hall(ticket.0)
            .waiting
            .get(&ticket.1)
            .map(|waiting| Arc::clone(&waiting.bell))
            .unwrap_or_default()
    }

    pub(crate) fn is_live(&self, peer: Peer, now: Duration) -> bool {
        self.known(peer)
            .is_some_and(|presence| presence.is_live(now))
    }
    /// Whether another replica of the same volume is here.
    pub(crate) fn has_company(&self, peer: Peer, now: Duration) -> bool {
        let mut others = self
            .halls
            .get(&peer.volume)
            .into_iter()
            .flat_map(|hall| &hall.peers);
        others.any(|(replica, presence)| *replica != peer.replica && presence.is_live(now))
    }

    /// A commit is about to be there: what it changes is remembered, if anybody has a filter.
    pub(crate) fn remember(&mut self, volume: VolumeId, commit: &Arc<Concern>) {
        if let Some(recent) = &mut self.hall(volume).recent {
            recent.push(Arc::clone(commit));
        }
    }
    /// The commits in `(since, to]`, if all of them are remembered.
    pub(crate) fn recent(
        &self,
        volume: VolumeId,
        since: CommitSeq,
        to: CommitSeq,
    ) -> Option<Vec<Arc<Concern>>> {
        self.halls.get(&volume)?.recent.as_ref()?.between(since, to)
    }
    /// There is a commit: those whom it concerns are told to look. How many.
    pub(crate) fn committed(&mut self, volume: VolumeId, commit: &Concern) -> u32 {
        let concerned = |waiting: &&mut Waiting| {
            waiting
                .filter
                .as_ref()
                .is_none_or(|filter| filter.wakes(commit))
        };
        let told: Vec<&mut Waiting> = self
            .hall(volume)
            .waiting
            .values_mut()
            .filter(concerned)
            .collect();
        let many = told.len() as u32;
        for waiting in told {
            waiting.rung = Some(many);
            waiting.ring();
        }
        many
    }

    /// A new filter of a peer. History has come to `head`, or further.
    pub(crate) fn begin_filter(&mut self, peer: Peer, id: u64, head: CommitSeq, now: Duration) {
        let filter = Arc::new(Filter::new(&self.kept));
        let hall = self.hall(peer.volume);
        hall.recent.get_or_insert(Recent::new(head));
        for presence in hall.peers.values_mut() {
            presence
                .filters
                .retain(|named| now.saturating_sub(named.used) < FILTER_FOR);
        }
        let filters = &mut self.presence(peer).filters;
        if filters.len() >= FILTERS_EACH {
            filters.remove(0);
        }
        filters.push(Named {
            id,
            filter,
            is_filled: false,
            used: now,
        });
    }
    fn named(&mut self, peer: Peer, id: u64) -> Option<&mut Named> {
        self.presence(peer)
            .filters
            .iter_mut()
            .find(|named| named.id == id)
    }
    /// A filter to which something is added; `is_last`: from then on it can be used.
    pub(crate) fn filter_to_fill(
        &mut self,
        peer: Peer,
        id: u64,
        is_last: bool,
    ) -> Option<Arc<Filter>> {
        let named = self.named(peer, id)?;
        named.is_filled |= is_last;
        Some(Arc::clone(&named.filter))
    }
    /// A filter that can be used.
    pub(crate) fn filter(&mut self, peer: Peer, id: u64, now: Duration) -> Option<Arc<Filter>> {
        let named = self.named(peer, id).filter(|named| named.is_filled)?;
        named.used = now;
        Some(Arc::clone(&named.filter))
    }
    /// All filters of a peer.
    pub(crate) fn filters(&self, peer: Peer) -> Vec<Arc<Filter>> {
        let filters = self
            .known(peer)
            .into_iter()
            .flat_map(|presence| &presence.filters);
        filters.map(|named| Arc::clone(&named.filter)).collect()
    }

    pub(crate) fn stop(&mut self) {
        self.is_stopping = true;
        self.halls.values().for_each(Hall::ring_all);
    }
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping
    }
}

impl Presence {
    fn is_live(&self, now: Duration) -> bool {
        self.pulls > 0
            || self
                .asked
                .is_some_and(|asked| now.saturating_sub(asked) < LIVE_FOR)
    }
}

/// How long news is gathered before so many are told: not at all where they are few.
pub(crate) fn gathering(many: u32) -> Duration {
    if many <= FEW {
        Duration::ZERO
    } else {
        (GATHER_FOR_EACH * many).min(GATHER_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use teal_types::ObjectNo;

    const NOW: Duration = Duration::from_secs(100);

    fn peer(volume: u32, replica: u32) -> Peer {
        Peer {
            volume: VolumeId::new(volume),
            replica,
        }
    }

    fn in_dir(dir: u64) -> Concern {
        Concern {
            seq: CommitSeq::new(1),
            rows: Vec::new(),
            loud: HashSet::from([ObjectNo::new(dir)]),
        }
    }

    #[test]
    fn volumes_do_not_know_of_each_other() {
        let mut room = Room::default();
        room.seen(peer(1, 1), NOW);
        room.seen(peer(2, 2), NOW);
        assert!(!room.has_company(peer(1, 1), NOW) && room.is_live(peer(2, 2), NOW));
        room.seen(peer(1, 2), NOW);
        assert!(room.has_company(peer(1, 1), NOW));
        room.bye(peer(1, 2));
        assert!(!room.has_company(peer(1, 1), NOW));
        let tickets = [1, 2].map(|n| room.holds(peer(n, n), None));
        assert_eq!(room.committed(VolumeId::new(2), &in_dir(1)), 1);
        assert_eq!(tickets.map(|ticket| room.rung(ticket)), [None, Some(1)]);
    }

    #[test]
    fn those_whom_a_commit_does_not_concern_are_not_woken() {
        let mut room = Room::default();
        let keeping = |room: &mut Room, replica: u32, dir: u64| {
            let of = peer(1, replica);
            room.begin_filter(of, dir, CommitSeq::new(0), NOW);
            assert!(
                room.filter(of, dir, NOW).is_none(),
                "not before all has been said"
            );
            room.filter_to_fill(of, dir, true)
                .unwrap()
                .add([ObjectNo::new(dir)]);
            let filter = room.filter(of, dir, NOW);
            room.holds(of, filter)
        };
        let tickets =
            [(1, 30), (2, 31), (3, 31)].map(|(replica, dir)| keeping(&mut room, replica, dir));
        let all = room.holds(peer(1, 4), None);
        assert_eq!(room.committed(VolumeId::new(1), &in_dir(31)), 3);
        assert_eq!(
            tickets.map(|ticket| room.rung(ticket)),
            [None, Some(3), Some(3)]
        );
        assert_eq!((room.rung(all), room.rung(all)), (Some(3), None));
        assert_eq!(
            room.committed(VolumeId::new(1), &in_dir(ObjectNo::ROOT.get())),
            4,
            "the root is everybody's"
        );
    }

    #[test]
    fn filters_are_bounded_and_forgotten_when_nobody_uses_them() {
        let mut room = Room::default();
        let ids = 1..=FILTERS_EACH as u64 + 1;
        ids.clone()
            .for_each(|id| room.begin_filter(peer(1, 1), id, CommitSeq::new(0), NOW));
        let found: Vec<bool> = ids
            .map(|id| room.filter_to_fill(peer(1, 1), id, true).is_some())
            .collect();
        assert_eq!(found, [false, true, true, true, true]);
        let later = NOW + FILTER_FOR;
        assert!(room.filter(peer(1, 1), 3, later).is_some());
        room.begin_filter(peer(1, 2), 9, CommitSeq::new(0), later);
        assert_eq!(
            (
                room.filters(peer(1, 1)).len(),
                room.filters(peer(1, 2)).len()
            ),
            (1, 1)
        );
        let filter = room.filters(peer(1, 2)).pop().unwrap();
        filter.add((0..=crate::limits::FILTER_MAX as u64).map(ObjectNo::new));
        assert!(
            filter.wakes(&in_dir(1 << 40)),
            "one that is too large lets everything through"
        );
        drop(filter);
        room.bye(peer(1, 1));
        room.bye(peer(1, 2));
        assert_eq!(room.kept.load(std::sync::atomic::Ordering::Relaxed), 0);
    }

    #[test]
    fn few_are_told_at_once_and_many_within_bounds() {
        assert_eq!(gathering(FEW), Duration::ZERO);
        assert_eq!(gathering(200), GATHER_FOR_EACH * 200);
        assert_eq!(gathering(9000), GATHER_MAX);
    }
}
