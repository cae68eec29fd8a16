//! How much can still be promised: of the capacity, and of what can be written now.
//!
//! The sums here are the invariants of [`reclaim`](crate::store::reclaim) in figures.

use crate::object::objects::ObjectStore;
use crate::space::cost::SpacePurpose;
use crate::space::reserves::Reserves;

/// What may still be promised, in bytes; below nothing when more is taken than should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Headroom {
    /// Of the capacity: what can be kept.
    pub(crate) to_keep: i64,
    /// Of the free segments: what can be written before something is cleaned.
    pub(crate) to_write: i64,
}

impl Headroom {
    /// Returns what can be both written and kept.
    pub(crate) fn smaller_bound(self) -> i64 {
        self.to_keep.min(self.to_write)
    }
}

impl ObjectStore {
    /// Returns what is set aside for the cleaner and for giving back, now.
    pub(crate) fn cleaner_bytes(&self) -> u64 {
        let in_use = self.segments.lock().in_use();
        self.cleaner_bytes_with(in_use)
    }

    /// The same, if so many segments were in use.
    pub(crate) fn cleaner_bytes_with(&self, segments_in_use: u64) -> u64 {
        self.reserves
            .of_cleaner(segments_in_use, self.numbers.object_count())
    }

    /// Returns what may be promised to operations that grow the store.
    pub(crate) fn headroom(&self) -> Headroom {
        let batch = self.ledger.batch_bytes() as i64;
        let promised = self.ledger.promised_bytes() as i64;
        let fold = self.fold_bytes() as i64;
        let relocated = self.relocating_bytes() as i64;
        let segments = self.segments.lock();
        let kept = self.really_live(segments.live_bytes())
            + Reserves::of_objects(self.numbers.object_count());
        let capacity = self.geometry.capacity() - self.reserves.of_capacity();
        let unkept = capacity as i64 - kept as i64;
        // What the cleaner has in hand comes out of what is set aside for it, and comes back.
        let cleaner = self.cleaner_bytes_with(segments.in_use()) as i64;
        let lent = (self.ledger.lent_to_cleaner() as i64).min(cleaner / 2);
        let ready = segments.ready_bytes() as i64 - cleaner + lent;
        Headroom {
            to_keep: unkept - (batch - relocated) - promised - fold,
            to_write: ready - batch - promised - fold,
        }
    }

    /// Returns what may be promised for a purpose. Giving back and overwriting may use a part of
    /// the reserve of the capacity, but of what can be written now only giving back may, a quarter
    /// of the cleaner's: the rest is the way out when all is full.
    pub(crate) fn headroom_for(&self, purpose: SpacePurpose) -> Headroom {
        let growing = self.headroom();
        let reserve = self.reserves.of_capacity() as i64;
        let (of_reserve, of_cleaner) = match purpose {
            SpacePurpose::Grows => (0, 0),
            SpacePurpose::Replaces => (reserve / 4, 0),
            SpacePurpose::Frees => (reserve / 2, self.cleaner_bytes() as i64 * 3 / 4),
        };
        Headroom {
            to_keep: growing.to_keep + of_reserve,
            to_write: growing.to_write + of_cleaner,
        }
    }

    /// Returns the bytes that are in the open batch and only change their place.
    pub(crate) fn relocating_bytes(&self) -> u64 {
        self.ledger.relocated_bytes() + self.reader.shared.moving_bytes()
    }

    /// Sets the budget of promises from the real room.
    pub(crate) fn refresh_budget(&self) {
        let budget = self.headroom().smaller_bound();
        // From here on it is counted.
        self.reader.shared.take_growth();
        self.ledger.set_budget(budget);
    }
}
