//! Who is here, and who waits for what.

use crate::limits::{FEW, GATHER_FOR_EACH, GATHER_MAX, LIVE_FOR};
use crate::server::Peer;
use parking_lot::Condvar;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use teal_types::VolumeId;

/// What is known of a peer since the server was opened.
#[derive(Debug, Clone, Copy, Default)]
struct Presence {
    /// When it asked for something last; `None`: it has said goodbye.
    asked: Option<Duration>,
    /// How many pulls it holds.
    pulls: u32,
    /// How often it has said goodbye.
    byes: u64,
    /// Its past and ours agree, or do not, by its last hello; `None`: it has said none.
    is_verified: Option<bool>,
}

/// Everybody who asks about one volume.
#[derive(Debug, Default)]
struct Hall {
    /// By replica.
    peers: HashMap<u32, Presence>,
    /// How often there was news.
    news: u64,
    /// Rung whenever those who wait for news of this volume have to look.
    bell: Arc<Condvar>,
}

/// Everybody, volume by volume: what happens in one wakes nobody in another.
#[derive(Debug, Default)]
pub(crate) struct Room {
    halls: HashMap<VolumeId, Hall>,
    is_stopping: bool,
}

impl Room {
    fn hall(&mut self, volume: VolumeId) -> &mut Hall {
        self.halls.entry(volume).or_default()
    }
    fn presence(&mut self, peer: Peer) -> &mut Presence {
        self.hall(peer.volume).peers.entry(peer.replica).or_default()
    }
    fn known(&self, peer: Peer) -> Option<&Presence> {
        self.halls.get(&peer.volume)?.peers.get(&peer.replica)
    }

    /// It asks for something.
    pub(crate) fn seen(&mut self, peer: Peer, now: Duration) {
        let is_new = !self.is_live(peer, now);
        self.presence(peer).asked = Some(now);
        if is_new {
            self.hall(peer.volume).bell.notify_all();
        }
    }
    pub(crate) fn verified(&mut self, peer: Peer, is_verified: bool) {
        self.presence(peer).is_verified = Some(is_verified);
    }
    pub(crate) fn is_verified(&self, peer: Peer) -> bool {
        self.known(peer).is_some_and(|presence| presence.is_verified == Some(true))
    }
    pub(crate) fn has_greeted(&self, peer: Peer) -> bool {
        self.known(peer).is_some_and(|presence| presence.is_verified.is_some())
    }
    pub(crate) fn bye(&mut self, peer: Peer) {
        let presence = self.presence(peer);
        presence.asked = None;
        presence.byes += 1;
        self.hall(peer.volume).bell.notify_all();
    }
    /// Another number than before: it has said goodbye since.
    pub(crate) fn byes(&self, peer: Peer) -> u64 {
        self.known(peer).map_or(0, |presence| presence.byes)
    }
    pub(crate) fn holds(&mut self, peer: Peer) {
        self.presence(peer).pulls += 1;
    }
    pub(crate) fn releases(&mut self, peer: Peer, now: Duration) {
        let presence = self.presence(peer);
        presence.pulls = presence.pulls.saturating_sub(1);
        presence.asked = presence.asked.map(|_| now);
    }

    pub(crate) fn is_live(&self, peer: Peer, now: Duration) -> bool {
        self.known(peer).is_some_and(|presence| presence.is_live(now))
    }
    /// Whether another replica of the same volume is here.
    pub(crate) fn has_company(&self, peer: Peer, now: Duration) -> bool {
        let mut others = self.halls.get(&peer.volume).into_iter().flat_map(|hall| &hall.peers);
        others.any(|(replica, presence)| *replica != peer.replica && presence.is_live(now))
    }

    pub(crate) fn committed(&mut self, volume: VolumeId) {
        let hall = self.hall(volume);
        hall.news += 1;
        hall.bell.notify_all();
    }
    /// Another number than before: there was news.
    pub(crate) fn news(&self, volume: VolumeId) -> u64 {
        self.halls.get(&volume).map_or(0, |hall| hall.news)
    }
    /// What to wait for, with the room's lock: it rings when there is news of the volume, when somebody comes or goes, and at the end.
    pub(crate) fn bell(&mut self, volume: VolumeId) -> Arc<Condvar> {
        Arc::clone(&self.hall(volume).bell)
    }
    /// How long news is gathered before whoever waits is told: nothing where few wait.
    pub(crate) fn gathering(&self, volume: VolumeId) -> Duration {
        let hall = self.halls.get(&volume).into_iter().flat_map(|hall| hall.peers.values());
        match hall.map(|presence| presence.pulls).sum() {
            0..=FEW => Duration::ZERO,
            many => (GATHER_FOR_EACH * many).min(GATHER_MAX),
        }
    }

    pub(crate) fn stop(&mut self) {
        self.is_stopping = true;
        for hall in self.halls.values() {
            hall.bell.notify_all();
        }
    }
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping
    }
}

impl Presence {
    fn is_live(&self, now: Duration) -> bool {
        self.pulls > 0 || self.asked.is_some_and(|asked| now.saturating_sub(asked) < LIVE_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn peer(volume: u32, replica: u32) -> Peer {
        Peer { volume: VolumeId::new(volume), replica }
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
        room.committed(VolumeId::new(2));
        assert_eq!((room.news(VolumeId::new(1)), room.news(VolumeId::new(2))), (0, 1));
    }

    #[test]
    fn few_are_told_at_once_and_many_within_bounds() {
        let mut room = Room::default();
        (0..FEW).for_each(|replica| room.holds(peer(1, replica)));
        assert_eq!(room.gathering(VolumeId::new(1)), Duration::ZERO);
        (FEW..200).for_each(|replica| room.holds(peer(1, replica)));
        assert_eq!(room.gathering(VolumeId::new(1)), GATHER_FOR_EACH * 200);
        (200..9000).for_each(|replica| room.holds(peer(1, replica)));
        assert_eq!(room.gathering(VolumeId::new(1)), GATHER_MAX);
        assert_eq!(room.gathering(VolumeId::new(2)), Duration::ZERO);
    }
}
