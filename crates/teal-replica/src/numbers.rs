//! Changing who this replica is, and giving numbers to new objects.

use super::identity::BYTES_MAX;
use super::{Replica, ReplicaIdentity};
use teal_log::{Cost, LockedObjects, StoreError};
use teal_types::{Incarnation, ObjectNo, ReplicaNo};

impl Replica {
    /// Changes who this replica is, in a batch of its own.
    pub(crate) fn update_identity(
        &self,
        change: impl FnOnce(&mut ReplicaIdentity),
    ) -> Result<ReplicaIdentity, StoreError> {
        let cost = Cost::note().with_note(BYTES_MAX).freeing();
        let op = self.begin_operation(cost)?;
        self.own_identity().change(&op, change)
    }

    /// Begins another life of this replica of a volume, in a batch of its own: an incarnation and
    /// the lease of its numbers.
    pub(crate) fn begin_life(
        &self,
        replica: (u32, ReplicaNo),
        life: (Incarnation, u32),
    ) -> Result<(), StoreError> {
        let cost = Cost::note().with_note(BYTES_MAX).freeing();
        let op = self.begin_operation(cost)?;
        self.own_identity().begin_life(&op, replica, life)
    }

    /// Before the server has given it numbers, a volume that lived alone goes on with its own: they
    /// are the first lease.
    pub(crate) fn number_standalone(&self) {
        self.own_identity().number_from(self.store().next_number());
    }

    /// The number of a new object, under the operation that makes it.
    pub(crate) fn next_number(&self, under: &LockedObjects<'_>) -> Result<ObjectNo, StoreError> {
        self.own_identity().next_number(under)
    }
}
