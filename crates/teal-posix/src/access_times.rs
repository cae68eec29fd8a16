//! Access times that only memory holds. They reach the store with the next change of their object,
//! or when the file system ends.
//!
//! # Guarantees
//! 1. *Silent*: reading never causes a commit, nor does what is noted here.
//! 2. *Lazy*: a clean end writes the access times of the objects that were read last, as long as
//!    memory holds them. After a crash they are as they were written last.
//! 3. *Bounded*: at most [`LISTED_MAX`] objects are listed.

use parking_lot::Mutex;
use std::collections::HashSet;
use teal_types::ObjectNo;

/// Most objects whose access times are written in the end.
const LISTED_MAX: usize = 32768;

/// The objects whose access times are newer in memory. The lock guards the list, and nothing is
/// done under it.
#[derive(Debug, Default)]
pub(crate) struct UnwrittenAccessTimes(Mutex<Generations>);

/// Objects in two generations: when the newer one is full, it becomes the older one.
#[derive(Debug, Default)]
struct Generations {
    newer: HashSet<ObjectNo>,
    older: HashSet<ObjectNo>,
}

impl UnwrittenAccessTimes {
    /// Notes that an object was read.
    pub(crate) fn note(&self, no: ObjectNo) {
        let mut listed = self.0.lock();
        if listed.newer.len() >= LISTED_MAX / 2 {
            listed.older = std::mem::take(&mut listed.newer);
        }
        listed.newer.insert(no);
    }

    /// Takes all of them out, in the order of their numbers.
    pub(crate) fn take(&self) -> Vec<ObjectNo> {
        let Generations { newer, older } = std::mem::take(&mut *self.0.lock());
        let mut all: Vec<_> = newer.union(&older).copied().collect();
        debug_assert!(all.len() <= LISTED_MAX, "two generations are bounded");
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_kept() {
        let times = UnwrittenAccessTimes::default();
        let at = |n: usize| ObjectNo::new(n as u64);
        for n in 0..4 * LISTED_MAX {
            times.note(at(n));
            assert!(times.0.lock().newer.len() <= LISTED_MAX / 2);
        }
        times.note(at(4 * LISTED_MAX - 7));
        let all = times.take();
        // One full generation at least, and two at most.
        assert!(all.len() >= LISTED_MAX / 2 && all.len() <= LISTED_MAX);
        assert!(all.contains(&at(4 * LISTED_MAX - 1)));
        assert!(all.is_sorted());
        assert_eq!(times.take(), []);
    }
}
