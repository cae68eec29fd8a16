//! The rows of a volume and of its replicas that nearly every request needs.

use crate::peer::Peer;
use crate::refusal::{Outcome, refuse};
use teal_meta::{ReadTransaction, ReplicaRow, VolumeRow};
use teal_proto::RefusalCode;
use teal_types::{BatchId, CommitSeq, Incarnation};

/// Returns the row of the transaction's volume; a refusal if the volume doesn't exist.
pub(crate) fn volume_of(txn: &dyn ReadTransaction) -> Outcome<VolumeRow> {
    match txn.volume()? {
        Some(volume) => Ok(volume),
        None => refuse(RefusalCode::Denied, "there is no such volume here"),
    }
}

/// Returns the row of `peer`; a refusal unless `incarnation` is its present one.
pub(crate) fn current_replica(
    txn: &dyn ReadTransaction,
    peer: Peer,
    incarnation: Incarnation,
) -> Outcome<ReplicaRow> {
    let Some(replica) = txn.replica(peer.replica)? else {
        return refuse(
            RefusalCode::Denied,
            "this device is not enrolled; enrol it again",
        );
    };
    // Number 0 means that a replica has no incarnation yet.
    if incarnation != replica.incarnation || incarnation.is_none() {
        let words = format!(
            "incarnation {incarnation} of this device is over: its store is a copy of one that \
             went on; it gets a new one"
        );
        return refuse(RefusalCode::Cloned, words);
    }
    Ok(replica)
}

/// Returns the digest of a history that is one commit longer than the history with the digest
/// `previous`.
pub(crate) fn chained_digest(
    previous: &[u8; 32],
    seq: CommitSeq,
    batch: BatchId,
    batch_digest: &[u8; 32],
) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(previous);
    hasher.update(&seq.get().to_le_bytes());
    hasher.update(&batch.replica.get().to_le_bytes());
    hasher.update(&batch.incarnation.get().to_le_bytes());
    hasher.update(&batch.batch.get().to_le_bytes());
    hasher.update(batch_digest);
    *hasher.finalize().as_bytes()
}
