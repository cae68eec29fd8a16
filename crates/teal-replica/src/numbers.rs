//! Changing the replica's identity, and giving numbers to new objects.

use super::identity::BYTES_MAX;
use super::{Replica, ReplicaIdentity};
use teal_log::{Cost, LockedObjects, StoreError};
use teal_types::{Incarnation, LeaseNo, ObjectNo, ReplicaNo, VolumeId};

impl Replica {
    /// Changes the replica's identity, in a batch of its own.
    pub(crate) fn update_identity(
        &self,
        change: impl FnOnce(&mut ReplicaIdentity),
    ) -> Result<ReplicaIdentity, StoreError> {
        // The operation begins before the lock: it may wait for a commit, which needs the identity.
        let cost = Cost::note().with_note(BYTES_MAX).freeing();
        let op = self.begin_operation(cost)?;
        self.own_identity().change(&op, change)
    }

    /// Begins another life of this replica of a volume, in a batch of its own: an incarnation and
    /// the lease of its numbers.
    pub(crate) fn begin_life(
        &self,
        replica: (VolumeId, ReplicaNo),
        life: (Incarnation, LeaseNo),
    ) -> Result<(), StoreError> {
        let cost = Cost::note().with_note(BYTES_MAX).freeing();
        let op = self.begin_operation(cost)?;
        self.own_identity().begin_life(&op, replica, life)
    }

    /// Lets a volume that lived alone go on with its own numbers before the server has given it a
    /// lease: they are the first lease.
    pub(crate) fn number_standalone(&self) {
        self.own_identity().number_from(self.store().next_number());
    }

    /// Returns the number of a new object, under the operation that creates it.
    pub(crate) fn next_number(&self, under: &LockedObjects<'_>) -> Result<ObjectNo, StoreError> {
        self.own_identity().next_number(under)
    }
}
