//! Room that is set aside for files: who counts it, who may use it, what gives it back.

use std::sync::Arc;
use teal_env::{Disk, MemDisk, SystemClock, SystemEntropy};
use teal_log::{
    CheckOptions, Cost, DumpWhat, MkfsOptions, NewObject, OpenOptions, Store, StoreError,
    StoreSettings,
};
use teal_testkit::Rng;
use teal_types::{BLOCK, FileType, ObjectNo, Timestamp};

const MIB: u64 = 1 << 20;

struct Shop {
    disk: Arc<dyn Disk>,
    store: Arc<Store>,
}

fn opened(disk: &Arc<dyn Disk>) -> Arc<Store> {
    let settings = StoreSettings {
        batch_bytes: 1 << 20,
        checkpoint_bytes: 4 << 20,
        ..StoreSettings::default()
    };
    let options = OpenOptions {
        settings,
        ..OpenOptions::default()
    };
    Store::open(Arc::clone(disk), Arc::new(SystemClock), options)
        .unwrap()
        .0
}

impl Shop {
    fn new(mib: u64) -> Self {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(mib << 11));
        Store::mkfs(
            Arc::clone(&disk),
            Arc::new(SystemClock),
            &SystemEntropy,
            &MkfsOptions::default(),
        )
        .unwrap();
        Self {
            store: opened(&disk),
            disk,
        }
    }

    fn file(&self) -> ObjectNo {
        let op = self.store.begin(Cost::names(2)).unwrap();
        let mut locked = op.lock(&[]).unwrap();
        let no = locked.create(NewObject {
            kind: FileType::File,
            perm: 0o644,
            uid: 0,
            gid: 0,
            rdev: 0,
            now: Timestamp::default(),
        });
        locked.set_orphan(no, true).unwrap();
        no
    }

    fn write(&self, no: ObjectNo, at: u64, data: &[u8]) -> Result<(), StoreError> {
        let cost = Cost::write(data.len() as u64);
        let cost = match self.store.room_at(no, at, data.len() as u64)? {
            Some(blocks) => cost.covered_by_room(blocks),
            None => cost,
        };
        let op = self.store.begin(cost)?;
        op.lock(&[no])?.write(no, at, data)
    }

    fn preallocate(&self, no: ObjectNo, from: u64, end: u64) -> Result<(), StoreError> {
        self.store.permit_preallocation()?;
        let mut at = from;
        while at < end {
            let step = self.store.plan_preallocation(no, at, end)?;
            if step.bytes > 0 {
                let op = self.store.begin(step.cost)?;
                let done = op.lock(&[no])?.preallocate(no, at, step.end, &step)?;
                assert!(done.end > at);
                at = done.end;
            } else {
                at = step.end;
            }
        }
        Ok(())
    }

    fn change(&self, no: ObjectNo, change: impl FnOnce(&mut teal_log::LockedObjects<'_>)) {
        let op = self
            .store
            .begin(Cost::cut().with_piece(0).freeing())
            .unwrap();
        change(&mut op.lock(&[no]).unwrap());
    }

    /// Fills the store with files of one block or many until nothing more goes.
    fn fill(&self) -> Vec<ObjectNo> {
        let mut files = Vec::new();
        for len in [256 * BLOCK, BLOCK] {
            loop {
                let Ok(op) = self.store.begin(Cost::names(2)) else {
                    break;
                };
                let mut locked = op.lock(&[]).unwrap();
                let no = locked.create(NewObject {
                    kind: FileType::File,
                    perm: 0,
                    uid: 0,
                    gid: 0,
                    rdev: 0,
                    now: Timestamp::default(),
                });
                locked.set_orphan(no, true).unwrap();
                drop(locked);
                drop(op);
                files.push(no);
                match self.write(no, 0, &vec![7; len as usize]) {
                    Ok(()) => {}
                    Err(StoreError::NoSpace) => break,
                    Err(e) => panic!("{e}"),
                }
            }
        }
        files
    }

    fn set_aside(&self) -> u64 {
        self.store.space().set_aside
    }

    fn sectors(&self, no: ObjectNo) -> u64 {
        self.store.attr(no).unwrap().sectors
    }

    fn check(&self) {
        let report = self
            .store
            .check(CheckOptions { verify_data: true }, &mut |_| {});
        assert!(report.is_clean(), "{:#?}", report.problems);
    }

    /// As after a crash: nothing is closed.
    fn again(&mut self) {
        self.store = opened(&self.disk);
    }

    fn closed_and_opened(&mut self) {
        self.store.close().unwrap();
        self.store = opened(&self.disk);
    }
}

fn is_full(done: Result<(), StoreError>) -> bool {
    matches!(done, Err(StoreError::NoSpace))
}

/// Room for one block, as the format says.
const EACH: u64 = BLOCK + 256;

#[test]
fn room_is_counted_read_as_zeros_and_given_back() {
    let mut shop = Shop::new(64);
    let no = shop.file();
    let free = shop.store.space().free;
    shop.preallocate(no, 0, 8 * MIB).unwrap();
    let blocks = 8 * MIB / BLOCK;
    assert_eq!(shop.set_aside(), blocks * EACH);
    assert_eq!(shop.sectors(no), blocks * 8);
    assert_eq!(shop.store.attr(no).unwrap().size, 0, "the length stays");
    assert!(free - shop.store.space().free >= blocks * BLOCK);
    // What is there already needs no more room.
    shop.preallocate(no, MIB, 3 * MIB).unwrap();
    assert_eq!(shop.set_aside(), blocks * EACH);
    shop.check();

    shop.change(no, |locked| locked.truncate(no, 10 * MIB).unwrap());
    assert_eq!(
        shop.set_aside(),
        blocks * EACH,
        "growing takes nothing away"
    );
    assert!(shop.store.read(no, 0, MIB as usize).unwrap() == vec![0; MIB as usize]);
    assert_eq!(shop.store.seek(no, 0, false).unwrap(), None, "no data");
    // In the middle of a block, and over several.
    shop.write(no, 5 * BLOCK + 7, b"some").unwrap();
    shop.write(no, 100 * BLOCK, &vec![3; 10 * BLOCK as usize])
        .unwrap();
    let left = blocks - 11;
    assert_eq!(
        (shop.set_aside(), shop.sectors(no)),
        (left * EACH, blocks * 8)
    );
    assert_eq!(shop.store.seek(no, 0, false).unwrap(), Some(5 * BLOCK));
    let read = shop.store.read(no, 5 * BLOCK, 12).unwrap();
    assert_eq!(read, b"\0\0\0\0\0\0\0some\0");
    shop.store.commit().unwrap();
    assert_eq!(shop.sectors(no), blocks * 8);
    shop.again();
    assert_eq!(shop.set_aside(), left * EACH, "after a crash");
    shop.check();
    shop.closed_and_opened();
    assert_eq!(shop.set_aside(), left * EACH, "opened again");
    shop.check();

    // Holes, over room and content.
    shop.change(no, |locked| {
        locked.punch(no, 90 * BLOCK, 200 * BLOCK).unwrap()
    });
    let left = left - 100;
    assert_eq!(shop.set_aside(), left * EACH);
    shop.change(no, |locked| locked.truncate(no, 5 * BLOCK).unwrap());
    assert_eq!((shop.set_aside(), shop.sectors(no)), (5 * EACH, 40));
    shop.check();
    // Behind the end: given back by a hole, and by a length that stays the same.
    shop.preallocate(no, 0, MIB).unwrap();
    assert_eq!(shop.set_aside(), 256 * EACH);
    shop.change(no, |locked| {
        locked.punch(no, MIB - 6 * BLOCK, 2 * MIB).unwrap()
    });
    assert_eq!(shop.set_aside(), 250 * EACH);
    shop.change(no, |locked| locked.truncate(no, 5 * BLOCK).unwrap());
    assert_eq!(shop.set_aside(), 5 * EACH);
    shop.store.commit().unwrap();
    shop.change(no, |locked| locked.free_object(no).unwrap());
    assert_eq!(shop.set_aside(), 0);
    shop.again();
    assert_eq!(shop.set_aside(), 5 * EACH, "that was not committed");
    shop.check();
}

#[test]
fn a_small_file_and_holes_between_content_get_room() {
    let mut shop = Shop::new(64);
    let no = shop.file();
    shop.write(no, 0, b"small").unwrap();
    shop.preallocate(no, 0, 10 * BLOCK).unwrap();
    assert_eq!(shop.set_aside(), 9 * EACH, "the first block is there");
    assert_eq!(shop.store.read(no, 0, 9).unwrap(), b"small");
    let sparse = shop.file();
    for block in (0..600).step_by(2) {
        shop.write(sparse, block * BLOCK, &[1; BLOCK as usize])
            .unwrap();
    }
    shop.store.checkpoint().unwrap();
    shop.preallocate(sparse, 0, 600 * BLOCK).unwrap();
    assert_eq!(shop.set_aside(), (9 + 300) * EACH);
    shop.store.commit().unwrap();
    shop.again();
    assert_eq!(shop.set_aside(), (9 + 300) * EACH);
    shop.check();
    for block in (1..600).step_by(2) {
        shop.write(sparse, block * BLOCK, &[2; BLOCK as usize])
            .unwrap();
    }
    shop.store.checkpoint().unwrap();
    assert_eq!(shop.set_aside(), 9 * EACH);
    shop.check();
    let text = {
        let mut out = Vec::new();
        shop.store
            .dump(DumpWhat::Inode(no), &mut out)
            .map(|()| String::from_utf8(out).unwrap())
    };
    assert!(text.unwrap().contains("unwritten"));
}

/// On a full store, opened again in between, every block is written where room is set aside: one
/// by one at random, each durable by itself.
fn promise_holds(mib: u64, part: u64, seed: u64) {
    let mut shop = Shop::new(mib);
    let mut rng = Rng::new(seed);
    // Old files around, so that segments are mixed.
    let before: Vec<_> = (0..40).map(|_| shop.file()).collect();
    for no in &before {
        shop.write(*no, 0, &vec![1; 20 * BLOCK as usize]).unwrap();
    }
    let no = shop.file();
    let blocks = shop.store.space().free / part / BLOCK;
    shop.preallocate(no, 0, blocks * BLOCK).unwrap();
    shop.change(no, |locked| locked.truncate(no, blocks * BLOCK).unwrap());
    shop.store.commit().unwrap();
    shop.again();
    shop.fill();
    shop.closed_and_opened();
    shop.fill();
    assert!(
        is_full(shop.write(before[0], 100 * BLOCK, &vec![1; 256 * BLOCK as usize])),
        "the store is full"
    );
    let mut left: Vec<u64> = (0..blocks).collect();
    for n in 0..blocks {
        let block = left.swap_remove(rng.pick_index(left.len()));
        let data = vec![block as u8 | 1; BLOCK as usize];
        shop.write(no, block * BLOCK, &data)
            .unwrap_or_else(|e| panic!("{mib} MiB, block {n} of {blocks}: {e}"));
        match rng.below(100) {
            0 => shop.store.checkpoint().unwrap(),
            1 if n % 7 == 0 => shop.again_durable(),
            2..20 => {}
            _ => shop.store.commit().unwrap(),
        }
        if n % 500 == 0 {
            shop.fill();
        }
    }
    assert_eq!(shop.set_aside(), 0);
    shop.store.commit().unwrap();
    shop.again();
    for block in 0..blocks {
        let found = shop.store.read(no, block * BLOCK, BLOCK as usize).unwrap();
        assert!(
            found.iter().all(|byte| *byte == block as u8 | 1),
            "block {block}"
        );
    }
    shop.check();
    // There is a way out.
    shop.change(no, |locked| locked.truncate(no, 0).unwrap());
    shop.store.close().unwrap();
}

impl Shop {
    fn again_durable(&mut self) {
        self.store.commit().unwrap();
        self.again();
    }
}

#[test]
fn a_first_write_finds_its_room_on_a_full_store() {
    promise_holds(16, 3, 1);
    promise_holds(32, 2, 2);
    promise_holds(64, 2, 3);
    promise_holds(64, 5, 4);
}

#[test]
fn large_writes_find_their_room_too() {
    let mut shop = Shop::new(96);
    let no = shop.file();
    let len = shop.store.space().free / 2 / MIB * MIB;
    shop.preallocate(no, 0, len).unwrap();
    shop.store.commit().unwrap();
    shop.fill();
    shop.closed_and_opened();
    shop.fill();
    for at in (0..len).step_by(MIB as usize) {
        shop.write(no, at, &vec![5; MIB as usize])
            .unwrap_or_else(|e| panic!("at {at} of {len}: {e}"));
    }
    assert_eq!(shop.set_aside(), 0);
    shop.store.checkpoint().unwrap();
    shop.check();
}

#[test]
fn more_room_than_there_is_is_refused_and_deleting_goes_on() {
    let shop = Shop::new(32);
    let no = shop.file();
    let free = shop.store.space().free;
    assert!(is_full(shop.preallocate(no, 0, free + MIB)));
    let had = shop.set_aside();
    assert!(
        had > free / 2,
        "{had} of {free}: in steps, as far as it goes"
    );
    let mut end = 2 * free;
    for step in [MIB, 16 * BLOCK] {
        while shop.preallocate(no, end, end + step).is_ok() {
            end += step;
        }
    }
    let other = shop.file();
    assert!(
        is_full(shop.write(other, 0, &vec![1; 4 * MIB as usize])),
        "the room belongs to the first one"
    );
    shop.change(no, |locked| locked.free_object(no).unwrap());
    assert_eq!(shop.set_aside(), 0);
    shop.write(other, 0, &vec![1; 4 * MIB as usize]).unwrap();
    shop.store.checkpoint().unwrap();
    shop.check();
}

#[test]
fn an_older_store_is_marked_before_it_has_room_set_aside() {
    let disk = crate::copies::older_on(16 * MIB);
    let mut shop = Shop {
        store: opened(&(Arc::clone(&disk) as _)),
        disk: disk as _,
    };
    let bits = |shop: &Shop| {
        let sectors = shop.store.superblock().sectors;
        [0, (sectors - 8) / 8 * 8].map(|at| {
            let mut block = vec![0; 4096];
            let at = teal_types::Sector::new(at);
            shop.disk.read_at(at, &mut block).unwrap();
            u64::from_le_bytes(block[48..56].try_into().unwrap()) & 4
        })
    };
    let no = shop.file();
    shop.store.commit().unwrap();
    assert_eq!(bits(&shop), [0, 0], "nothing needs it yet");
    shop.preallocate(no, 0, 10).unwrap();
    assert_eq!(bits(&shop), [4, 4]);
    shop.store.commit().unwrap();
    shop.check();
    shop.again();
    assert_eq!((shop.set_aside(), bits(&shop)), (EACH, [4, 4]));
    shop.check();
}
