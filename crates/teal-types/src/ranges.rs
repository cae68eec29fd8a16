//! Ranges of a file, as what is to be sent, what is not here and what is on a drive are kept.
//!
//! # Invariants
//! 1. Ranges ascend, none is empty, and there is a gap between any two.

/// Where the rest of the content is meant: beyond every file.
pub const END: u64 = 1 << 62;

/// A set of bytes of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// All of a file.
    pub fn all() -> Self {
        Self(vec![(0, END)])
    }

    /// From start to end, for decoding; `None` unless the invariant holds.
    pub fn of(ranges: Vec<(u64, u64)>) -> Option<Self> {
        let each = ranges.iter().all(|(from, to)| from < to && *to <= END);
        let apart = ranges.windows(2).all(|pair| pair[0].1 < pair[1].0);
        (each && apart).then_some(Self(ranges))
    }

    /// Returns whether no byte is among them.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each range, from start to end, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u64, u64)> + '_ {
        self.0.iter().copied()
    }

    /// Adds the bytes from `from` to `to`, exclusive.
    pub fn add(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let first = self.0.partition_point(|(_, end)| *end < from);
        let last = self.0.partition_point(|(start, _)| *start <= to);
        let (mut start, mut end) = (from, to);
        if first < last {
            start = start.min(self.0[first].0);
            end = end.max(self.0[last - 1].1);
        }
        self.0.splice(first..last, [(start, end)]);
    }

    /// Takes the bytes from `from` to `to`, exclusive, away.
    pub fn remove(&mut self, from: u64, to: u64) {
        if from >= to || !self.touches(from, to) {
            return;
        }
        let mut left = Vec::with_capacity(self.0.len() + 1);
        for &(start, end) in &self.0 {
            left.extend(
                [(start, end.min(from)), (start.max(to), end)]
                    .into_iter()
                    .filter(|(start, end)| start < end),
            );
        }
        self.0 = left;
    }

    /// Returns whether any byte from `from` to `to`, exclusive, is among them.
    pub fn touches(&self, from: u64, to: u64) -> bool {
        let at = self.0.partition_point(|(_, end)| *end <= from);
        from < to && self.0.get(at).is_some_and(|(start, _)| *start < to)
    }

    /// Those of them that lie from `from` to `to`, exclusive.
    pub fn within(&self, from: u64, to: u64) -> Self {
        let cut = |&(start, end): &(u64, u64)| (start.max(from), end.min(to));
        Self(
            self.0
                .iter()
                .map(cut)
                .filter(|(start, end)| start < end)
                .collect(),
        )
    }

    /// Those that are not among `others`.
    pub fn without(&self, others: &Self) -> Self {
        let mut left = self.clone();
        others.iter().for_each(|(from, to)| left.remove(from, to));
        left
    }

    /// Those that are among `others`, too.
    pub fn common(&self, others: &Self) -> Self {
        let mut common = Self::default();
        others
            .iter()
            .for_each(|(from, to)| common.join(&self.within(from, to)));
        common
    }

    /// Returns how many bytes they are.
    pub fn len(&self) -> u64 {
        self.0.iter().map(|(from, to)| to - from).sum()
    }

    /// Adds all of `others`.
    pub fn join(&mut self, others: &Self) {
        others.iter().for_each(|(from, to)| self.add(from, to));
    }

    /// At most `count` ranges: the smallest gaps are closed.
    pub fn coarsen(&mut self, count: usize) {
        while self.0.len() > count.max(1) {
            let gap = |at: &usize| self.0[at + 1].0 - self.0[*at].1;
            let Some(at) = (0..self.0.len() - 1).min_by_key(gap) else {
                return;
            };
            let (_, end) = self.0.remove(at + 1);
            self.0[at].1 = end;
        }
    }
}

#[cfg(test)]
mod tests;
