//! Holds a set of indices, and finds the next one at or after another in a few steps, however thin
//! the set is.

/// Holds a tree of bits: a bit above is set when any of the sixty-four below it is.
#[derive(Debug, Clone)]
pub(super) struct IndexSet {
    /// Words of each level, the lowest level first.
    levels: Vec<Vec<u64>>,
    len: usize,
}

impl IndexSet {
    /// Makes an empty set for indices below `end`.
    pub(super) fn new(end: usize) -> Self {
        let mut levels = Vec::new();
        let mut words = end.div_ceil(64).max(1);
        loop {
            levels.push(vec![0; words]);
            if words == 1 {
                return Self { levels, len: 0 };
            }
            words = words.div_ceil(64);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn contains(&self, index: usize) -> bool {
        self.levels[0]
            .get(index / 64)
            .is_some_and(|word| word & (1 << (index % 64)) != 0)
    }

    pub(super) fn insert(&mut self, mut index: usize) {
        if self.contains(index) {
            return;
        }
        debug_assert!(
            index / 64 < self.levels[0].len(),
            "the index is within the set"
        );
        self.len += 1;
        // An index sets its bit on each level.
        for level in &mut self.levels {
            level[index / 64] |= 1 << (index % 64);
            index /= 64;
        }
    }

    pub(super) fn remove(&mut self, mut index: usize) -> bool {
        if !self.contains(index) {
            return false;
        }
        self.len -= 1;
        for level in &mut self.levels {
            level[index / 64] &= !(1 << (index % 64));
            // A word with another bit keeps the bits above it set.
            if level[index / 64] != 0 {
                break;
            }
            index /= 64;
        }
        true
    }

    /// Returns the least index from `from` on, or from 0 on if there is none.
    pub(super) fn next(&self, from: usize) -> Option<usize> {
        self.at_or_after(from).or_else(|| self.at_or_after(0))
    }

    fn at_or_after(&self, from: usize) -> Option<usize> {
        let mut at = from;
        for height in 0..self.levels.len() {
            let word = self.levels[height].get(at / 64)? & (u64::MAX << (at % 64));
            if word != 0 {
                // A word above is not empty: the first bit below each leads down to the index.
                let mut found = at / 64 * 64 + word.trailing_zeros() as usize;
                for level in self.levels[..height].iter().rev() {
                    found = found * 64 + level[found].trailing_zeros() as usize;
                }
                return Some(found);
            }
            at = at / 64 + 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_a_set_that_goes_round(
            end in 1_usize..10_000,
            steps in proptest::collection::vec((any::<bool>(), any::<usize>()), 0..200),
            from in any::<usize>(),
        ) {
            let (mut set, mut plain) = (IndexSet::new(end), BTreeSet::new());
            for (insert, index) in steps {
                let index = index % end;
                if insert {
                    set.insert(index);
                    plain.insert(index);
                } else {
                    prop_assert_eq!(set.remove(index), plain.remove(&index));
                }
                let from = from % end;
                let next = plain.range(from..).next().or_else(|| plain.first()).copied();
                prop_assert_eq!(set.len(), plain.len());
                prop_assert_eq!(set.next(from), next);
                prop_assert_eq!(set.contains(index), plain.contains(&index));
            }
        }
    }
}
