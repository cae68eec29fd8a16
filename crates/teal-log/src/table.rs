//! The objects in memory, in shards.
//!
//! # Invariants
//! 1. At most one [`Object`] exists for a number at any time: it is dropped from the table only while nobody else holds it.
//! 2. The table holds at most its cap plus what is pinned by being held elsewhere.

use crate::object::{Object, ObjectRef};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use teal_types::ObjectNo;

const SHARDS: usize = 64;

/// Each lock guards its shard's map; nothing else is done under it.
pub(crate) struct Table {
    shards: Vec<Mutex<HashMap<ObjectNo, ObjectRef>>>,
    per_shard: usize,
}

impl Table {
    pub(crate) fn new(cap: usize) -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), per_shard: (cap / SHARDS).max(4) }
    }

    fn shard(&self, no: ObjectNo) -> &Mutex<HashMap<ObjectNo, ObjectRef>> {
        &self.shards[(no.get() % SHARDS as u64) as usize]
    }

    pub(crate) fn get(&self, no: ObjectNo) -> Option<ObjectRef> {
        self.shard(no).lock().get(&no).cloned()
    }

    /// Adds an object, unless another thread was first: the one in the table is returned.
    pub(crate) fn add(&self, object: Object) -> ObjectRef {
        let mut shard = self.shard(object.no).lock();
        if shard.len() >= self.per_shard {
            // Half of what nobody holds; hash order is as good as random.
            let mut spare = shard.len() - self.per_shard / 2;
            shard.retain(|_, o| {
                let keep = spare == 0 || Arc::strong_count(o) > 1;
                spare -= usize::from(!keep);
                keep
            });
        }
        Arc::clone(shard.entry(object.no).or_insert_with(|| Arc::new(object)))
    }

    pub(crate) fn remove(&self, no: ObjectNo) {
        self.shard(no).lock().remove(&no);
    }

    /// Forgets every object nobody holds.
    pub(crate) fn shrink(&self) {
        for shard in &self.shards {
            shard.lock().retain(|_, o| Arc::strong_count(o) > 1);
        }
    }
}
