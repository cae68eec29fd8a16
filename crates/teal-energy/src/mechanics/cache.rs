//! The write cache of a disk: sectors that it has taken in and not yet put on its surface.
//!
//! # Guarantees
//! 1. Runs never touch or overlap: writes of the same or neighbouring sectors become one run.
//! 2. Runs are taken in the order of their addresses from the arm's place on, then from the
//!    beginning (an elevator).

use std::collections::BTreeMap;

#[derive(Debug, Clone, Default)]
pub(super) struct DirtyRuns {
    /// First sector to count.
    runs: BTreeMap<u64, u64>,
    sectors: u64,
}

impl DirtyRuns {
    pub(super) fn sector_count(&self) -> u64 {
        self.sectors
    }

    /// Adds a run of sectors.
    pub(super) fn add_run(&mut self, at: u64, count: u64) {
        if count == 0 {
            return;
        }
        let (mut first, mut end) = (at, at + count);
        // Runs that touch or overlap the new one are merged with it.
        while let Some((&other, &length)) = self.runs.range(..=end).next_back()
            && other + length >= first
        {
            (first, end) = (first.min(other), end.max(other + length));
            self.remove(other);
        }
        debug_assert!(
            first <= at && end >= at + count,
            "the merged run covers the new one"
        );
        self.runs.insert(first, end - first);
        self.sectors += end - first;
    }

    /// Drops the sectors that are about to be overwritten on the surface.
    pub(super) fn drop_range(&mut self, at: u64, count: u64) {
        let end = at + count;
        // Runs that reach into the range are cut: their parts before and behind it stay.
        while let Some((&other, &length)) = self.runs.range(..end).next_back()
            && other + length > at
        {
            self.remove(other);
            self.insert(other, at.saturating_sub(other));
            self.insert(end, (other + length).saturating_sub(end));
        }
    }

    /// Returns whether all of these sectors are here.
    pub(super) fn holds_all(&self, at: u64, count: u64) -> bool {
        count > 0
            && self
                .runs
                .range(..=at)
                .next_back()
                .is_some_and(|(&other, &length)| other + length >= at + count)
    }

    /// Returns whether some of them are here.
    pub(super) fn holds_some(&self, at: u64, count: u64) -> bool {
        self.runs
            .range(..at + count)
            .next_back()
            .is_some_and(|(&other, &length)| other + length > at)
    }

    /// Removes the run that the arm meets next, and returns it.
    pub(super) fn take_next(&mut self, from: u64) -> Option<(u64, u64)> {
        // Behind the last run the arm goes back to the first one.
        let next = self
            .runs
            .range(from..)
            .next()
            .or_else(|| self.runs.iter().next());
        let (at, count) = next.map(|(&at, &count)| (at, count))?;
        self.remove(at);
        Some((at, count))
    }

    fn insert(&mut self, at: u64, count: u64) {
        if count > 0 {
            self.runs.insert(at, count);
            self.sectors += count;
        }
    }

    fn remove(&mut self, at: u64) {
        self.sectors -= self.runs.remove(&at).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn runs_are_what_a_set_of_sectors_would_be(acts in prop::collection::vec((0_u8..4, 0_u64..60, 1_u64..12), 0..80)) {
            let (mut dirty, mut set) = (DirtyRuns::default(), BTreeSet::new());
            for (act, at, count) in acts {
                match act {
                    0 | 1 => { dirty.add_run(at, count); set.extend(at..at + count); }
                    2 => { dirty.drop_range(at, count); set.retain(|s| !(at..at + count).contains(s)); }
                    _ => if let Some((first, length)) = dirty.take_next(at) {
                        let next = set.range(at..).next().or(set.first()).copied();
                        // A run that began before the arm is met last.
                        prop_assert!(next.is_some());
                        (first..first + length).for_each(|s| assert!(set.remove(&s)));
                        prop_assert!(!set.contains(&(first + length)) && (first == 0 || !set.contains(&(first - 1))));
                    },
                }
                prop_assert_eq!(dirty.sector_count(), set.len() as u64);
                prop_assert_eq!(dirty.holds_all(at, count), (at..at + count).all(|s| set.contains(&s)));
                prop_assert_eq!(dirty.holds_some(at, count), (at..at + count).any(|s| set.contains(&s)));
            }
        }
    }
}
