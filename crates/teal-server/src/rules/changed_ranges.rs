//! The ranges in which content has changed. They neither overlap nor touch.

use std::collections::BTreeMap;
use teal_proto::RANGES_MAX;

/// Ranges as start and end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ChangedRanges(BTreeMap<u64, u64>);

impl ChangedRanges {
    /// Adds a range; an empty one changes nothing.
    pub(crate) fn insert_range(&mut self, mut start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        // Everything that begins at or before the end, and ends at or behind the start, becomes a
        // part of it.
        while let Some((&from, &to)) = self.0.range(..=end).next_back() {
            if to < start {
                break;
            }
            self.0.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.0.insert(start, end);
        debug_assert_eq!(
            self.0.range(start..=end).count(),
            1,
            "ranges neither overlap nor touch"
        );
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(start, end)| (*start, *end))
    }

    /// Returns the ranges as (offset, length); `None` if there are too many for a message.
    pub(crate) fn bounded_list(&self) -> Option<Vec<(u64, u64)>> {
        (self.0.len() <= RANGES_MAX).then(|| {
            self.iter()
                .map(|(start, end)| (start, end - start))
                .collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn too_many_ranges_are_everything() {
        let mut changed = ChangedRanges::default();
        for at in 0..RANGES_MAX as u64 {
            changed.insert_range(at * 10, at * 10 + 5);
        }
        assert_eq!(
            changed.bounded_list().map(|ranges| ranges.len()),
            Some(RANGES_MAX)
        );
        changed.insert_range(100_000, 100_001);
        assert_eq!(changed.bounded_list(), None);
    }

    proptest! {
        #[test]
        fn ranges_cover_what_was_added_and_nothing_else(added in prop::collection::vec((0_u64..60, 0_u64..20), 0..12)) {
            let mut changed = ChangedRanges::default();
            added.iter().for_each(|(start, len)| changed.insert_range(*start, start + len));
            for at in 0..90 {
                let wanted = added.iter().any(|(start, len)| (*start..start + len).contains(&at));
                prop_assert_eq!(changed.iter().any(|(start, end)| (start..end).contains(&at)), wanted);
            }
            let all: Vec<_> = changed.iter().collect();
            prop_assert!(all.windows(2).all(|pair| pair[0].1 < pair[1].0), "{:?}", all);
        }
    }
}
