//! The index finds what was put in, and keeps its bound.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn id(n: u64) -> ChunkId {
    ChunkId::new(*blake3::hash(&n.to_le_bytes()).as_bytes())
}

fn place(n: u32) -> ChunkPlace {
    ChunkPlace {
        slot: PackSlot(n),
        offset: n.wrapping_mul(3),
        stored: n % (4 << 20) + 1,
    }
}

#[test]
fn bounded() {
    let mut index = Index::new(KeyedHashBuilder::new([1; 16]));
    let mut worst = 0.0_f64;
    for n in 0..300_000_u64 {
        index.insert(
            ChunkIdPrefix::from_id(&id(n)),
            IndexEntry::new(place(n as u32)),
        );
        if n > 20_000 && n % 1000 == 0 {
            // A bucket of the standard table is an entry and a byte of control, 8 for every 7 that
            // it admits.
            let buckets: usize = index
                .parts
                .iter()
                .map(|part| part.capacity().div_ceil(7) * 8)
                .sum();
            worst = worst.max(
                (buckets * (size_of::<(ChunkIdPrefix, IndexEntry)>() + 1)) as f64
                    / index.len() as f64,
            );
        }
    }
    assert!(
        worst <= crate::limits::INDEX_BYTES_PER_CHUNK as f64,
        "{worst} bytes for a chunk"
    );
}

#[test]
fn marks_and_damage_do_not_touch_the_place() {
    let mut known = IndexEntry::new(place(77));
    known.mark();
    known.mark_damaged();
    assert!(known.is_marked() && known.is_damaged() && known.place() == place(77));
    known.set_place(place(78));
    assert!(known.is_marked() && !known.is_damaged() && known.place() == place(78));
    known.unmark();
    assert!(!known.is_marked() && known.place() == place(78));
}

proptest! {
    #[test]
    fn the_index_is_a_map(ops in proptest::collection::vec((0_u64..40, proptest::option::of(0_u32..9)), 0..200)) {
        let (mut index, mut model) = (Index::new(KeyedHashBuilder::new([2; 16])), BTreeMap::new());
        for (n, what) in ops {
            let chunk = ChunkIdPrefix::from_id(&id(n));
            match what {
                Some(at) => {
                    index.insert(chunk, IndexEntry::new(place(at)));
                    model.insert(chunk, place(at));
                }
                None => {
                    index.remove(&chunk);
                    model.remove(&chunk);
                }
            }
            prop_assert_eq!(index.get(&chunk).map(|known| known.place()), model.get(&chunk).copied());
        }
        let all: BTreeMap<_, _> = index.iter().map(|(chunk, known)| (*chunk, known.place())).collect();
        prop_assert_eq!((all.len(), all), (index.len(), model));
    }
}
