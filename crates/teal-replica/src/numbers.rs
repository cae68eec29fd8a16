//! Changing who this replica is, and giving numbers to new objects.

use super::identity::{BYTES_MAX, IDENTITY};
use super::{Identity, Replica};
use std::sync::atomic::Ordering;
use teal_log::{Cost, Locked, StoreError};
use teal_types::{LEASE, ObjectNo};

/// Numbers are set aside in strides: after a crash some are never used.
const STRIDE: u64 = 1024;

impl Replica {
    /// Changes who this replica is, in a batch of its own.
    pub(crate) fn identify(
        &self,
        change: impl FnOnce(&mut Identity),
    ) -> Result<Identity, StoreError> {
        let cost = Cost::note().with_note(BYTES_MAX).freeing();
        let op = self.begin(cost)?;
        let mut identity = self.identity.lock();
        let mut changed = *identity;
        change(&mut changed);
        if changed != *identity {
            changed.keep(&op)?;
            *identity = changed;
            self.seen.store(changed.seen.get(), Ordering::Release);
        }
        Ok(changed)
    }

    /// Before the server has given it numbers, a volume that lived alone goes on with its own: they
    /// are the first lease.
    pub(crate) fn number_alone(&self) {
        if self.identity.lock().incarnation.is_none() {
            let mut next = self.next.lock();
            *next = self.store().next_number().max(*next);
        }
    }

    /// The number of a new object, under the operation that makes it.
    pub(crate) fn next_number(&self, under: &Locked<'_>) -> Result<ObjectNo, StoreError> {
        let mut identity = self.identity.lock();
        let mut next = self.next.lock();
        if *next >= identity.lease_end() {
            log::error!("all {LEASE} object numbers of this incarnation are used");
            return Err(StoreError::NoSpace);
        }
        if *next >= identity.reserved {
            let changed = Identity {
                reserved: *next + STRIDE,
                ..*identity
            };
            under.set_note(IDENTITY, Some(&changed.encode()))?;
            *identity = changed;
        }
        *next += 1;
        Ok(ObjectNo::new(*next - 1))
    }
}
