//! Hands out the operations of a run one by one.
//!
//! # Guarantees
//! 1. No more operations are handed out than there are.
//! 2. The quota is met when the last operation is in the figures, not before: its thread may be
//!    kept from the processor in between.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(super) struct OperationQuota {
    /// Operations to be handed out.
    left: AtomicU64,
    /// Operations that are not in the figures yet.
    missing: AtomicU64,
}

impl OperationQuota {
    pub(super) fn new(operations: u64) -> Self {
        Self {
            left: AtomicU64::new(operations),
            missing: AtomicU64::new(operations),
        }
    }

    /// Takes one operation, if one is left. It is to be recorded.
    pub(super) fn take_one(&self) -> bool {
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            })
            .is_ok()
    }

    /// Notes that a taken operation is in the figures. A thread that sees the quota met sees the
    /// figures too.
    pub(super) fn note_recorded(&self) {
        // Release pairs with the acquire of [`Self::is_met`]: the figures are visible with the
        // count.
        self.missing.fetch_sub(1, Ordering::Release);
    }

    pub(super) fn is_met(&self) -> bool {
        self.missing.load(Ordering::Acquire) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_met_when_the_last_operation_is_recorded_not_when_it_is_taken() {
        let quota = OperationQuota::new(2);
        assert!(quota.take_one() && quota.take_one() && !quota.take_one());
        quota.note_recorded();
        assert!(!quota.is_met(), "one is on its way");
        quota.note_recorded();
        assert!(quota.is_met() && !quota.take_one());
    }
}
