//! Leases: ranges of object numbers, each of which belongs to one replica.
//!
//! # Guarantees
//! 1. No lease is given twice by one server. If the database was put back from an older copy, a
//!    lease that was given after that copy is given again with a probability of one in four
//!    million: leases are drawn at random, not counted.
//! 2. The numbers that the server gives itself are of a lease drawn since it was opened.

use crate::refusal::{Outcome, bad_request};
use teal_meta::{MetaError, MetaStore, VolumeRow, WriteTransaction};
use teal_types::{LEASE, LeaseNo, REPLICATED_LIMIT, ReplicaNo};

/// The owner of the server's own numbers.
pub(crate) const SERVER_OWNER: ReplicaNo = ReplicaNo::new(0);
/// The number of leases of a volume.
const LEASES: u32 = (REPLICATED_LIMIT / LEASE) as u32;

/// Ends the server's own lease of each volume: a server that was restored from an older copy may
/// have given the rest of its numbers away.
pub(crate) fn abandon_own_leases(meta: &dyn MetaStore) -> Result<(), MetaError> {
    for volume in meta.volumes()? {
        teal_meta::write_soon(meta, volume, |txn| {
            if let Some(row) = txn.volume()?.filter(|row| row.own_next < row.own_end) {
                txn.put_volume(&VolumeRow {
                    own_next: row.own_end,
                    ..row
                })?;
            }
            Ok::<_, MetaError>(())
        })?;
    }
    Ok(())
}

/// Gives `owner` the first free lease, counted from `draw`, and returns it.
pub(crate) fn give_lease(
    txn: &mut dyn WriteTransaction,
    draw: u32,
    owner: ReplicaNo,
) -> Outcome<LeaseNo> {
    for step in 0..LEASES {
        let lease = LeaseNo::new(draw.wrapping_add(step) % LEASES);
        if lease != LeaseNo::FIRST && txn.lease(lease)?.is_none() {
            txn.put_lease(lease, owner)?;
            debug_assert!(
                lease.object_numbers().end <= REPLICATED_LIMIT,
                "a lease lies within the volume's numbers"
            );
            return Ok(lease);
        }
    }
    bad_request("all object numbers of this volume have been given away; copy it into a new one")
}
