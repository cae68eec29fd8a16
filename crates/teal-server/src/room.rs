//! Who is here, and who waits for what.

use crate::limits::LIVE_FOR;
use crate::server::Peer;
use std::collections::HashMap;
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

/// Everybody, and how often each volume has had news.
#[derive(Debug, Default)]
pub(crate) struct Room {
    peers: HashMap<Peer, Presence>,
    news: HashMap<VolumeId, u64>,
    is_stopping: bool,
}

impl Room {
    /// It asks for something; says whether it was not here before.
    pub(crate) fn seen(&mut self, peer: Peer, now: Duration) -> bool {
        let is_new = !self.is_live(peer, now);
        self.peers.entry(peer).or_default().asked = Some(now);
        is_new
    }
    pub(crate) fn verified(&mut self, peer: Peer, is_verified: bool) {
        self.peers.entry(peer).or_default().is_verified = Some(is_verified);
    }
    pub(crate) fn is_verified(&self, peer: Peer) -> bool {
        self.peers.get(&peer).is_some_and(|presence| presence.is_verified == Some(true))
    }
    pub(crate) fn has_greeted(&self, peer: Peer) -> bool {
        self.peers.get(&peer).is_some_and(|presence| presence.is_verified.is_some())
    }
    pub(crate) fn bye(&mut self, peer: Peer) {
        let presence = self.peers.entry(peer).or_default();
        presence.asked = None;
        presence.byes += 1;
    }
    /// Another number than before: it has said goodbye since.
    pub(crate) fn byes(&self, peer: Peer) -> u64 {
        self.peers.get(&peer).map_or(0, |presence| presence.byes)
    }
    pub(crate) fn holds(&mut self, peer: Peer) {
        self.peers.entry(peer).or_default().pulls += 1;
    }
    pub(crate) fn releases(&mut self, peer: Peer, now: Duration) {
        let presence = self.peers.entry(peer).or_default();
        presence.pulls = presence.pulls.saturating_sub(1);
        presence.asked = presence.asked.map(|_| now);
    }

    pub(crate) fn is_live(&self, peer: Peer, now: Duration) -> bool {
        self.peers.get(&peer).is_some_and(|presence| {
            presence.pulls > 0 || presence.asked.is_some_and(|asked| now.saturating_sub(asked) < LIVE_FOR)
        })
    }
    /// Whether another replica of the same volume is here.
    pub(crate) fn has_company(&self, peer: Peer, now: Duration) -> bool {
        let others = self.peers.keys().filter(|other| other.volume == peer.volume && other.replica != peer.replica);
        others.into_iter().any(|other| self.is_live(*other, now))
    }

    pub(crate) fn committed(&mut self, volume: VolumeId) {
        *self.news.entry(volume).or_default() += 1;
    }
    /// Another number than before: there was news.
    pub(crate) fn news(&self, volume: VolumeId) -> u64 {
        self.news.get(&volume).copied().unwrap_or(0)
    }

    pub(crate) fn stop(&mut self) {
        self.is_stopping = true;
    }
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping
    }
}
