//! The greeting of a client: the server compares the client's history with its own.
//!
//! # Guarantees
//! 1. A client that has seen history which is not here is told so, and how much both surely have:
//!    not more.
//! 2. A store that is a copy of one that went on gets an incarnation of its own. When a part of
//!    history was lost, it may not be known any more which stores are copies: then every replica
//!    gets a new one.

use crate::lease;
use crate::names::unique_device;
use crate::peer::Peer;
use crate::refusal::{Outcome, bad_request, refuse_stranger};
use crate::server::Server;
use crate::volume::volume_of;
use teal_meta::{ReadTransaction, ReplicaRow, VolumeRow};
use teal_proto::{EARLIER_MAX, Hello, HistoryVerdict, ServerReply, Welcome};
use teal_types::{BatchNo, CommitSeq, ServerIncarnation};

impl Server {
    pub(crate) fn answer_hello(&self, peer: Peer, hello: &Hello) -> Outcome<ServerReply> {
        let now = self.clock().civil_time();
        if hello.earlier.len() > EARLIER_MAX {
            return bad_request(format!(
                "{} earlier positions; at most {EARLIER_MAX} are allowed",
                hello.earlier.len()
            ));
        }
        // This need not be durable: a hello that is lost is said again.
        let (volume, told) = self.write_soon(peer.volume, |txn| {
            let (mut volume, mut replica) = (volume_of(txn)?, replica_of(txn, peer)?);
            let told = greeting_for(txn, &volume, &replica, hello)?;
            if !matches!(told, HistoryVerdict::Lost { .. }) {
                replica.position = hello.seen;
            } else if self.presence.lock().record_restored_history(peer.volume) {
                // Drawn, not counted: the database may be put back again, to before this.
                let before = volume.incarnation;
                while volume.incarnation == before || volume.incarnation <= ServerIncarnation::FIRST
                {
                    volume.incarnation = ServerIncarnation::new(self.draw_number());
                }
                txn.put_volume(&volume)?;
            }
            // The machine may have been renamed since its last hello.
            if teal_proto::is_device_name(&hello.device) {
                replica.device = unique_device(txn, &hello.device, Some(peer.replica))?;
            }
            replica.seen = now;
            txn.put_replica(peer.replica, &replica)?;
            Ok((volume, told))
        })?;
        // Comes after the transaction, so that history is open only to a client with a known past.
        self.presence.lock().record_greeting(peer);
        Ok(ServerReply::Welcome(self.welcome_for(peer, volume, told)))
    }

    fn welcome_for(&self, peer: Peer, volume: VolumeRow, told: HistoryVerdict) -> Welcome {
        Welcome {
            volume: peer.volume,
            label: volume.label,
            server_incarnation: volume.incarnation,
            replica: peer.replica,
            domain: self.domain_key(),
            head: volume.head,
            verdict: told,
        }
    }

    /// Returns what a client is told when it has just been enrolled, before it has said anything.
    ///
    /// # Errors
    /// As any request.
    pub fn welcome_enrolled(&self, peer: Peer) -> Result<Welcome, teal_proto::RefusalReply> {
        let volume = self.read(peer.volume, |txn| {
            replica_of(txn, peer)?;
            volume_of(txn)
        });
        Ok(self.welcome_for(peer, volume?, HistoryVerdict::Incarnate))
    }

    pub(crate) fn answer_incarnate(&self, peer: Peer) -> Outcome<ServerReply> {
        let draw = self.draw_number();
        self.write(peer.volume, |txn| {
            let mut replica = replica_of(txn, peer)?;
            let Some(incarnation) = replica.incarnation.next() else {
                return bad_request(
                    "this device has had too many lives; enrol it with a new token",
                );
            };
            let lease = lease::give_lease(txn, draw, peer.replica)?;
            replica.incarnation = incarnation;
            replica.last_batch = BatchNo::NONE;
            txn.put_replica(peer.replica, &replica)?;
            // Parts that earlier incarnations have staged are of no use any more.
            txn.drop_staged(peer.author(incarnation).batch(BatchNo::NONE))?;
            Ok(ServerReply::Incarnated { incarnation, lease })
        })
    }
}

pub(crate) fn replica_of(txn: &dyn ReadTransaction, peer: Peer) -> Outcome<ReplicaRow> {
    match txn.replica(peer.replica)? {
        Some(replica) if !replica.is_revoked => Ok(replica),
        _ => refuse_stranger(),
    }
}

/// Returns the newest commit that the client names and that is here with the same digest; the
/// beginning if there is none. The position that this database has noted of the device would not
/// do: it may come from a copy of the client's store.
fn newest_common_commit(
    txn: &dyn ReadTransaction,
    hello: &Hello,
) -> Outcome<(CommitSeq, [u8; 32])> {
    // Searched from the newest backwards, so that as much history as possible is common.
    for (seq, digest) in hello.earlier.iter().rev() {
        if txn
            .commit(*seq)?
            .is_some_and(|commit| commit.digest == *digest)
        {
            return Ok((*seq, *digest));
        }
    }
    Ok((CommitSeq::new(0), [0; 32]))
}

fn greeting_for(
    txn: &dyn ReadTransaction,
    volume: &VolumeRow,
    replica: &ReplicaRow,
    hello: &Hello,
) -> Outcome<HistoryVerdict> {
    // The beginning belongs to every history.
    let is_ours = hello.seen == CommitSeq::new(0)
        || (hello.seen <= volume.head
            && txn
                .commit(hello.seen)?
                .is_some_and(|commit| commit.digest == hello.seen_digest));
    Ok(if !is_ours {
        let (common, digest) = newest_common_commit(txn, hello)?;
        HistoryVerdict::Lost { common, digest }
    } else if hello.incarnation.is_none()
        || (volume.incarnation > ServerIncarnation::FIRST
            && hello.server_incarnation != volume.incarnation)
        || hello.incarnation != replica.incarnation
        || hello.last_batch < replica.last_batch
    {
        HistoryVerdict::Incarnate
    } else {
        HistoryVerdict::Known
    })
}
