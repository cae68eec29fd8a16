//! The store through its public face: dedup, damage, failure, foreign things, sharing.

use crate::random_life::fault::FaultShelf;
use crate::random_life::{GRACE, content, domain, open};
use parking_lot::Mutex;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use teal_chunk::{
    AccessMode, CHUNK_MAX, ChunkError, ChunkStore, ChunkStoreOptions, DedupDomain, DomainId,
    MemoryShelf, PROBLEMS_MAX, PinError, Shelf, ShelfError, ShelfObject,
};
use teal_testkit::{SeededEntropy, SimClock};
use teal_types::ChunkId;

fn fresh() -> (ChunkStore, MemoryShelf) {
    let shelf = MemoryShelf::new();
    (reopen(&shelf), shelf)
}

fn reopen(shelf: &MemoryShelf) -> ChunkStore {
    open(
        Arc::new(shelf.clone()),
        &SimClock::default(),
        shelf.snapshot().len() as u64,
    )
    .unwrap()
    .0
}

fn put(store: &ChunkStore, contents: &[Vec<u8>]) -> Vec<ChunkId> {
    store.put(contents.iter().map(Vec::as_slice)).unwrap().0
}

/// So short that a few are in one pack.
fn short(n: u64) -> Vec<u8> {
    [content(n), vec![n as u8; 300]].concat()[..300].to_vec()
}

fn only_pack(shelf: &MemoryShelf) -> String {
    let names: Vec<String> = shelf.snapshot().into_keys().collect();
    assert_eq!(names.len(), 1);
    names[0].clone()
}

#[test]
fn what_was_put_is_read_now_and_after_opening_again() {
    let (store, shelf) = fresh();
    let contents: Vec<Vec<u8>> = (0..60).map(content).chain([vec![5; CHUNK_MAX]]).collect();
    let ids = put(&store, &contents);
    assert!(store.usage().packs > 3, "packs have a target");
    for store in [store, reopen(&shelf)] {
        for (id, content) in ids.iter().zip(&contents) {
            assert_eq!(&store.get(id).unwrap(), content);
        }
        let mut listed = Vec::new();
        store
            .visit_chunks(|info| {
                listed.push((info.chunk, info.bytes as usize));
                ControlFlow::Continue(())
            })
            .unwrap();
        listed.sort_unstable();
        let mut expected: Vec<_> = ids
            .iter()
            .copied()
            .zip(contents.iter().map(Vec::len))
            .collect();
        expected.sort_unstable();
        assert_eq!(listed, expected);
    }
}

#[test]
fn equal_content_is_stored_once() {
    let (store, shelf) = fresh();
    let ids = put(&store, &[content(1), content(2), content(1)]);
    assert_eq!(ids[0], ids[2]);
    let before = shelf.snapshot();
    assert_eq!(put(&store, &[content(2), content(1)]), [ids[1], ids[0]]);
    assert!(
        shelf.snapshot() == before,
        "nothing was written for what is here"
    );
    assert_eq!(
        (
            store.counts().added,
            store.counts().hits,
            store.counts().packs
        ),
        (5, 2, 1)
    );
    assert_eq!(
        store.find_present(&[ids[0], domain().name_content(b"other")]),
        [true, false]
    );
}

#[test]
fn nothing_is_had_before_it_is_durable() {
    let (store, shelf) = fresh();
    let mut batch = store.begin_batch().unwrap();
    let id = batch.add(&content(1)).unwrap();
    assert_eq!(
        (store.find_present(&[id])[0], shelf.snapshot().len()),
        (false, 0)
    );
    assert!(matches!(store.get(&id), Err(ChunkError::Absent { chunk }) if chunk == id));
    assert!(matches!(store.pin(&[id]), Err(PinError::Missing(missing)) if missing == [id]));
    let pin = batch.commit().unwrap();
    assert_eq!(
        (
            store.find_present(&[id])[0],
            pin.len(),
            store.usage().pinned
        ),
        (true, 1, 1)
    );
    drop(pin);
    assert_eq!(store.usage().pinned, 0);
}

#[test]
fn chunks_have_a_size() {
    let (store, _) = fresh();
    let mut batch = store.begin_batch().unwrap();
    for bytes in [0, CHUNK_MAX + 1] {
        let error = batch.add(&vec![0; bytes]).unwrap_err();
        assert!(
            matches!(error, ChunkError::Size { bytes: said } if said == bytes),
            "{error}"
        );
    }
}

#[test]
fn damage_is_named_never_returned_and_repaired_by_sending_again() {
    let contents = [short(2), short(3)];
    let ids: Vec<ChunkId> = contents
        .iter()
        .map(|content| domain().name_content(content))
        .collect();
    let (store, shelf) = fresh();
    put(&store, &contents);
    let sound = shelf.snapshot();
    let name = only_pack(&shelf);
    let mut damaged = 0;
    for at in (0..sound[&name].len()).step_by(3) {
        let shelf = MemoryShelf::from_objects(sound.clone());
        let store = reopen(&shelf);
        shelf.damage_object(&name, |bytes| bytes[at] ^= 0x10);
        let checked = store.check(|_, _| {}).unwrap();
        assert!(checked.problem_count > 0, "check does not see byte {at}");
        assert!(
            checked.problems[0].to_string().contains(&name[9..41]),
            "{}",
            checked.problems[0]
        );
        let store = if at.is_multiple_of(2) {
            reopen(&shelf)
        } else {
            store
        };
        for (id, content) in ids.iter().zip(&contents) {
            match store.get(id) {
                Ok(read) => assert!(&read == content),
                Err(error) => {
                    damaged += 1;
                    assert!(
                        matches!(
                            error,
                            ChunkError::Damaged { .. } | ChunkError::Absent { .. }
                        ),
                        "{error}"
                    );
                    assert!(error.to_string().contains(&id.to_string()), "{error}");
                    assert_eq!(
                        store.find_present(&[*id]),
                        [false],
                        "what is damaged is asked for again"
                    );
                    assert!(matches!(store.pin(&[*id]), Err(PinError::Missing(_))));
                }
            }
        }
        put(&store, &contents);
        for (id, content) in ids.iter().zip(&contents) {
            assert!(
                &store.get(id).unwrap() == content,
                "byte {at} is not repaired"
            );
        }
    }
    assert!(damaged > 100);
}

/// A chunk's payload replaced, with all checksums right.
fn graft(pack: &mut [u8], with: u8) {
    let header = 80;
    let stored = u32::from_le_bytes(pack[header + 44..header + 48].try_into().unwrap()) as usize;
    pack[header + 56] = with;
    let crc = crc32c::crc32c(&pack[header + 56..header + 56 + stored]);
    pack[header + 48..header + 52].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32c::crc32c(&pack[header..header + 52]);
    pack[header + 52..header + 56].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn content_with_right_checksums_and_another_name_is_refused() {
    let (store, shelf) = fresh();
    let id = put(&store, &[vec![7]])[0];
    shelf.damage_object(&only_pack(&shelf), |pack| graft(pack, 8));
    let error = store.get(&id).unwrap_err();
    assert!(
        error.to_string().contains("does not match its name"),
        "{error}"
    );
}

/// Objects in memory, on a disk that cannot read some of their bytes.
#[derive(Debug, Clone)]
struct SpoiledShelf {
    objects: MemoryShelf,
    bad_bytes: Arc<Mutex<Range<u64>>>,
}

impl SpoiledShelf {
    fn new() -> Self {
        Self {
            objects: MemoryShelf::new(),
            bad_bytes: Arc::default(),
        }
    }

    /// From now on, no read that touches these bytes of an object succeeds.
    fn spoil_bytes(&self, bytes: Range<u64>) {
        *self.bad_bytes.lock() = bytes;
    }
}

impl Shelf for SpoiledShelf {
    fn place(&self) -> String {
        self.objects.place()
    }
    fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), ShelfError> {
        self.objects.put(name, bytes)
    }
    fn read(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, ShelfError> {
        let bad = self.bad_bytes.lock().clone();
        if bad.start < range.end && range.start < bad.end {
            return Err(ShelfError::Unreachable {
                name: name.into(),
                source: Arc::new(std::io::Error::other("a bad sector")),
            });
        }
        self.objects.read(name, range)
    }
    fn list_objects(&self) -> Result<Vec<ShelfObject>, ShelfError> {
        self.objects.list_objects()
    }
    fn remove(&self, name: &str) -> Result<(), ShelfError> {
        self.objects.remove(name)
    }
}

#[test]
fn sectors_that_cannot_be_read_cost_the_chunks_in_them_only() {
    let shelf = SpoiledShelf::new();
    let store = open(Arc::new(shelf.clone()), &SimClock::default(), 1)
        .unwrap()
        .0;
    let contents: Vec<Vec<u8>> = (0..20).map(short).collect();
    let ids = put(&store, &contents);
    let bytes = shelf.objects.snapshot()[&only_pack(&shelf.objects)].len() as u64;
    shelf.spoil_bytes(bytes / 2..bytes / 2 + 100);
    let checked = store.check(|_, _| {}).unwrap();
    let (of_chunks, of_packs): (Vec<_>, Vec<_>) = checked
        .problems
        .iter()
        .partition(|problem| problem.chunk.is_some());
    assert!(!of_packs.is_empty() && checked.chunks > 0, "{checked:?}");
    assert_eq!(checked.chunks + of_chunks.len(), ids.len());
    let here = store.find_present(&ids);
    let lost = here.iter().filter(|is_here| !**is_here).count();
    assert_eq!((lost, lost), (of_chunks.len(), store.damaged_chunks()));
    for (id, content) in ids
        .iter()
        .zip(&contents)
        .filter(|(id, _)| store.find_present(&[**id])[0])
    {
        assert_eq!(&store.get(id).unwrap(), content);
    }
    // Stored again, they lie elsewhere, where the shelf is whole.
    shelf.spoil_bytes(0..0);
    put(&store, &contents);
    assert_eq!(store.damaged_chunks(), 0);
    assert!(store.find_present(&ids).iter().all(|is_here| *is_here));
}

#[test]
fn a_table_that_cannot_be_read_keeps_the_store_from_nothing() {
    let shelf = SpoiledShelf::new();
    let reopened = || open(Arc::new(shelf.clone()), &SimClock::default(), 2);
    let (store, _) = reopened().unwrap();
    let contents: Vec<Vec<u8>> = (0..20).map(short).collect();
    let ids = put(&store, &contents);
    let bytes = shelf.objects.snapshot()[&only_pack(&shelf.objects)].len() as u64;
    // The last sectors: the footer, and much of the table.
    shelf.spoil_bytes(bytes - 500..bytes);
    let (store, report) = reopened().unwrap();
    assert_eq!(report.damaged.len(), 1);
    let here = store.find_present(&ids);
    let found = here.iter().filter(|is_here| **is_here).count();
    assert!(
        found > 0 && store.check(|_, _| {}).unwrap().problem_count > 0,
        "{found} found"
    );
    for (id, content) in ids.iter().zip(&contents).take(found) {
        assert_eq!(&store.get(id).unwrap(), content);
    }
    // A shelf that is gone altogether is no damaged pack.
    shelf.spoil_bytes(0..u64::MAX);
    assert!(matches!(reopened(), Err(ChunkError::Shelf(_))));
}

#[test]
fn a_pack_of_which_nothing_can_be_read_keeps_no_other_from_being_served() {
    let shelf = SpoiledShelf::new();
    let reopened = || open(Arc::new(shelf.clone()), &SimClock::default(), 2);
    let (store, _) = reopened().unwrap();
    let small = put(&store, &[short(1)]);
    let large = put(
        &store,
        &[(0..200_000_u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect()],
    );
    let packs = shelf.objects.snapshot();
    let sizes: Vec<usize> = packs.values().map(Vec::len).collect();
    assert_eq!(sizes.len(), 2, "{sizes:?}");
    // As long as the small pack is: the first sectors of the other.
    shelf.spoil_bytes(0..*sizes.iter().min().unwrap() as u64);
    let checked = store.check(|_, _| {}).unwrap();
    assert!(checked.pack_problem_count >= 2, "{checked:?}");
    assert_eq!(
        store.find_present(&small),
        [false],
        "and is asked for again"
    );
    let (store, report) = reopened().unwrap();
    assert!(report.damaged.len() + report.packs == 2, "{report:?}");
    assert_eq!(store.find_present(&small), [false]);
    let _ = large;
}

#[test]
fn a_missing_pack_is_damage_that_is_named() {
    let (store, shelf) = fresh();
    let id = put(&store, &[content(1)])[0];
    let name = only_pack(&shelf);
    shelf.remove(&name).unwrap();
    let error = store.get(&id).unwrap_err();
    assert!(
        matches!(error, ChunkError::Damaged { .. })
            && error.to_string().contains("the pack is gone"),
        "{error}"
    );
    assert_eq!(store.check(|_, _| {}).unwrap().problem_count, 1);
    put(&store, &[content(1)]);
    assert!(store.get(&id).is_ok());
}

#[test]
fn a_pack_cut_short_anywhere_gives_what_is_whole() {
    let (store, shelf) = fresh();
    let contents: Vec<Vec<u8>> = (0..3).map(short).collect();
    let ids = put(&store, &contents);
    let name = only_pack(&shelf);
    let whole = shelf.snapshot()[&name].clone();
    let mut found_before = 0;
    for len in (0..whole.len()).step_by(7) {
        let shelf = MemoryShelf::from_objects([(name.clone(), whole[..len].to_vec())].into());
        let clock = SimClock::default();
        let (store, opening) = open(Arc::new(shelf.clone()), &clock, 1).unwrap();
        let had: Vec<bool> = store.find_present(&ids);
        let found = had.iter().filter(|had| **had).count();
        assert!(
            found >= found_before && opening.damaged.len() == 1 && opening.damaged[0].1 == found
        );
        found_before = found;
        for ((id, content), _) in ids.iter().zip(&contents).zip(&had).filter(|(_, had)| **had) {
            assert!(&store.get(id).unwrap() == content);
        }
        // Collection does not take it, though nothing of it is said to live.
        clock.advance(GRACE * 2);
        store
            .begin_collection(GRACE)
            .unwrap()
            .begin_sweep()
            .run()
            .unwrap();
        assert_eq!(shelf.snapshot().len(), 1);
    }
    assert_eq!(found_before, 3);
}

#[test]
fn a_pack_with_a_damaged_live_chunk_is_not_collected() {
    let shelf = MemoryShelf::new();
    let clock = SimClock::default();
    let (store, _) = open(Arc::new(shelf.clone()), &clock, 1).unwrap();
    let ids = put(&store, &(0..5).map(short).collect::<Vec<_>>());
    let name = only_pack(&shelf);
    shelf.damage_object(&name, |bytes| bytes[80 + 56] ^= 1);
    clock.advance(GRACE);
    let mut marking = store.begin_collection(GRACE).unwrap();
    marking.mark_live([ids[0]]);
    let collected = marking.begin_sweep().run().unwrap();
    assert_eq!(collected.damaged.len(), 1, "{collected:?}");
    assert!(shelf.snapshot().contains_key(&name));
    assert_eq!(store.find_present(&ids[..1]), [false]);
}

#[test]
fn damage_that_a_sweep_finds_is_mended_by_sending_again() {
    let shelf = MemoryShelf::new();
    let clock = SimClock::default();
    let (store, _) = open(Arc::new(shelf.clone()), &clock, 1).unwrap();
    let contents: Vec<Vec<u8>> = (0..5).map(short).collect();
    let ids = put(&store, &contents);
    let damaged_pack = only_pack(&shelf);
    // A byte of the first chunk's content; the second chunk adjoins it, and is read with it.
    shelf.damage_object(&damaged_pack, |bytes| bytes[80 + 56] ^= 1);
    let collect = || {
        clock.advance(GRACE);
        let mut marking = store.begin_collection(GRACE).unwrap();
        marking.mark_live([ids[0], ids[1]]);
        marking.begin_sweep().run().unwrap()
    };
    let first = collect();
    assert_eq!((first.damaged.len(), first.moved), (1, 1), "{first:?}");
    // Only the damaged chunk is asked for again, and a commit can't name it until it is sent.
    assert_eq!(store.find_present(&ids[..2]), [false, true]);
    assert!(matches!(store.pin(&ids[..1]), Err(PinError::Missing(_))));
    put(&store, &contents[..1]);
    assert_eq!(store.find_present(&ids[..2]), [true, true]);
    // The damaged copy is dead weight now, so its pack goes with it.
    let second = collect();
    assert_eq!(second.damaged, [], "{second:?}");
    assert!(!shelf.snapshot().contains_key(&damaged_pack));
    for store in [store, reopen(&shelf)] {
        for (id, content) in ids.iter().zip(&contents).take(2) {
            assert_eq!(&store.get(id).unwrap(), content);
        }
        assert_eq!(store.check(|_, _| {}).unwrap().problem_count, 0);
    }
}

#[test]
fn the_wrong_key_or_domain_is_said_so() {
    let (store, shelf) = fresh();
    let id = put(&store, &[content(1)])[0];
    let opened = |domain: DedupDomain| {
        let (clock, entropy) = (
            Arc::new(SimClock::default()),
            Arc::new(SeededEntropy::new(1)),
        );
        ChunkStore::open(
            Arc::new(shelf.clone()),
            domain,
            ChunkStoreOptions::default(),
            clock,
            entropy,
        )
    };
    let said = opened(DedupDomain::new(DomainId::new([1; 16]), [3; 32]))
        .err()
        .unwrap();
    assert!(
        matches!(said, ChunkError::WrongKey { .. }) && said.to_string().contains("memory"),
        "{said}"
    );
    let other = DedupDomain::new(DomainId::new([9; 16]), [2; 32]);
    let said = opened(other.clone()).err().unwrap();
    assert!(matches!(said, ChunkError::WrongDomain { .. }), "{said}");
    // A cut pack still says whose it is in its header.
    shelf.damage_object(&only_pack(&shelf), |bytes| bytes.truncate(100));
    assert!(matches!(opened(other), Err(ChunkError::WrongDomain { .. })));
    drop(store);
    assert!(!opened(domain()).unwrap().0.find_present(&[id])[0]);
}

#[test]
fn foreign_things_are_reported_and_left_alone() {
    let (store, shelf) = fresh();
    let id = put(&store, &[content(1)])[0];
    let name = only_pack(&shelf);
    let bytes = shelf.snapshot()[&name].clone();
    let renamed = "packs/00/00000000000000000000000000000000.pack";
    let other = MemoryShelf::new();
    let (clock, entropy) = (
        Arc::new(SimClock::default()),
        Arc::new(SeededEntropy::new(99)),
    );
    let theirs = DedupDomain::new(DomainId::new([9; 16]), [2; 32]);
    let (foreign, _) = ChunkStore::open(
        Arc::new(other.clone()),
        theirs,
        ChunkStoreOptions::default(),
        clock.clone(),
        entropy,
    )
    .unwrap();
    foreign.put([&b"x"[..]]).unwrap();
    let others = only_pack(&other);
    shelf.put("packs/holiday.jpg", b"jpeg".to_vec()).unwrap();
    shelf.put(renamed, bytes).unwrap();
    shelf
        .put(&others, other.snapshot()[&others].clone())
        .unwrap();
    let before = shelf.snapshot();
    let (store, opening) = open(Arc::new(shelf.clone()), &clock, 5).unwrap();
    let mut strangers: Vec<&str> = opening
        .strangers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    let mut expected = vec!["packs/holiday.jpg", renamed, others.as_str()];
    strangers.sort_unstable();
    expected.sort_unstable();
    assert_eq!(
        (strangers, opening.stranger_count, opening.packs),
        (expected, 3, 1)
    );
    clock.advance(GRACE);
    store
        .begin_collection(GRACE)
        .unwrap()
        .begin_sweep()
        .run()
        .unwrap();
    assert_eq!(
        shelf.snapshot().len(),
        before.len() - 1,
        "only our dead pack is gone"
    );
    assert!(!store.find_present(&[id])[0]);
}

#[test]
fn reports_have_a_limit_and_count_on() {
    let shelf = MemoryShelf::new();
    (0..PROBLEMS_MAX + 5).for_each(|n| shelf.put(&format!("packs/{n}"), Vec::new()).unwrap());
    let (store, opening) = open(Arc::new(shelf), &SimClock::default(), 1).unwrap();
    assert_eq!(
        (opening.strangers.len(), opening.stranger_count),
        (PROBLEMS_MAX, PROBLEMS_MAX + 5)
    );
    let mut marking = store.begin_collection(GRACE).unwrap();
    marking
        .mark_live((0..PROBLEMS_MAX as u32 + 7).map(|n| domain().name_content(&n.to_le_bytes())));
    let report = marking.begin_sweep().run().unwrap();
    assert_eq!(
        (report.missing.len(), report.missing_count),
        (PROBLEMS_MAX, PROBLEMS_MAX + 7)
    );
}

#[test]
fn a_failed_put_is_told_to_everybody_and_promises_nothing() {
    let shelf = FaultShelf::new(MemoryShelf::new(), 1);
    let (store, _) = open(Arc::new(shelf.clone()), &SimClock::default(), 1).unwrap();
    for _ in 0..20 {
        let (mut one, mut two) = (store.begin_batch().unwrap(), store.begin_batch().unwrap());
        let id = one.add(&content(1)).unwrap();
        assert_eq!(two.add(&content(1)).unwrap(), id);
        shelf.fail_puts(1);
        for outcome in [two.commit(), one.commit()] {
            assert!(matches!(
                outcome,
                Err(ChunkError::Shelf(ShelfError::Unreachable { .. }))
            ));
        }
        assert_eq!(
            (store.find_present(&[id])[0], store.usage().pinned),
            (false, 0)
        );
        assert!(
            shelf.objects().snapshot().is_empty(),
            "what was put nevertheless is taken back"
        );
    }
    let id = put(&store, &[content(1)])[0];
    assert_eq!(store.get(&id).unwrap(), content(1));
}

#[test]
fn a_store_for_reading_only_reads_only() {
    let (store, shelf) = fresh();
    let id = put(&store, &[content(1)])[0];
    let options = ChunkStoreOptions {
        access: AccessMode::Read,
        ..ChunkStoreOptions::default()
    };
    let (clock, entropy) = (
        Arc::new(SimClock::default()),
        Arc::new(SeededEntropy::new(1)),
    );
    let (store, _) = ChunkStore::open(Arc::new(shelf), domain(), options, clock, entropy).unwrap();
    assert_eq!(store.get(&id).unwrap(), content(1));
    assert!(matches!(
        store.begin_batch().err(),
        Some(ChunkError::ReadOnly { .. })
    ));
    assert!(matches!(
        store.begin_collection(GRACE).err(),
        Some(ChunkError::ReadOnly { .. })
    ));
}
