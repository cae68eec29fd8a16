//! How often the kernel refers to each object: its lookup counts.
//!
//! # Invariants
//! 1. An object that is referred to is never given back: an operation that removes the last name
//!    asks [`References::keep_orphan`] under the object's lock, and a lookup counts its reference
//!    before it looks whether the object is still there.
//! 2. The root is not counted: it is never given back.

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use teal_types::ObjectNo;

const SHARDS: u64 = 64;
/// Objects counted together: numbers are given out in a row, so few groups have gaps.
const GROUP: u64 = 16;
/// In a group: more is to be said of this object than a small number.
const SPECIAL: u8 = u8::MAX;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct ReferenceCount {
    holds: u32,
    /// Has no name: to be given back at the last release.
    orphan: bool,
    /// Has no name yet: made without one, may still get one.
    linkable: bool,
}

impl ReferenceCount {
    /// Its byte in a group.
    fn group_byte(self) -> u8 {
        let is_plain = !self.orphan && !self.linkable;
        u8::try_from(self.holds)
            .ok()
            .filter(|holds| is_plain && *holds != SPECIAL && *holds > 0)
            .unwrap_or(SPECIAL)
    }
}

fn saturate_to_u32(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// The kernel knows of a million objects and tells nothing of forgetting them: each costs a byte or
/// two, not a node of a tree.
#[derive(Debug, Default)]
struct ReferenceShard {
    /// Counts of objects in a row; 0 for those nobody refers to. No group is without one.
    groups: HashMap<u64, [u8; GROUP as usize]>,
    /// Those whose byte is [`SPECIAL`].
    special: BTreeMap<ObjectNo, ReferenceCount>,
}

impl ReferenceShard {
    fn get(&self, no: ObjectNo) -> Option<ReferenceCount> {
        match self.groups.get(&(no.get() / GROUP))?[(no.get() % GROUP) as usize] {
            0 => None,
            SPECIAL => self.special.get(&no).copied(),
            holds => Some(ReferenceCount {
                holds: u32::from(holds),
                ..ReferenceCount::default()
            }),
        }
    }

    fn set(&mut self, no: ObjectNo, count: ReferenceCount) {
        let byte =
            &mut self.groups.entry(no.get() / GROUP).or_default()[(no.get() % GROUP) as usize];
        let before = std::mem::replace(byte, count.group_byte());
        if *byte == SPECIAL {
            self.special.insert(no, count);
        } else if before == SPECIAL {
            self.special.remove(&no);
        }
    }

    fn remove(&mut self, no: ObjectNo) {
        let Some(group) = self.groups.get_mut(&(no.get() / GROUP)) else {
            return;
        };
        if std::mem::take(&mut group[(no.get() % GROUP) as usize]) == SPECIAL {
            self.special.remove(&no);
        }
        if *group == [0; GROUP as usize] {
            self.groups.remove(&(no.get() / GROUP));
        }
    }

    /// Changes the count of an object that is referred to; says whether it is.
    fn change(&mut self, no: ObjectNo, change: impl FnOnce(&mut ReferenceCount)) -> bool {
        let Some(mut count) = self.get(no) else {
            return false;
        };
        change(&mut count);
        self.set(no, count);
        true
    }
}

/// Reference counts by object. Each lock guards its shard; nothing else is done under it.
#[derive(Debug)]
pub struct ReferenceTable(Vec<Mutex<ReferenceShard>>);

impl Default for ReferenceTable {
    fn default() -> Self {
        Self::new()
    }
}

/// What is referred to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReferenceTotals {
    /// Objects.
    pub objects: u64,
    /// The objects among them that have no name.
    pub orphans: u64,
}

impl ReferenceTable {
    /// Returns counts of nothing.
    pub fn new() -> Self {
        Self((0..SHARDS).map(|_| Mutex::default()).collect())
    }

    fn shard(&self, no: ObjectNo) -> &Mutex<ReferenceShard> {
        &self.0[(no.get() / GROUP % SHARDS) as usize]
    }

    /// Counts `n` more references to an object.
    pub fn hold(&self, no: ObjectNo, n: u64) {
        if no != ObjectNo::ROOT && n > 0 {
            let mut shard = self.shard(no).lock();
            let count = shard.get(no).unwrap_or_default();
            shard.set(
                no,
                ReferenceCount {
                    holds: count.holds.saturating_add(saturate_to_u32(n)),
                    ..count
                },
            );
        }
    }

    /// Returns whether an object is referred to.
    pub fn is_held(&self, no: ObjectNo) -> bool {
        self.shard(no)
            .lock()
            .get(no)
            .is_some_and(|count| count.holds > 0)
    }

    /// Takes `n` references back. Returns whether that was the last of an orphan.
    pub fn release(&self, no: ObjectNo, n: u64) -> bool {
        if no == ObjectNo::ROOT || n == 0 {
            return false;
        }
        let mut shard = self.shard(no).lock();
        let Some(count) = shard.get(no) else {
            log::warn!("{no} was released but not held");
            return false;
        };
        if u64::from(count.holds) < n {
            log::warn!("{no} was released {n} times but held {} times", count.holds);
        }
        let holds = count.holds.saturating_sub(saturate_to_u32(n));
        if holds > 0 {
            shard.set(no, ReferenceCount { holds, ..count });
            return false;
        }
        shard.remove(no);
        count.orphan
    }

    /// Notes that an object has no name any more. Returns `false` when it is not referred to: it
    /// can go at once.
    pub fn keep_orphan(&self, no: ObjectNo) -> bool {
        self.shard(no)
            .lock()
            .change(no, |count| count.orphan = true)
    }

    /// Counts the maker of an object without a name.
    pub fn hold_nameless(&self, no: ObjectNo) {
        self.shard(no).lock().set(
            no,
            ReferenceCount {
                holds: 1,
                orphan: true,
                linkable: true,
            },
        );
    }

    /// Returns whether an object without a name may get one.
    pub fn is_linkable(&self, no: ObjectNo) -> bool {
        self.shard(no)
            .lock()
            .get(no)
            .is_some_and(|count| count.linkable)
    }

    /// Notes that an object got its first name.
    pub fn note_first_name(&self, no: ObjectNo) {
        self.shard(no)
            .lock()
            .change(no, |count| (count.orphan, count.linkable) = (false, false));
    }

    /// Counts the objects that are referred to, and those among them without a name.
    pub fn count_totals(&self) -> ReferenceTotals {
        let mut totals = ReferenceTotals::default();
        for shard in &self.0 {
            let shard = shard.lock();
            let bytes = shard.groups.values().flatten();
            totals.objects += bytes.filter(|byte| **byte != 0).count() as u64;
            totals.orphans += shard.special.values().filter(|count| count.orphan).count() as u64;
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(objects: u64, orphans: u64) -> ReferenceTotals {
        ReferenceTotals { objects, orphans }
    }

    #[test]
    fn the_last_release_of_an_orphan_is_told() {
        let (refs, no) = (ReferenceTable::new(), ObjectNo::new(70));
        assert!(!refs.keep_orphan(no), "nobody refers to it");
        refs.hold(no, 3);
        assert!(!refs.release(no, 1));
        assert!(refs.keep_orphan(no));
        assert_eq!(refs.count_totals(), totals(1, 1));
        assert!(refs.release(no, 2));
        assert_eq!(refs.count_totals(), totals(0, 0));
        assert!(!refs.release(no, 1), "more than was held is harmless");
    }

    #[test]
    fn a_nameless_object_may_get_one_name() {
        let (refs, no) = (ReferenceTable::new(), ObjectNo::new(71));
        refs.hold_nameless(no);
        assert!(refs.is_linkable(no));
        refs.note_first_name(no);
        assert!(!refs.is_linkable(no));
        assert!(!refs.release(no, 1), "it has a name now");
    }

    #[test]
    fn counts_are_those_of_a_map() {
        let (refs, mut model) = (ReferenceTable::new(), BTreeMap::<u64, (u64, bool)>::new());
        let mut random = 7u64;
        let mut draw = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for _ in 0..100_000 {
            let (n, no) = (draw(200) + 1, draw(300) + 2);
            match draw(4) {
                0 | 1 => {
                    refs.hold(ObjectNo::new(no), n);
                    model.entry(no).or_default().0 += n;
                }
                2 => {
                    let kept = model.get_mut(&no).map(|count| count.1 = true).is_some();
                    assert_eq!(refs.keep_orphan(ObjectNo::new(no)), kept);
                }
                _ => {
                    let n = n.min(model.get(&no).map_or(0, |count| count.0));
                    let count = model.get(&no).copied().filter(|_| n > 0);
                    let is_last = count.is_some_and(|count| count.0 == n);
                    assert_eq!(
                        refs.release(ObjectNo::new(no), n),
                        is_last && count.is_some_and(|count| count.1)
                    );
                    if is_last {
                        model.remove(&no);
                    } else if let Some(count) = model.get_mut(&no) {
                        count.0 -= n;
                    }
                }
            }
        }
        let orphans = model.values().filter(|count| count.1).count() as u64;
        assert_eq!(refs.count_totals(), totals(model.len() as u64, orphans));
        assert!(
            model.values().any(|count| count.0 > 255),
            "large counts were met"
        );
        for (no, (n, _)) in model {
            refs.release(ObjectNo::new(no), n);
        }
        assert!(
            refs.0
                .iter()
                .all(|shard| shard.lock().groups.is_empty() && shard.lock().special.is_empty())
        );
    }

    #[test]
    fn the_root_is_not_counted() {
        let refs = ReferenceTable::new();
        refs.hold(ObjectNo::ROOT, 5);
        assert_eq!(refs.count_totals(), totals(0, 0));
        assert!(!refs.release(ObjectNo::ROOT, 9));
    }
}
