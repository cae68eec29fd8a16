//! How far the log is durable, and whether it still takes changes.
//!
//! # Invariants
//! 1. `durable` is never above `open`: both only grow, and `durable` catches up when a barrier has
//!    covered all that was written.
//! 2. Once poisoned, a store takes no change until it is opened again.
//!
//! # Locks
//! Both numbers are changed by the holder of the committer's lock only; anybody may read them.

use crate::error::StoreError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// See the module.
#[derive(Debug)]
pub(crate) struct Durability {
    is_read_only: bool,
    /// Number of the batch that operations join now.
    open: AtomicU64,
    /// Number of the batch that was open when all before became durable.
    durable: AtomicU64,
    is_poisoned: AtomicBool,
}

impl Durability {
    pub(crate) fn new(is_read_only: bool) -> Self {
        Self {
            is_read_only,
            open: AtomicU64::new(1),
            durable: AtomicU64::new(1),
            is_poisoned: AtomicBool::new(false),
        }
    }

    /// Returns the number of the batch that operations join now.
    pub(crate) fn open_batch(&self) -> u64 {
        self.open.load(Ordering::Acquire)
    }

    /// Returns the number of the first batch that may not be durable.
    pub(crate) fn durable_batch(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Returns whether a batch is written and not yet durable.
    pub(crate) fn is_behind(&self) -> bool {
        self.durable_batch() < self.open_batch()
    }

    /// Notes that the open batch was sealed: operations join the next one.
    pub(crate) fn batch_sealed(&self) {
        self.open.fetch_add(1, Ordering::Release);
    }

    /// Notes that a barrier has covered everything that was sealed.
    pub(crate) fn all_is_durable(&self) {
        let open = self.open_batch();
        assert!(self.durable_batch() <= open, "what is durable was sealed");
        self.durable.store(open, Ordering::Release);
    }

    /// Ends all changes after a failure.
    pub(crate) fn poison(&self, why: &StoreError) {
        log::error!("the store stops taking changes: {why}");
        self.end_changes();
    }

    /// Ends all changes: the store is closed, or has failed.
    pub(crate) fn end_changes(&self) {
        self.is_poisoned.store(true, Ordering::Release);
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.is_poisoned.load(Ordering::Acquire)
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Checks whether changes are taken.
    ///
    /// # Errors
    /// [`StoreError::ReadOnly`] or [`StoreError::Poisoned`].
    pub(crate) fn check_writable(&self) -> Result<(), StoreError> {
        if self.is_read_only {
            Err(StoreError::ReadOnly)
        } else if self.is_poisoned() {
            Err(StoreError::Poisoned)
        } else {
            Ok(())
        }
    }
}
