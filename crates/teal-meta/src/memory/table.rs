//! One ordered table that can take back what is not durable.

use std::collections::BTreeMap;
use std::ops::RangeBounds;

/// Rows by key, and an undo log of the changes since the last durable transaction, oldest first.
#[derive(Debug, Clone)]
pub(super) struct UndoTable<K, V> {
    rows: BTreeMap<K, V>,
    undo: Vec<(K, Option<V>)>,
    /// The place in `undo` at which the running transaction begins.
    transaction_start: usize,
}

impl<K, V> Default for UndoTable<K, V> {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            undo: Vec::new(),
            transaction_start: 0,
        }
    }
}

impl<K: Ord + Clone, V: Clone> UndoTable<K, V> {
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.rows.get(key)
    }
    pub(super) fn range(
        &self,
        range: impl RangeBounds<K>,
    ) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.rows.range(range)
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.rows.iter()
    }
    pub(super) fn set_row(&mut self, key: K, row: Option<V>) {
        let old = match row {
            Some(row) => self.rows.insert(key.clone(), row),
            None => self.rows.remove(&key),
        };
        // The old row is kept until the transaction is durable.
        self.undo.push((key, old));
    }

    pub(super) fn begin(&mut self) {
        self.transaction_start = self.undo.len();
    }
    pub(super) fn make_durable(&mut self) {
        self.undo.clear();
    }
    /// Takes back the running transaction.
    pub(super) fn roll_back(&mut self) {
        // The newest change is undone first, so that the oldest row remains.
        debug_assert!(
            self.transaction_start <= self.undo.len(),
            "the log only grows within a \
            transaction"
        );
        for (key, old) in self.undo.drain(self.transaction_start..).rev() {
            match old {
                Some(old) => self.rows.insert(key, old),
                None => self.rows.remove(&key),
            };
        }
    }
    /// Takes back everything that is not durable.
    pub(super) fn undo(&mut self) {
        self.transaction_start = 0;
        self.roll_back();
    }
}
