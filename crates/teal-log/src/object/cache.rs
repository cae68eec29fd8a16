//! The objects in memory, in shards.
//!
//! # Invariants
//! 1. At most one [`Object`] exists for a number at any time: it is dropped from the table only
//!    while no other thread holds it.
//! 2. The table holds at most its cap, and records of at most [`CACHED_BYTES`], plus what is pinned
//!    by being held elsewhere.

use crate::object::state::{CachedObject, ObjectRef};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use teal_types::ObjectNo;

const SHARDS: usize = 64;
/// Records of objects in memory that could be read again: few objects have large ones, but those
/// are a thousand times as large.
const CACHED_BYTES: usize = 64 << 20;

#[derive(Default)]
struct CacheShard {
    objects: HashMap<ObjectNo, ObjectRef>,
    /// Sum of the lengths of their records.
    bytes: usize,
}

impl CacheShard {
    /// Keeps the objects that are held elsewhere, and of the rest as much as is said; hash order is
    /// as good as random.
    fn evict_down_to(&mut self, most: usize, most_bytes: usize) {
        let (mut count, mut bytes) = (0, 0);
        self.objects.retain(|_, o| {
            let keep =
                Arc::strong_count(o) > 1 || (count < most && bytes + o.record_len <= most_bytes);
            count += usize::from(keep);
            bytes += if keep { o.record_len } else { 0 };
            keep
        });
        self.bytes = bytes;
    }
}

/// Each lock guards its shard; nothing else is done under it.
pub(crate) struct ObjectCache {
    shards: Vec<Mutex<CacheShard>>,
    per_shard: usize,
}

impl ObjectCache {
    pub(crate) fn new(cap: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            per_shard: (cap / SHARDS).max(4),
        }
    }

    fn shard(&self, no: ObjectNo) -> &Mutex<CacheShard> {
        &self.shards[(no.get() % SHARDS as u64) as usize]
    }

    pub(crate) fn get(&self, no: ObjectNo) -> Option<ObjectRef> {
        self.shard(no).lock().objects.get(&no).cloned()
    }

    /// Adds an object, unless another thread was first: the one in the table is returned.
    pub(crate) fn add_or_get(&self, object: CachedObject) -> ObjectRef {
        let mut shard = self.shard(object.no).lock();
        if shard.objects.len() >= self.per_shard
            || shard.bytes + object.record_len > CACHED_BYTES / SHARDS
        {
            shard.evict_down_to(self.per_shard / 2, CACHED_BYTES / SHARDS / 2);
        }
        if let Some(first) = shard.objects.get(&object.no) {
            return Arc::clone(first);
        }
        shard.bytes += object.record_len;
        let object = Arc::new(object);
        shard.objects.insert(object.no, Arc::clone(&object));
        object
    }

    pub(crate) fn remove(&self, no: ObjectNo) {
        let mut shard = self.shard(no).lock();
        if let Some(object) = shard.objects.remove(&no) {
            shard.bytes -= object.record_len;
        }
    }

    /// Forgets every object that is not held elsewhere.
    pub(crate) fn evict_unheld(&self) {
        for shard in &self.shards {
            shard.lock().evict_down_to(0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::inode::{InodeCore, RECORD_MAX};
    use crate::object::state::{ObjectContent, ObjectState};
    use teal_types::FileType;

    #[test]
    fn large_records_do_not_pile_up() {
        let table = ObjectCache::new(16384);
        let core =
            InodeCore::decode(&[&[1, FileType::Fifo.code()], &[0; 126][..]].concat()).unwrap();
        let mut held = Vec::new();
        for no in 0..5000 {
            let object = table.add_or_get(CachedObject::new(
                ObjectNo::new(no),
                ObjectState::new(core, ObjectContent::None),
                RECORD_MAX,
            ));
            if no % 1000 == 0 {
                held.push(object);
            }
        }
        let bytes: usize = table.shards.iter().map(|shard| shard.lock().bytes).sum();
        assert!(bytes <= CACHED_BYTES + held.len() * RECORD_MAX, "{bytes}");
        assert!(
            held.iter()
                .all(|object| Arc::ptr_eq(object, &table.get(object.no).unwrap())),
            "what is held stays"
        );
        table.evict_unheld();
        assert_eq!(
            table
                .shards
                .iter()
                .map(|shard| shard.lock().objects.len())
                .sum::<usize>(),
            held.len()
        );
    }
}
