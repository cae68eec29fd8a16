//! Which objects were used since the search for what can make way last came by.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashSet;
use teal_types::ObjectNo;

/// The most objects whose use is remembered.
const USED_MAX: usize = 100_000;

/// Where the search goes on, and what was used since. `used` is a leaf lock; `hand` is held for a
/// whole search, which another one does not wait for.
#[derive(Debug, Default)]
pub(crate) struct EvictionClock {
    hand: Mutex<u64>,
    used: Mutex<HashSet<ObjectNo>>,
}

impl EvictionClock {
    /// Notes that an object is used.
    pub(crate) fn note_used(&self, no: ObjectNo) {
        let mut used = self.used.lock();
        if used.len() < USED_MAX {
            used.insert(no);
        }
    }

    /// Returns whether an object was used since this was asked last.
    pub(crate) fn take_used(&self, no: ObjectNo) -> bool {
        self.used.lock().remove(&no)
    }

    /// Begins a search, at the number of an object; `None` while another one is under way.
    pub(crate) fn try_search(&self) -> Option<MutexGuard<'_, u64>> {
        self.hand.try_lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_is_passed_over_once_and_one_search_goes_on_at_a_time() {
        let (recency, no) = (EvictionClock::default(), ObjectNo::new(70));
        recency.note_used(no);
        assert!(recency.take_used(no) && !recency.take_used(no));
        *recency.try_search().unwrap() = 5;
        let hand = recency.try_search().unwrap();
        assert!(*hand == 5 && recency.try_search().is_none());
    }
}
