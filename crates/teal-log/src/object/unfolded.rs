//! Objects that the next checkpoint folds: those with something newer than their home record.

use crate::object::state::{ObjectRef, ObjectState};
use crate::tree::page_bounds::LeafSpread;
use parking_lot::Mutex;
use std::collections::HashMap;
use teal_types::ObjectNo;

#[derive(Debug, Default)]
struct UnfoldedList {
    /// Each with what its record takes, at most.
    objects: HashMap<ObjectNo, (ObjectRef, u64)>,
    bytes: u64,
    places: LeafSpread,
}

impl UnfoldedList {
    /// Checks that the sum is that of the objects.
    fn check_invariants(&self) {
        let sum: u64 = self.objects.values().map(|(_, bytes)| *bytes).sum();
        assert_eq!(self.bytes, sum, "the sum follows the list");
    }
}

/// The list of them. Its lock guards the list and nothing is done under it; it may be taken under
/// an object's lock.
#[derive(Debug, Default)]
pub(crate) struct UnfoldedObjects {
    list: Mutex<UnfoldedList>,
}

impl UnfoldedObjects {
    /// Adds an object, or takes its size anew.
    pub(crate) fn insert(&self, object: &ObjectRef, state: &ObjectState) {
        let bytes = state.record_bytes();
        let mut list = self.list.lock();
        list.bytes += bytes;
        match list
            .objects
            .insert(object.no, (ObjectRef::clone(object), bytes))
        {
            Some((_, before)) => list.bytes -= before,
            None => drop(list.places.add(object.no)),
        }
    }

    pub(crate) fn remove(&self, no: ObjectNo) {
        let mut list = self.list.lock();
        if let Some((_, bytes)) = list.objects.remove(&no) {
            list.bytes -= bytes;
            list.places.remove(no);
        }
    }

    /// Takes all of them out.
    pub(crate) fn take(&self) -> Vec<ObjectRef> {
        let list = std::mem::take(&mut *self.list.lock());
        if cfg!(debug_assertions) {
            list.check_invariants();
        }
        list.objects
            .into_values()
            .map(|(object, _)| object)
            .collect()
    }

    /// Returns how many there are.
    pub(crate) fn len(&self) -> usize {
        self.list.lock().objects.len()
    }

    /// Returns what their records take, at most.
    pub(crate) fn bytes(&self) -> u64 {
        self.list.lock().bytes
    }

    /// Returns how many leaves of the inode map their new homes change, at most.
    pub(crate) fn leaves(&self) -> u64 {
        self.list.lock().places.leaves()
    }

    pub(crate) fn numbers(&self) -> Vec<ObjectNo> {
        self.list.lock().objects.keys().copied().collect()
    }
}
