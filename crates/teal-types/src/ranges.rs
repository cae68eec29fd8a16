//! Ranges of a file: the parts that are to be sent, that are absent, or that are on a drive.
//!
//! # Invariants
//! 1. Ranges ascend, none is empty, and there is a gap between any two.

/// The end of a range that means all the rest of the content: beyond every file.
pub const CONTENT_END: u64 = 1 << 62;

/// A set of bytes of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ByteRanges(Vec<(u64, u64)>);

impl ByteRanges {
    /// Returns the range of a whole file.
    pub fn whole_file() -> Self {
        Self(vec![(0, CONTENT_END)])
    }

    /// Makes a set of ranges from start to end, for decoding; `None` unless the invariant holds.
    pub fn from_sorted(ranges: Vec<(u64, u64)>) -> Option<Self> {
        let ranges = Self(ranges);
        ranges.is_sorted().then_some(ranges)
    }

    /// Returns whether invariant 1 holds, and no range goes beyond [`END`].
    fn is_sorted(&self) -> bool {
        let has_bytes = |(from, to): &(u64, u64)| from < to && *to <= CONTENT_END;
        let is_apart = |pair: &[(u64, u64)]| pair[0].1 < pair[1].0;
        self.0.iter().all(has_bytes) && self.0.windows(2).all(is_apart)
    }

    /// Returns whether no byte is among them.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Visits each range, from start to end, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u64, u64)> + '_ {
        self.0.iter().copied()
    }

    /// Adds the bytes from `from` to `to`, exclusive.
    pub fn add(&mut self, from: u64, to: u64) {
        // Nothing, also where a caller has cut a range to nothing.
        if from >= to {
            return;
        }
        // All ranges that touch the new one become one with it, also those that only adjoin it.
        let first = self.0.partition_point(|(_, end)| *end < from);
        let last = self.0.partition_point(|(start, _)| *start <= to);
        let (mut start, mut end) = (from, to);
        if first < last {
            start = start.min(self.0[first].0);
            end = end.max(self.0[last - 1].1);
        }
        self.0.splice(first..last, [(start, end)]);
        debug_assert!(self.0.is_sorted(), "ranges ascend");
    }

    /// Takes the bytes from `from` to `to`, exclusive, away.
    pub fn remove(&mut self, from: u64, to: u64) {
        if from >= to || !self.overlaps(from, to) {
            return;
        }
        // One range more, if the bytes lie within one.
        let mut left = Vec::with_capacity(self.0.len() + 1);
        for &(start, end) in &self.0 {
            let before = (start, end.min(from));
            let behind = (start.max(to), end);
            for (start, end) in [before, behind] {
                if start < end {
                    left.push((start, end));
                }
            }
        }
        self.0 = left;
        debug_assert!(!self.overlaps(from, to));
    }

    /// Returns whether any byte from `from` to `to`, exclusive, is among them.
    pub fn overlaps(&self, from: u64, to: u64) -> bool {
        // The first range that ends behind `from`.
        let at = self.0.partition_point(|(_, end)| *end <= from);
        from < to && self.0.get(at).is_some_and(|(start, _)| *start < to)
    }

    /// Returns the parts that lie from `from` to `to`, exclusive.
    pub fn clipped_to(&self, from: u64, to: u64) -> Self {
        let mut clipped = Vec::new();
        for &(start, end) in &self.0 {
            let (start, end) = (start.max(from), end.min(to));
            if start < end {
                clipped.push((start, end));
            }
        }
        Self(clipped)
    }

    /// Returns the bytes that are not among `others`.
    pub fn difference(&self, others: &Self) -> Self {
        let mut left = self.clone();
        for (from, to) in others.iter() {
            left.remove(from, to);
        }
        left
    }

    /// Returns the bytes that are among `others`, too.
    pub fn intersection(&self, others: &Self) -> Self {
        let mut common = Self::default();
        for (from, to) in others.iter() {
            common.add_all(&self.clipped_to(from, to));
        }
        common
    }

    /// Returns the number of bytes.
    pub fn byte_count(&self) -> u64 {
        self.0.iter().map(|(from, to)| to - from).sum()
    }

    /// Adds all of `others`.
    pub fn add_all(&mut self, others: &Self) {
        for (from, to) in others.iter() {
            self.add(from, to);
        }
    }

    /// Reduces the set to at most `count` ranges: the smallest gaps are closed.
    pub fn coarsen_to(&mut self, count: usize) {
        while self.0.len() > count.max(1) {
            let gap = |at: &usize| self.0[at + 1].0 - self.0[*at].1;
            // Closing the smallest gap adds the fewest bytes that were not in the set.
            let Some(at) = (0..self.0.len() - 1).min_by_key(gap) else {
                return;
            };
            // The two ranges beside the gap become one.
            let (_, end) = self.0.remove(at + 1);
            self.0[at].1 = end;
        }
    }
}

#[cfg(test)]
mod tests;
