//! Access times that only memory holds. They reach the store with the next change of their object,
//! or when the file system ends.
//!
//! # Guarantees
//! 1. *Silent*: reading never causes a commit, nor does what is noted here.
//! 2. *Lazy*: a clean end writes the access times of the objects that were read last, as long as
//!    memory holds them. After a crash they are as they were written last.
//! 3. *Bounded*: at most [`LISTED_MAX`] objects are listed.

use crate::FileSystem;
use parking_lot::Mutex;
use std::collections::HashSet;
use teal_log::Cost;
use teal_types::ObjectNo;
use teal_volume::FsError;

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
    fn take(&self) -> Vec<ObjectNo> {
        let Generations { newer, older } = std::mem::take(&mut *self.0.lock());
        let mut all: Vec<_> = newer.union(&older).copied().collect();
        debug_assert!(all.len() <= LISTED_MAX, "two generations are bounded");
        all.sort_unstable();
        all
    }
}

impl FileSystem {
    /// Writes the access times that only memory holds. One that cannot be written is left.
    pub(crate) fn write_access_times(&self) {
        for no in self.access_times.take() {
            // What memory has forgotten is not read for this.
            if self.store().is_in_memory(no)
                && let Err(e) = self.write_access_time(no)
            {
                log::debug!("the access time of object {no} is not written: {e}");
            }
        }
    }

    fn write_access_time(&self, no: ObjectNo) -> Result<(), FsError> {
        let cost = self.cost_of_content(no, Cost::set_attributes())?;
        let op = self.store().begin(cost.replacing())?;
        // What it is now: a program may have set it since it was read.
        op.lock(&[no])?.log_attributes(no);
        Ok(())
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
