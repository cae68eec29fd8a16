//! Sharing content between files: what is copied, what it costs, who keeps it alive.
#![allow(clippy::unwrap_used, reason = "tests panic where they fail")]

use std::sync::Arc;
use teal_env::{Disk, MemDisk, SystemClock, SystemEntropy};
use teal_log::{CheckOptions, Cost, MkfsOptions, NewObject, OpenOptions, Store};
use teal_types::{FileType, ObjectNo, Timestamp};

struct Shop {
    disk: Arc<dyn Disk>,
    store: Arc<Store>,
}

fn opened(disk: &Arc<dyn Disk>) -> Arc<Store> {
    Store::open(Arc::clone(disk), Arc::new(SystemClock), OpenOptions::default()).unwrap().0
}

impl Shop {
    fn new(mib: u64) -> Self {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(mib << 11));
        Store::mkfs(Arc::clone(&disk), Arc::new(SystemClock), &SystemEntropy, &MkfsOptions::default()).unwrap();
        Self { store: opened(&disk), disk }
    }

    /// A file without a name, in the set of orphans.
    fn file(&self) -> ObjectNo {
        let op = self.store.begin(Cost::names(2)).unwrap();
        let mut locked = op.lock(&[]).unwrap();
        let now = Timestamp::default();
        let no = locked.create(NewObject { kind: FileType::File, perm: 0o644, uid: 0, gid: 0, rdev: 0, now });
        locked.set_orphan(no, true).unwrap();
        no
    }

    fn write(&self, no: ObjectNo, at: u64, data: &[u8]) {
        let op = self.store.begin(Cost::data(data.len() as u64)).unwrap();
        op.lock(&[no]).unwrap().write(no, at, data).unwrap();
    }

    fn free(&self, no: ObjectNo) {
        let op = self.store.begin(Cost::names(1).freeing()).unwrap();
        op.lock(&[no]).unwrap().free(no).unwrap();
    }

    /// All steps of a copy; says how much was shared.
    fn share(&self, from: (ObjectNo, u64), to: (ObjectNo, u64), len: u64) -> u64 {
        let mut done = 0;
        while done < len {
            let (from, to) = ((from.0, from.1 + done), (to.0, to.1 + done));
            let sharing = self.store.sharing(from, to, len - done).unwrap();
            if sharing.bytes == 0 {
                break;
            }
            let op = self.store.begin(sharing.cost).unwrap();
            match op.lock(&[from.0, to.0]).unwrap().share(from, to, len - done, &sharing).unwrap() {
                0 => break,
                n => done += n,
            }
        }
        done
    }

    fn check(&self) -> u64 {
        let report = self.store.check(CheckOptions { verify_data: true }, &mut |_| {});
        assert!(report.is_clean(), "{:#?}", report.problems);
        report.live
    }

    /// As after a crash: nothing is closed.
    fn again(&mut self) {
        self.store = opened(&self.disk);
    }

    fn content(&self, no: ObjectNo) -> Vec<u8> {
        let size = self.store.attr(no).unwrap().size;
        self.store.read(no, 0, size as usize).unwrap()
    }
}

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 4096) as u8 ^ seed).collect()
}

#[test]
fn a_copy_costs_no_content_and_lives_by_itself() {
    let mut shop = Shop::new(64);
    let (a, b) = (shop.file(), shop.file());
    let data = bytes((8 << 20) + 77, 3);
    shop.write(a, 0, &data);
    shop.store.commit().unwrap();
    let before = shop.store.counts();
    assert_eq!(shop.share((a, 0), (b, 0), data.len() as u64), data.len() as u64);
    shop.store.commit().unwrap();
    shop.store.checkpoint().unwrap();
    let after = shop.store.counts();
    assert_eq!(after.bytes_data, before.bytes_data, "no content was written");
    assert_eq!(after.bytes_read, before.bytes_read, "no content was read");
    assert!(after.bytes_written - before.bytes_written < 150_000, "{}", after.bytes_written - before.bytes_written);
    let (x, y) = (shop.store.attr(a).unwrap(), shop.store.attr(b).unwrap());
    assert_eq!((x.size, x.sectors), (y.size, y.sectors));
    assert!(shop.content(b) == data);
    let live = shop.check();
    assert!(live < (9 << 20), "the content lives once: {live}");

    shop.write(a, 5000, b"changed");
    shop.write(b, 1 << 20, &bytes(300_000, 9));
    let (mut was_a, mut was_b) = (data.clone(), data);
    was_a[5000..5007].copy_from_slice(b"changed");
    was_b[1 << 20..(1 << 20) + 300_000].copy_from_slice(&bytes(300_000, 9));
    shop.store.commit().unwrap();
    shop.check();
    for _ in 0..2 {
        assert!(shop.content(a) == was_a && shop.content(b) == was_b);
        shop.again();
        shop.check();
    }
    shop.free(a);
    shop.store.commit().unwrap();
    shop.again();
    assert!(shop.content(b) == was_b);
    shop.check();
    shop.free(b);
    shop.store.commit().unwrap();
    let live = shop.check();
    assert!(live < 100_000, "with the last reference the content goes: {live}");
    shop.again();
    assert_eq!(shop.check(), live);
}
