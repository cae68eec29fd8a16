//! Sorts events that are slightly out of order: the earliest of a window goes out first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Number of events that are sorted together.
pub(super) const WINDOW: usize = 1 << 16;

struct HeapEntry<T> {
    key: Reverse<(u64, u64)>,
    value: T,
}

impl<T> PartialEq for HeapEntry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}
impl<T> Eq for HeapEntry<T> {}
impl<T> PartialOrd for HeapEntry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for HeapEntry<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// Holds the window.
pub(super) struct SortingWindow<T> {
    heap: BinaryHeap<HeapEntry<T>>,
    seen: u64,
    /// Time of the event that went out last.
    last: u64,
}

/// An event is earlier than one that went out already.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLate;

impl<T> SortingWindow<T> {
    pub(super) fn new() -> Self {
        Self {
            heap: BinaryHeap::new(),
            seen: 0,
            last: 0,
        }
    }

    /// Takes an event in; returns the earliest once the window is full.
    pub(super) fn insert(&mut self, time: u64, value: T) -> Result<Option<(u64, T)>, TooLate> {
        // An earlier event would have had to go out before.
        if time < self.last {
            return Err(TooLate);
        }
        self.heap.push(HeapEntry {
            key: Reverse((time, self.seen)),
            value,
        });
        self.seen += 1;
        Ok(if self.heap.len() > WINDOW {
            self.pop()
        } else {
            None
        })
    }

    /// Returns the earliest event that is left.
    pub(super) fn pop(&mut self) -> Option<(u64, T)> {
        let entry = self.heap.pop()?;
        debug_assert!(
            entry.key.0.0 >= self.last,
            "the window gives events in order"
        );
        self.last = entry.key.0.0;
        Some((self.last, entry.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_sorts_what_is_near_and_refuses_what_is_far() {
        let mut window = SortingWindow::new();
        let mut out = Vec::new();
        let n = 3 * WINDOW as u64;
        // Every pair is swapped.
        for i in 0..n {
            out.extend(window.insert(10 + (i ^ 1), i ^ 1).unwrap());
        }
        assert_eq!(window.insert(10, 0), Err(TooLate));
        out.extend(std::iter::from_fn(|| window.pop()));
        assert!(out.iter().map(|(_, i)| *i).eq(0..n));
    }
}
