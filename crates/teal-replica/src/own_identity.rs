//! The identity of this replica in memory, as its note says, and the numbers it gives to new
//! objects.
//!
//! # Invariants
//! 1. *Noted first*: a change is in the note, in the batch of the operation that makes it, before
//!    another thread can see it.
//! 2. *Once*: no number is given twice, not after a crash either: each is below what the note says
//!    is set aside, and inside the lease.
//! 3. *A life and its numbers change together*: an object made meanwhile has a number of either
//!    life, and none beyond the lease.
//! 4. The position that is read without the lock is the one of the note.
//!
//! # Locks
//! `identity`, then `next`; both are leaves, under which a note is changed and nothing is read.

use super::identity::{IDENTITY, ReplicaIdentity};
use crate::seeded::{Bug, bug};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use teal_log::{LockedObjects, StoreError, StoreOperation};
use teal_types::{BatchNo, CommitSeq, Incarnation, LEASE, LeaseNo, ObjectNo, ReplicaNo, VolumeId};

/// Numbers are set aside in strides: after a crash some are never used.
const STRIDE: u64 = 1024;

/// See the module.
#[derive(Debug)]
pub(crate) struct OwnIdentity {
    identity: Mutex<ReplicaIdentity>,
    /// The next object number.
    next: Mutex<u64>,
    /// The commit up to which history is applied; a copy of what `identity` has.
    seen: AtomicU64,
}

impl OwnIdentity {
    /// Returns what a store that was just opened says of itself.
    pub(crate) fn new(identity: ReplicaIdentity) -> Self {
        let first = identity.lease.object_numbers().start;
        let next = if bug(Bug::NumbersReused) {
            first
        } else {
            identity.reserved.max(first)
        };
        Self {
            identity: Mutex::new(identity),
            next: Mutex::new(next),
            seen: AtomicU64::new(identity.seen.get()),
        }
    }

    /// Returns the present identity.
    pub(crate) fn get(&self) -> ReplicaIdentity {
        *self.identity.lock()
    }

    /// Returns the commit up to which history is applied.
    pub(crate) fn seen(&self) -> CommitSeq {
        CommitSeq::new(self.seen.load(Ordering::Acquire))
    }

    /// Changes the identity, in the batch of an operation. With another incarnation it begins to
    /// give out the numbers of its lease. Returns the new identity.
    ///
    /// # Errors
    /// Errors of changing the note; nothing has changed then.
    pub(crate) fn change(
        &self,
        op: &StoreOperation<'_>,
        change: impl FnOnce(&mut ReplicaIdentity),
    ) -> Result<ReplicaIdentity, StoreError> {
        let mut identity = self.identity.lock();
        let mut changed = *identity;
        change(&mut changed);
        if changed == *identity {
            return Ok(changed);
        }
        changed.store_in(op)?;
        *identity = changed;
        self.seen.store(changed.seen.get(), Ordering::Release);
        Ok(changed)
    }

    /// Begins another life, in the batch of an operation: batches are counted from the beginning,
    /// and numbers given from that of the lease on. A server that was restored may give an
    /// incarnation or a lease that it has given before.
    ///
    /// # Errors
    /// Errors of changing the note; nothing has changed then.
    pub(crate) fn begin_life(
        &self,
        op: &StoreOperation<'_>,
        (volume, replica): (VolumeId, ReplicaNo),
        (incarnation, lease): (Incarnation, LeaseNo),
    ) -> Result<(), StoreError> {
        let mut identity = self.identity.lock();
        let mut next = self.next.lock();
        let first = lease.object_numbers().start;
        let changed = ReplicaIdentity {
            volume,
            replica,
            incarnation,
            lease,
            reserved: first,
            batch: BatchNo::NONE,
            parts: 0,
            ..*identity
        };
        changed.store_in(op)?;
        (*identity, *next) = (changed, first);
        Ok(())
    }

    /// Writes the note as it is, in the batch of an operation, for a store that had none.
    ///
    /// # Errors
    /// Errors of changing the note.
    pub(crate) fn keep(&self, op: &StoreOperation<'_>) -> Result<(), StoreError> {
        self.identity.lock().store_in(op)
    }

    /// Lets a volume that lived alone go on with the numbers of its store, before the server has
    /// given any: they are the first lease.
    pub(crate) fn number_from(&self, store_next: u64) {
        if self.identity.lock().incarnation.is_none() {
            let mut next = self.next.lock();
            *next = store_next.max(*next);
        }
    }

    /// Takes the number of a new object, under the operation that makes it.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] when all numbers of this life are used, or what changing the note
    /// met.
    pub(crate) fn next_number(&self, under: &LockedObjects<'_>) -> Result<ObjectNo, StoreError> {
        let mut identity = self.identity.lock();
        let mut next = self.next.lock();
        if *next >= identity.lease.object_numbers().end {
            log::error!("all {LEASE} object numbers of this incarnation are used");
            return Err(StoreError::NoSpace);
        }
        if *next >= identity.reserved {
            let changed = ReplicaIdentity {
                reserved: *next + STRIDE,
                ..*identity
            };
            under.set_note(IDENTITY, Some(&changed.encode()))?;
            *identity = changed;
        }
        *next += 1;
        Ok(ObjectNo::new(*next - 1))
    }

    /// Returns whether a number of this life's lease was given to an object.
    pub(crate) fn is_given(&self, no: ObjectNo) -> bool {
        no.get() < *self.next.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::BYTES_MAX;
    use std::sync::Arc;
    use teal_env::{Disk, MemDisk, SystemClock, SystemEntropy};
    use teal_log::{Cost, MkfsOptions, OpenOptions, Store};

    fn store() -> Arc<Store> {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(32 << 11));
        let options = MkfsOptions::default();
        let clock = Arc::new(SystemClock);
        Store::mkfs(Arc::clone(&disk), clock, &SystemEntropy, &options).unwrap();
        let opened = Store::open(disk, Arc::new(SystemClock), OpenOptions::default());
        opened.unwrap().0
    }

    fn change(
        own: &OwnIdentity,
        store: &Store,
        change: impl FnOnce(&mut ReplicaIdentity),
    ) -> Result<ReplicaIdentity, StoreError> {
        let op = store.begin(Cost::note().with_note(BYTES_MAX)).unwrap();
        own.change(&op, change)
    }

    fn begin_life(own: &OwnIdentity, store: &Store, life: (u32, u32)) {
        let op = store.begin(Cost::note().with_note(BYTES_MAX)).unwrap();
        let replica = (VolumeId::new(1), ReplicaNo::new(2));
        let life = (Incarnation::new(life.0), LeaseNo::new(life.1));
        own.begin_life(&op, replica, life).unwrap();
    }

    /// Returns the number that an operation of its own takes.
    fn number(own: &OwnIdentity, store: &Store) -> Result<ObjectNo, StoreError> {
        let op = store.begin(Cost::create().with_note(BYTES_MAX)).unwrap();
        let locked = op.lock(&[]).unwrap();
        own.next_number(&locked)
    }

    #[test]
    fn the_note_says_what_memory_says() {
        let (own, store) = (OwnIdentity::new(ReplicaIdentity::default()), store());
        let changed = change(&own, &store, |identity| {
            identity.set_position(CommitSeq::new(7), [7; 32]);
        });
        assert_eq!(changed.unwrap(), own.get());
        assert_eq!(own.seen(), CommitSeq::new(7));
        assert_eq!(ReplicaIdentity::load(&store).unwrap(), Some(own.get()));
    }

    #[test]
    fn no_number_is_given_twice_not_after_a_crash_either() {
        let (own, store) = (OwnIdentity::new(ReplicaIdentity::default()), store());
        own.number_from(store.next_number());
        let given: Vec<ObjectNo> = (0..STRIDE + 3)
            .map(|_| number(&own, &store).unwrap())
            .collect();
        assert!(given.is_sorted_by(|one, next| one < next));
        assert!(given.iter().all(|no| own.is_given(*no)));
        let again = OwnIdentity::new(ReplicaIdentity::load(&store).unwrap().unwrap());
        let next = number(&again, &store).unwrap();
        assert!(given.iter().all(|no| *no < next), "{next}");
    }

    #[test]
    fn another_life_gives_numbers_of_its_own_lease_until_it_ends() {
        let (own, store) = (OwnIdentity::new(ReplicaIdentity::default()), store());
        begin_life(&own, &store, (3, 5));
        own.number_from(7);
        assert_eq!(number(&own, &store).unwrap().get(), 5 * LEASE);
        // A restored server gives the incarnation that it has forgotten to another, or again.
        begin_life(&own, &store, (3, 9));
        assert_eq!(number(&own, &store).unwrap().get(), 9 * LEASE);
        begin_life(&own, &store, (3, 9));
        assert_eq!(number(&own, &store).unwrap().get(), 9 * LEASE);
        assert_eq!(ReplicaIdentity::load(&store).unwrap(), Some(own.get()));
        let end = own.get().lease.object_numbers().end;
        *own.next.lock() = end - 1;
        assert_eq!(number(&own, &store).unwrap().get(), end - 1);
        assert!(matches!(number(&own, &store), Err(StoreError::NoSpace)));
    }
}
