//! The cost of second copies: bytes and barriers of loads that change much of the inode map, with a
//! checkpoint every 4 MiB of log, or so many as are said.
//! `cargo run --release -p teal-log --example second_copies -- 64`.
//!
//! Everything is seeded and the disk is in memory, so that two programs can be compared byte by
//! byte.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program for people"
)]

use std::sync::Arc;
use teal_env::{Disk, MemDisk};
use teal_log::{Cost, MkfsOptions, NewObject, OpenOptions, Store, StoreSettings};
use teal_testkit::{Rng, SeededEntropy, SimClock};
use teal_types::{FileType, Name, ObjectNo, Timestamp};

const STORE_SECTORS: u64 = 512 << 11;
/// MiB of log between checkpoints, unless the first argument says otherwise.
const CHECKPOINT_MIB: u64 = 4;
const DIRECTORIES: u64 = 20;
/// Operations before each commit.
const PER_COMMIT: u64 = 8;

struct Load {
    store: Arc<Store>,
    rng: Rng,
    directories: Vec<ObjectNo>,
    /// Files, each with its directory and its name.
    files: Vec<(ObjectNo, ObjectNo, Name)>,
    operations: u64,
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn new_object(kind: FileType) -> NewObject {
    NewObject {
        kind,
        perm: 0o755,
        uid: 0,
        gid: 0,
        rdev: 0,
        now: Timestamp::default(),
    }
}

impl Load {
    fn new(seed: u64, checkpoint_mib: u64) -> Self {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(STORE_SECTORS));
        let clock = Arc::new(SimClock::default());
        let entropy = SeededEntropy::new(seed);
        let options = MkfsOptions::default();
        Store::mkfs(Arc::clone(&disk), clock.clone(), &entropy, &options).unwrap();
        let options = OpenOptions {
            settings: StoreSettings {
                checkpoint_bytes: checkpoint_mib << 20,
                ..StoreSettings::default()
            },
            ..OpenOptions::default()
        };
        let (store, _) = Store::open(disk, clock, options).unwrap();
        let mut load = Self {
            store,
            rng: Rng::new(seed),
            directories: Vec::new(),
            files: Vec::new(),
            operations: 0,
        };
        for n in 0..DIRECTORIES {
            let made = load.create(ObjectNo::ROOT, &name(&format!("d{n}")), FileType::Dir, 0);
            load.directories.push(made);
        }
        load
    }

    /// Commits after some operations, and makes the checkpoint that is due.
    fn ended(&mut self) {
        self.operations += 1;
        if self.operations.is_multiple_of(PER_COMMIT) {
            self.store.commit().unwrap();
            self.store.tick().unwrap();
        }
    }

    fn create(&mut self, dir: ObjectNo, called: &Name, kind: FileType, len: usize) -> ObjectNo {
        let op = self
            .store
            .begin(Cost::create().with_piece(len as u64))
            .unwrap();
        let mut locked = op.lock(&[dir]).unwrap();
        let no = locked.create(new_object(kind));
        locked.insert_entry(dir, called, no).unwrap();
        if len > 0 {
            locked.write(no, 0, &vec![7; len]).unwrap();
        }
        drop(locked);
        drop(op);
        self.ended();
        no
    }

    fn fill(&mut self, files: u64, len: usize) {
        for n in 0..files {
            let dir = self.directories[(n * DIRECTORIES / files) as usize];
            let called = name(&format!("file {n}"));
            let no = self.create(dir, &called, FileType::File, len);
            self.files.push((no, dir, called));
        }
    }

    /// Overwrites 4 KiB in one of the first `among` files, anywhere, so often.
    fn overwrite(&mut self, times: u64, among: u64) {
        for turn in 0..times {
            let no = self.files[self.rng.below(among) as usize].0;
            let op = self.store.begin(Cost::write(4096).replacing()).unwrap();
            let content = [turn as u8; 4096];
            op.lock(&[no]).unwrap().write(no, 0, &content).unwrap();
            drop(op);
            self.ended();
        }
    }

    fn rename(&mut self, times: u64) {
        for turn in 0..times {
            let at = self.rng.below(self.files.len() as u64) as usize;
            let (no, dir, old) = self.files[at].clone();
            let new = name(&format!("renamed {turn}"));
            let op = self.store.begin(Cost::rename()).unwrap();
            let mut locked = op.lock(&[dir, no]).unwrap();
            locked.insert_entry(dir, &new, no).unwrap();
            locked.remove_entry(dir, &old).unwrap();
            drop(locked);
            drop(op);
            self.files[at].2 = new;
            self.ended();
        }
    }

    fn unlink(&mut self, times: u64) {
        for _ in 0..times {
            let at = self.rng.below(self.files.len() as u64) as usize;
            let (no, dir, called) = self.files.swap_remove(at);
            let cost = Cost::unlink().and_also(Cost::free()).freeing();
            let op = self.store.begin(cost).unwrap();
            let mut locked = op.lock(&[dir, no]).unwrap();
            locked.remove_entry(dir, &called).unwrap();
            locked.free_object(no).unwrap();
            drop(locked);
            drop(op);
            self.ended();
        }
    }

    /// Prints what a part of the load cost, closed by a checkpoint.
    fn measure(&mut self, what: &str, run: impl FnOnce(&mut Self)) {
        self.store.checkpoint().unwrap();
        let before = self.store.counter_values();
        run(self);
        self.store.checkpoint().unwrap();
        let spent = self.store.counter_values().since(&before);
        let wanted = [
            "bytes_written",
            "bytes_pages",
            "bytes_copies",
            "writes",
            "barriers",
            "checkpoints",
            "segments_cleaned",
        ];
        let said: Vec<String> = spent
            .each()
            .filter(|(counter, _)| wanted.contains(counter))
            .map(|(counter, value)| format!("{counter} {value}"))
            .collect();
        println!("{what}: {}", said.join(", "));
    }
}

fn main() {
    let said = std::env::args().nth(1);
    let checkpoint_mib = said.map_or(CHECKPOINT_MIB, |mib| mib.parse().unwrap());
    for files in [1_100, 20_000] {
        let mut load = Load::new(1, checkpoint_mib);
        load.measure(&format!("create {files} files of 4 KiB"), |load| {
            load.fill(files, 4096);
        });
        load.measure(&format!("overwrite 20000 times among {files}"), |load| {
            load.overwrite(20_000, files);
        });
        load.measure("overwrite 20000 times among 100", |load| {
            load.overwrite(20_000, 100);
        });
        load.measure(&format!("rename 20000 times among {files}"), |load| {
            load.rename(20_000);
        });
        load.measure(&format!("unlink {} of {files}", files * 9 / 10), |load| {
            load.unlink(files * 9 / 10);
        });
    }
}
