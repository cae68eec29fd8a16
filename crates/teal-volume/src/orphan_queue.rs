//! The orphans that are not referred to and are still there.

use crate::ranked::{LockRank, RankedMutex, RankedMutexGuard};
use parking_lot::Mutex;
use std::collections::VecDeque;
use teal_types::ObjectNo;

/// An orphan that is being given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Orphan {
    pub(crate) no: ObjectNo,
    /// Everything before this offset has been given back.
    pub(crate) from: u64,
}

/// Orphans that are not referred to and are still there.
#[derive(Debug)]
pub(crate) struct OrphanQueue {
    /// The oldest first. This is a leaf lock.
    waiting: Mutex<VecDeque<Orphan>>,
    /// Is held for a step of one of them, with its I/O: an operation that needs the space waits for
    /// the step.
    reclaiming: RankedMutex<()>,
}

impl Default for OrphanQueue {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            reclaiming: RankedMutex::new(LockRank::Reclaim, ()),
        }
    }
}

impl OrphanQueue {
    /// Begins a step of giving back: one is taken at a time.
    pub(crate) fn begin_step(&self) -> RankedMutexGuard<'_, ()> {
        self.reclaiming.lock()
    }

    /// Adds an orphan behind the others.
    pub(crate) fn push(&self, orphan: Orphan) {
        self.waiting.lock().push_back(orphan);
    }

    /// Takes the oldest orphan.
    pub(crate) fn pop(&self) -> Option<Orphan> {
        self.waiting.lock().pop_front()
    }

    /// Returns whether no orphan waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_orphan_is_given_back_first() {
        let queue = OrphanQueue::default();
        let orphans = [3, 1, 2].map(|no| Orphan {
            no: ObjectNo::new(no),
            from: 0,
        });
        orphans.into_iter().for_each(|orphan| queue.push(orphan));
        let given: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert!(given == orphans && queue.is_empty());
    }
}
