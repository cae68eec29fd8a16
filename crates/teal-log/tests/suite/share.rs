//! Sharing content between files: what is copied, what it costs, who keeps it alive.

use crate::new_objects::new_file;
use crate::salvage::{STORE, sectors_with};
use crate::stores::{disk_bytes, new_disk, open};
use std::sync::Arc;
use teal_env::{Disk, MemDisk};
use teal_log::{
    AttributeChanges, CheckOptions, Cost, DumpWhat, Severity, Store, StoreError, StoreSettings,
};
use teal_types::{ObjectNo, SECTOR, Sector};

struct Shop {
    disk: Arc<MemDisk>,
    store: Arc<Store>,
}

impl Shop {
    fn new(mib: u64) -> Self {
        let disk = new_disk(mib);
        Self {
            store: open(&disk),
            disk,
        }
    }

    /// A file without a name, in the set of orphans.
    fn file(&self) -> ObjectNo {
        let op = self.store.begin(Cost::names(2)).unwrap();
        let mut locked = op.lock(&[]).unwrap();
        let no = locked.create(new_file());
        locked.set_orphan(no, true).unwrap();
        no
    }

    fn write(&self, no: ObjectNo, at: u64, data: &[u8]) {
        let op = self.store.begin(Cost::write(data.len() as u64)).unwrap();
        op.lock(&[no]).unwrap().write(no, at, data).unwrap();
    }

    fn free(&self, no: ObjectNo) {
        let op = self.store.begin(Cost::names(1).freeing()).unwrap();
        op.lock(&[no]).unwrap().free_object(no).unwrap();
    }

    /// All steps of a copy; says how much was shared.
    fn share(&self, from: (ObjectNo, u64), to: (ObjectNo, u64), len: u64) -> u64 {
        let mut done = 0;
        while done < len {
            let (from, to) = ((from.0, from.1 + done), (to.0, to.1 + done));
            let sharing = self.store.plan_share(from, to, len - done).unwrap();
            if sharing.bytes == 0 {
                break;
            }
            let Ok(op) = self.store.begin(sharing.cost) else {
                break;
            };
            match op
                .lock(&[from.0, to.0])
                .unwrap()
                .share(from, to, len - done, &sharing)
                .unwrap()
            {
                0 => break,
                n => done += n,
            }
        }
        done
    }

    fn check(&self) -> u64 {
        let report = self
            .store
            .check(CheckOptions { verify_data: true }, &mut |_| {});
        assert!(report.is_clean(), "{:#?}", report.problems);
        report.live
    }

    /// As after a crash: nothing is closed.
    fn again(&mut self) {
        self.store = open(&self.disk);
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
    let before = shop.store.counter_values();
    assert_eq!(
        shop.share((a, 0), (b, 0), data.len() as u64),
        data.len() as u64
    );
    shop.store.commit().unwrap();
    shop.store.checkpoint().unwrap();
    let after = shop.store.counter_values();
    assert_eq!(
        after.bytes_data, before.bytes_data,
        "no content was written"
    );
    assert_eq!(after.bytes_read, before.bytes_read, "no content was read");
    assert!(
        after.bytes_written - before.bytes_written < 150_000,
        "{}",
        after.bytes_written - before.bytes_written
    );
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
    assert!(
        live < 100_000,
        "with the last reference the content goes: {live}"
    );
    shop.again();
    assert_eq!(shop.check(), live);
}

/// Returns where the shared extents lie: first sector of each.
fn places(store: &Store) -> Vec<u64> {
    let mut text = Vec::new();
    store.dump(DumpWhat::Shared, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let of = |line: &str| line.strip_prefix("at ")?.split(':').next()?.parse().ok();
    let mut places: Vec<u64> = text.lines().filter_map(of).collect();
    places.sort_unstable();
    places
}

#[test]
fn the_cleaner_moves_what_is_shared_once_for_all_files() {
    let mut shop = Shop::new(32);
    let files: Vec<_> = (0..5).map(|_| shop.file()).collect();
    // What is to be shared lies between what is to go.
    let mut gone = Vec::new();
    for n in 0..12 {
        shop.write(files[0], n * 200_704, &bytes(200_704, n as u8));
        shop.store.commit().unwrap();
        gone.push(shop.file());
        shop.write(gone[n as usize], 0, &bytes(700_000, n as u8));
        shop.store.commit().unwrap();
    }
    let whole = shop.content(files[0]);
    for to in &files[1..] {
        assert_eq!(
            shop.share((files[0], 0), (*to, 0), whole.len() as u64),
            whole.len() as u64
        );
    }
    gone.into_iter().for_each(|no| shop.free(no));
    shop.store.checkpoint().unwrap();
    let before = places(&shop.store);
    let settings = StoreSettings {
        clean_below_percent: 100,
        ..shop.store.settings()
    };
    shop.store.set_settings(settings);
    shop.store.clean(8, 90).unwrap();
    shop.check();
    let moved = shop.store.counter_values().bytes_moved;
    assert!(
        (200_000..3_000_000).contains(&moved),
        "{moved} bytes moved for 2.4 MB that five files share"
    );
    let after = places(&shop.store);
    assert_eq!(before.len(), after.len());
    assert!(
        before.iter().filter(|place| !after.contains(place)).count() > 2,
        "{before:?} {after:?}"
    );
    for _ in 0..2 {
        assert!(files.iter().all(|no| shop.content(*no) == whole));
        shop.check();
        shop.again();
    }
    files.into_iter().for_each(|no| shop.free(no));
    shop.store.commit().unwrap();
    assert!(places(&shop.store).is_empty());
    shop.again();
    assert!(places(&shop.store).is_empty() && shop.check() < 100_000);
}

#[test]
fn a_damaged_shared_block_is_an_error_for_every_file_that_has_it() {
    let shop = Shop::new(32);
    let (a, b, c) = (shop.file(), shop.file(), shop.file());
    shop.write(a, 0, &bytes(600_000, 1));
    shop.store.commit().unwrap();
    shop.share((a, 0), (b, 0), 600_000);
    shop.share((a, 0), (c, 0), 262_144);
    shop.store.checkpoint().unwrap();
    // The second shared extent: c does not refer to it.
    let at = Sector::new(places(&shop.store)[1] + 9);
    let mut sector = [0; 512];
    shop.disk.read_at(at, &mut sector).unwrap();
    sector[100] ^= 4;
    shop.disk
        .write_at(at, &[std::io::IoSlice::new(&sector)])
        .unwrap();
    shop.store.drop_caches();
    for no in [a, b] {
        assert!(
            matches!(shop.store.read(no, 262_144, 10_000), Err(StoreError::Corrupt { object: Some(n), .. }) if n == no)
        );
        assert_eq!(
            shop.store.read(no, 0, 262_144).unwrap(),
            bytes(600_000, 1)[..262_144]
        );
    }
    assert_eq!(shop.content(c), bytes(600_000, 1)[..262_144]);
    let report = shop
        .store
        .check(CheckOptions { verify_data: true }, &mut |_| {});
    assert_eq!(
        (report.total, report.problems[0].severity),
        (1, Severity::Damage),
        "{:?}",
        report.problems
    );
}

#[test]
fn a_store_full_of_copies_gives_everything_back() {
    let mut shop = Shop::new(32);
    let original = shop.file();
    shop.write(original, 0, &bytes(4 << 20, 1));
    shop.store.commit().unwrap();
    let free = shop.store.space().free;
    let mut copies = Vec::new();
    let mut rng = teal_testkit::Rng::new(4);
    // Each copy is changed all over, until there is no room.
    'full: loop {
        let no = shop.file();
        copies.push(no);
        if shop.share((original, 0), (no, 0), 4 << 20) < 4 << 20 {
            break;
        }
        for _ in 0..100 {
            let Ok(op) = shop.store.begin(Cost::write(5000)) else {
                break 'full;
            };
            op.lock(&[no])
                .unwrap()
                .write(no, rng.below(4 << 20), &bytes(5000, 7))
                .unwrap();
        }
        assert!(copies.len() < 200, "it never gets full");
    }
    shop.store.commit().unwrap();
    shop.check();
    assert!(copies.len() > 4, "{} copies", copies.len());
    shop.again();
    shop.check();
    for no in copies {
        shop.free(no);
    }
    shop.store.checkpoint().unwrap();
    shop.check();
    assert_eq!(shop.content(original), bytes(4 << 20, 1));
    let now = shop.store.space().free;
    assert!(now + 200_000 > free, "{now} of {free} are free again");
}

/// Returns the highest sequence number of a record, with the places of those above `from`.
fn records_above(image: &[u8], from: u64) -> (u64, Vec<usize>) {
    let number = |at: usize| u64::from_le_bytes(image[at + 32..at + 40].try_into().unwrap());
    let headers = sectors_with(image, b"TREC");
    let highest = headers.iter().map(|at| number(*at)).max().unwrap();
    let above = headers.into_iter().filter(|at| number(*at) > from);
    (highest, above.collect())
}

/// Where the lost records end: before the sharing that uses the number again, or behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LostUntil {
    SharingEnded,
    SharedAgain,
}

#[test]
fn a_number_used_again_behind_a_lost_record_shows_no_other_content() {
    for lost in [LostUntil::SharingEnded, LostUntil::SharedAgain] {
        let mut shop = Shop::new(STORE >> 20);
        let disk = Arc::clone(&shop.disk);
        let [a, b, c, d] = [(); 4].map(|()| shop.file());
        let [old, new, other] = [1, 2, 3].map(|seed| bytes(40_000, seed));
        shop.write(a, 0, &old);
        shop.write(c, 0, &other);
        shop.store.commit().unwrap();
        assert_eq!(shop.share((a, 0), (b, 0), 40_000), 40_000);
        shop.store.checkpoint().unwrap();
        let (before, _) = records_above(&disk_bytes(&disk), 0);
        // The sharing ends, and with it the use of the number.
        shop.write(a, 0, &new);
        shop.write(b, 0, &new);
        shop.store.commit().unwrap();
        let (mut last, mut gone) = records_above(&disk_bytes(&disk), before);
        shop.again();
        assert_eq!(shop.share((c, 0), (d, 0), 40_000), 40_000);
        shop.store.commit().unwrap();
        if lost == LostUntil::SharedAgain {
            (last, gone) = records_above(&disk_bytes(&disk), before);
        }
        // What follows has the whole records of all files.
        for no in [c, d] {
            let op = shop.store.begin(Cost::set_attributes()).unwrap();
            let perm = AttributeChanges {
                perm: Some(0o600),
                ..AttributeChanges::default()
            };
            op.lock(&[no]).unwrap().set_attr(no, perm);
        }
        shop.store.commit().unwrap();
        shop.write(shop.file(), 0, b"more");
        shop.store.commit().unwrap();
        assert!(records_above(&disk_bytes(&disk), last).1.len() > 1);

        let mut damaged = disk_bytes(&disk);
        for at in &gone {
            damaged[*at..*at + SECTOR as usize].fill(0);
        }
        let store = crate::salvage::open(&damaged, true).unwrap();
        let read = |no| store.read(no, 0, 40_000);
        for no in [a, b] {
            let known = read(no).map_or(true, |content| content == old);
            assert!(known, "{lost:?}: {no} shows the content of another file");
        }
        for no in [c, d] {
            let known = read(no).map_or(true, |content| content == other || content.is_empty());
            assert!(known, "{lost:?}: {no} shows the content of another file");
        }
        if lost == LostUntil::SharingEnded {
            assert_eq!(read(c).unwrap(), other);
            assert_eq!(read(d).unwrap(), other);
            assert!(read(a).is_err() && read(b).is_err());
        }
    }
}
