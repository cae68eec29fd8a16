//! Who still refers to an object: the kernel's lookup counts.
//!
//! # Invariants
//! 1. An object that is referred to is never given back: who removes the last name asks [`References::keep_orphan`] under the object's
//!    lock, and who looks an object up counts before looking whether it is still there.
//! 2. The root is not counted: it is never given back.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use teal_types::ObjectNo;

const SHARDS: u64 = 64;

#[derive(Debug, Default, Clone, Copy)]
struct Count {
    holds: u32,
    /// Has no name: to be given back at the last release.
    orphan: bool,
    /// Has no name yet: made without one, may still get one.
    linkable: bool,
}

/// A tree, because a million objects that the kernel knows of must not cost a hundred bytes each.
type Shard = BTreeMap<ObjectNo, Count>;

fn clamp(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Reference counts by object. Each lock guards its shard; nothing else is done under it.
#[derive(Debug)]
pub(crate) struct References(Vec<Mutex<Shard>>);

impl References {
    pub(crate) fn new() -> Self {
        Self((0..SHARDS).map(|_| Mutex::default()).collect())
    }

    fn shard(&self, no: ObjectNo) -> &Mutex<Shard> {
        &self.0[(no.get() % SHARDS) as usize]
    }

    pub(crate) fn hold(&self, no: ObjectNo, n: u64) {
        if no != ObjectNo::ROOT && n > 0 {
            let mut shard = self.shard(no).lock();
            let count = shard.entry(no).or_default();
            count.holds = count.holds.saturating_add(clamp(n));
        }
    }

    /// Takes `n` back; says whether that was the last of an orphan.
    pub(crate) fn release(&self, no: ObjectNo, n: u64) -> bool {
        if no == ObjectNo::ROOT || n == 0 {
            return false;
        }
        let mut shard = self.shard(no).lock();
        let Some(count) = shard.get_mut(&no) else {
            log::warn!("{no} was released but not held");
            return false;
        };
        if u64::from(count.holds) < n {
            log::warn!("{no} was released {n} times but held {} times", count.holds);
        }
        count.holds = count.holds.saturating_sub(clamp(n));
        if count.holds > 0 {
            return false;
        }
        let orphan = count.orphan;
        shard.remove(&no);
        orphan
    }

    /// Notes that an object has no name any more. `false` when nobody refers to it: it can go at once.
    pub(crate) fn keep_orphan(&self, no: ObjectNo) -> bool {
        self.shard(no).lock().get_mut(&no).map(|count| count.orphan = true).is_some()
    }

    /// Counts the maker of an object without a name.
    pub(crate) fn hold_nameless(&self, no: ObjectNo) {
        self.shard(no).lock().insert(no, Count { holds: 1, orphan: true, linkable: true });
    }

    /// Whether an object without a name may get one.
    pub(crate) fn is_linkable(&self, no: ObjectNo) -> bool {
        self.shard(no).lock().get(&no).is_some_and(|count| count.linkable)
    }

    /// Notes that an object got its first name.
    pub(crate) fn named(&self, no: ObjectNo) {
        if let Some(count) = self.shard(no).lock().get_mut(&no) {
            (count.orphan, count.linkable) = (false, false);
        }
    }

    /// Objects referred to, and among them those without a name.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let mut totals = (0, 0);
        for shard in &self.0 {
            let shard = shard.lock();
            totals.0 += shard.len() as u64;
            totals.1 += shard.values().filter(|count| count.orphan).count() as u64;
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_release_of_an_orphan_is_told() {
        let (refs, no) = (References::new(), ObjectNo::new(70));
        assert!(!refs.keep_orphan(no), "nobody refers to it");
        refs.hold(no, 3);
        assert!(!refs.release(no, 1));
        assert!(refs.keep_orphan(no));
        assert_eq!(refs.totals(), (1, 1));
        assert!(refs.release(no, 2));
        assert_eq!(refs.totals(), (0, 0));
        assert!(!refs.release(no, 1), "more than was held is harmless");
    }

    #[test]
    fn a_nameless_object_may_get_one_name() {
        let (refs, no) = (References::new(), ObjectNo::new(71));
        refs.hold_nameless(no);
        assert!(refs.is_linkable(no));
        refs.named(no);
        assert!(!refs.is_linkable(no));
        assert!(!refs.release(no, 1), "it has a name now");
    }

    #[test]
    fn the_root_is_not_counted() {
        let refs = References::new();
        refs.hold(ObjectNo::ROOT, 5);
        assert_eq!(refs.totals(), (0, 0));
        assert!(!refs.release(ObjectNo::ROOT, 9));
    }
}
