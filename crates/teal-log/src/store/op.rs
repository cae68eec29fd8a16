//! Operations: everything that changes the store goes through [`Store::begin`] and [`Op::lock`].
//!
//! # Guarantees
//! 1. *Atomic*: all changes made under one [`Op`] are in one batch.
//! 2. *Promised*: an operation that began has the space it may need; it does not fail later for
//!    lack of it.
//! 3. Objects are locked in the order of their numbers, whatever order they are asked for.

use crate::error::StoreError;
use crate::object::objects::ObjectStore;
use crate::space::cost::Cost;
use crate::space::ledger::SpaceCharge;
use crate::store::handle::Store;
use crate::store::locked::LockedObjects;
use parking_lot::RwLockReadGuard;
use teal_types::ObjectNo;

/// One operation in progress; joins the open batch.
pub struct StoreOperation<'s> {
    objects: &'s ObjectStore,
    /// Promised until it is done; then what it has really added counts. `None`: the cleaner's,
    /// whose space is set aside.
    cost: Option<Cost>,
    charge: SpaceCharge,
    _in_batch: RwLockReadGuard<'s, ()>,
}

impl Drop for StoreOperation<'_> {
    fn drop(&mut self) {
        if let Some(cost) = &self.cost {
            self.objects.ledger.end_operation(cost, &self.charge);
        }
    }
}

impl Store {
    /// Starts an operation that may take `cost` in the log. May commit, checkpoint or clean first.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] when that cannot be promised, [`StoreError::ReadOnly`],
    /// [`StoreError::Poisoned`].
    pub fn begin(&self, cost: Cost) -> Result<StoreOperation<'_>, StoreError> {
        self.log.durability.check_writable()?;
        self.promise_space(cost)?;
        Ok(self.join_batch(Some(cost)))
    }

    /// Starts an operation of the cleaner, whose space is set aside.
    pub(crate) fn begin_cleaning(&self) -> StoreOperation<'_> {
        self.join_batch(None)
    }

    fn join_batch(&self, cost: Option<Cost>) -> StoreOperation<'_> {
        let objects = self.objects();
        StoreOperation {
            objects,
            cost,
            charge: SpaceCharge::default(),
            _in_batch: objects.open.join(),
        }
    }
}

impl StoreOperation<'_> {
    pub(crate) fn objects(&self) -> &ObjectStore {
        self.objects
    }

    pub(crate) fn space_charge(&self) -> &SpaceCharge {
        &self.charge
    }

    /// Locks these objects, each once.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for one that does not exist, or what reading it met.
    pub fn lock(&self, nos: &[ObjectNo]) -> Result<LockedObjects<'_>, StoreError> {
        LockedObjects::new(self.objects, &self.charge, nos)
    }
}
