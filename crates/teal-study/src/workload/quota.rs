//! How many operations a run is to have, handed out one by one.
//!
//! # Guarantees
//! 1. No more are handed out than there are.
//! 2. The quota is met when the last one is in the figures, not before: whoever has it may be kept
//!    from the processor in between.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(super) struct OperationQuota {
    /// To be handed out.
    left: AtomicU64,
    /// Not in the figures yet.
    missing: AtomicU64,
}

impl OperationQuota {
    pub(super) fn new(operations: u64) -> Self {
        Self {
            left: AtomicU64::new(operations),
            missing: AtomicU64::new(operations),
        }
    }

    /// One operation, if there is one left. It is to be recorded.
    pub(super) fn take_one(&self) -> bool {
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            })
            .is_ok()
    }

    /// One that was taken is in the figures; whoever sees the quota met sees them.
    pub(super) fn note_recorded(&self) {
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
