//! The headroom of the store: the bytes that can still be promised, of the capacity and of the free
//! segments.
//!
//! The sums here are the invariants of [`reclaim`](crate::store::reclaim) in figures.

use crate::object::objects::ObjectStore;
use crate::space::cost::SpacePurpose;
use crate::space::reserves::Reserves;

/// The bytes that may still be promised. A sum is negative when more is taken than should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Headroom {
    /// The bytes that can be kept, of the capacity.
    pub(crate) to_keep: i64,
    /// The bytes that can be written before something is cleaned, of the free segments.
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

    /// Returns the bytes set aside for the cleaner, if so many segments were in use.
    pub(crate) fn cleaner_bytes_with(&self, segments_in_use: u64) -> u64 {
        self.reserves
            .of_cleaner(segments_in_use, self.numbers.object_count())
    }

    /// Returns what may be promised to operations that grow the store.
    pub(crate) fn headroom(&self) -> Headroom {
        // One lock at a time: the sums are not of one moment, which is good enough for a budget.
        let batch = self.ledger.batch_bytes() as i64;
        let promised = self.ledger.promised_bytes() as i64;
        let fold = self.fold_bytes() as i64;
        let relocated = self.relocating_bytes() as i64;
        // Room that files have been promised is neither kept nor written by others.
        let set_aside = self.ledger.set_aside_bytes() as i64;
        let segments = self.segments.lock();
        let kept = self.really_live(segments.live_bytes())
            + Reserves::of_objects(self.numbers.object_count());
        let capacity = self.geometry.capacity() - self.reserves.of_capacity();
        let unkept = capacity as i64 - kept as i64;
        // The bytes that the cleaner uses come out of its reserve, and return to it.
        let cleaner = self.cleaner_bytes_with(segments.in_use()) as i64;
        // At most half: the cleaner needs the rest for later rounds.
        let lent = (self.ledger.lent_to_cleaner() as i64).min(cleaner / 2);
        let ready = segments.ready_bytes() as i64 - cleaner + lent;
        Headroom {
            to_keep: unkept - (batch - relocated) - promised - fold - set_aside,
            to_write: ready - batch - promised - fold - set_aside,
        }
    }

    /// Returns what may be promised for a purpose. Giving back and overwriting may use a part of
    /// the reserve of the capacity, but of what can be written now only giving back may, all but a
    /// quarter of the cleaner's, and writing where room is set aside, half of it: the rest is the
    /// way out when all is full.
    pub(crate) fn headroom_for(&self, purpose: SpacePurpose) -> Headroom {
        let growing = self.headroom();
        let reserve = self.reserves.of_capacity() as i64;
        let (of_reserve, of_cleaner) = match purpose {
            SpacePurpose::Grows => (0, 0),
            SpacePurpose::Replaces => (reserve / 4, 0),
            // Operations that give back go deep into the reserves, because they fill them again.
            SpacePurpose::Frees => (reserve / 2, self.cleaner_bytes() as i64 * 3 / 4),
            // The block itself has its room; what leads to it is written anew, and the old dies.
            SpacePurpose::Preallocated => (reserve / 4, self.cleaner_bytes() as i64 / 2),
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
