//! The numbers that a store gives out: to objects and to operations, and how many objects there
//! are.
//!
//! # Invariants
//! 1. A number that was given is never given again, after a crash neither: opening raises both
//!    counters above whatever the log names.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use teal_types::{Lsn, ObjectNo};

/// See the module. Each counter is an atomic of its own.
#[derive(Debug)]
pub(crate) struct NumberAllocator {
    next_object: AtomicU64,
    next_lsn: AtomicU64,
    objects: AtomicI64,
}

impl NumberAllocator {
    pub(crate) fn new(next_object: u64, next_lsn: Lsn, objects: u64) -> Self {
        Self {
            next_object: AtomicU64::new(next_object),
            next_lsn: AtomicU64::new(next_lsn.get()),
            objects: AtomicI64::new(objects as i64),
        }
    }

    /// Takes the next number for an object.
    pub(crate) fn take_object(&self) -> ObjectNo {
        ObjectNo::new(self.next_object.fetch_add(1, Relaxed))
    }

    /// Notes that an object has this number: the next ones are above it.
    pub(crate) fn raise_above_object(&self, no: ObjectNo) {
        self.next_object.fetch_max(no.get() + 1, Relaxed);
    }

    /// Returns the number after the highest that any object has had.
    pub(crate) fn next_object(&self) -> u64 {
        self.next_object.load(Relaxed)
    }

    /// Takes the next operation number.
    pub(crate) fn take_lsn(&self) -> Lsn {
        Lsn::new(self.next_lsn.fetch_add(1, Relaxed))
    }

    /// Notes that the log has an operation of this number: the next ones are above it.
    pub(crate) fn raise_above_lsn(&self, lsn: Lsn) {
        self.next_lsn.fetch_max(lsn.get() + 1, Relaxed);
    }

    /// Returns the number that the next operation gets.
    pub(crate) fn next_lsn(&self) -> Lsn {
        Lsn::new(self.next_lsn.load(Relaxed))
    }

    pub(crate) fn object_created(&self) {
        self.objects.fetch_add(1, Relaxed);
    }

    pub(crate) fn object_freed(&self) {
        self.objects.fetch_sub(1, Relaxed);
    }

    /// Takes over how many objects there are, as the last record says.
    pub(crate) fn set_objects(&self, objects: u64) {
        self.objects.store(objects as i64, Relaxed);
    }

    /// Returns how many objects there are. A damaged store may have counted too few.
    pub(crate) fn object_count(&self) -> u64 {
        self.objects.load(Relaxed).max(0) as u64
    }
}
