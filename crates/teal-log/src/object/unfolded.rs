//! Objects that the next checkpoint folds: those with something newer than their home record.

use crate::object::state::{ObjectRef, State};
use crate::tree::page_bounds::Places;
use std::collections::HashMap;
use teal_types::ObjectNo;

/// Objects with something newer than their home record: a checkpoint writes them.
#[derive(Debug, Default)]
pub(crate) struct Unfolded {
    objects: HashMap<ObjectNo, (ObjectRef, u64)>,
    bytes: u64,
    places: Places,
}

impl Unfolded {
    /// Adds an object, or weighs it anew.
    pub(crate) fn insert(&mut self, object: &ObjectRef, state: &State) {
        let weight = state.record_weight();
        self.bytes += weight;
        match self
            .objects
            .insert(object.no, (ObjectRef::clone(object), weight))
        {
            Some((_, before)) => self.bytes -= before,
            None => drop(self.places.add(object.no)),
        }
    }

    pub(crate) fn remove(&mut self, no: ObjectNo) {
        if let Some((_, weight)) = self.objects.remove(&no) {
            self.bytes -= weight;
            self.places.remove(no);
        }
    }

    /// All of them, and forgets them.
    pub(crate) fn take(&mut self) -> Vec<ObjectRef> {
        std::mem::take(self)
            .objects
            .into_values()
            .map(|(object, _)| object)
            .collect()
    }

    /// Returns how many there are.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns how many leaves of the inode map their homes change, at most.
    pub(crate) fn leaves(&self) -> u64 {
        self.places.leaves()
    }

    /// What their records take, at most.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = ObjectNo> + '_ {
        self.objects.keys().copied()
    }
}
