//! How long opening takes after a crash, by the size of the store and the number of files: `cargo
//! xtask bench recovery`.
//!
//! # How
//! 1. Each row is a store in a sparse file, filled with files of a hundred bytes, a thousand in
//!    each directory, and closed. Opened again, it is worked on until the log behind the checkpoint
//!    is almost as long as it may get, and left without a word.
//! 2. Then it is opened as a mount does it, with a cold page cache, several times; the median
//!    counts. Opening writes nothing.
//! 3. The Microdrive is a model: a seek and half a turn for each read that does not begin where the
//!    one before ended, and the bytes at the rate of its medium (seed 000, table 3.1: 12 ms, 8.33
//!    ms, 627 mW at 0.19 mJ for each KB).

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program for people"
)]

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use teal_env::{Clock, Disk, DiskShape, FileDisk, OpenMode, SystemClock, SystemEntropy};
use teal_log::{
    Cost, LockedObjects, MkfsOptions, NewObject, OpenOptions, Recovery, Store, StoreSettings,
};
use teal_testkit::Rng;
use teal_types::{FileType, Name, ObjectNo, Sector};

const HELP: &str = "\
cargo xtask bench recovery [--dir DIR] [--rounds N] [--largest N] [--rows PATTERN]
  --dir DIR       where the stores lie (target/bench)
  --rounds N      openings of each (5)
  --largest N     most files (1000000)
  --rows PATTERN  only rows whose text contains PATTERN";

const GIB: u64 = 1 << 30;
/// The checkpoint distance by default, and the one for small slow disks.
const DISTANCES: [u64; 2] = [64 << 20, 4 << 20];
const PER_DIRECTORY: u64 = 1000;
/// A seek and half a turn.
const REPOSITIONING: Duration = Duration::from_micros(20_330);
/// Bytes in a second, from its power and its energy for each KB.
const MEDIUM: u64 = 3300 << 10;

/// What the tail of the log is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tail {
    /// In ten directories anywhere: half new files of 4 KiB, the rest overwritten, renamed and
    /// removed, a commit every eight operations.
    Mixed,
    /// New modes for files anywhere, as many in a batch as fit: what recovery likes least.
    Scattered,
}

/// A disk whose reads are counted.
struct Counted {
    below: FileDisk,
    reads: AtomicU64,
    bytes: AtomicU64,
    repositionings: AtomicU64,
    end: Mutex<u64>,
}

impl Counted {
    fn open(path: &Path, mode: OpenMode) -> Arc<Self> {
        let below = FileDisk::open(path, mode).unwrap();
        let zero = || AtomicU64::new(0);
        Arc::new(Self {
            below,
            reads: zero(),
            bytes: zero(),
            repositionings: zero(),
            end: Mutex::new(u64::MAX),
        })
    }

    fn modelled(&self) -> Duration {
        let moves = u32::try_from(self.repositionings.load(Relaxed)).unwrap();
        REPOSITIONING * moves
            + Duration::from_secs_f64(self.bytes.load(Relaxed) as f64 / MEDIUM as f64)
    }
}

impl Disk for Counted {
    fn shape(&self) -> DiskShape {
        self.below.shape()
    }

    fn read_at(&self, at: Sector, buf: &mut [u8]) -> io::Result<()> {
        self.reads.fetch_add(1, Relaxed);
        self.bytes.fetch_add(buf.len() as u64, Relaxed);
        let end = std::mem::replace(
            &mut *self.end.lock().unwrap(),
            at.byte_offset() + buf.len() as u64,
        );
        self.repositionings
            .fetch_add(u64::from(end != at.byte_offset()), Relaxed);
        self.below.read_at(at, buf)
    }

    fn write_at(&self, at: Sector, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.below.write_at(at, parts)
    }

    fn sync(&self) -> io::Result<()> {
        self.below.sync()
    }

    fn allocate(&self, at: Sector, sectors: u64) -> io::Result<()> {
        self.below.allocate(at, sectors)
    }

    fn discard(&self, at: Sector, sectors: u64) -> io::Result<()> {
        self.below.discard(at, sectors)
    }
}

fn open(disk: Arc<Counted>, distance: u64) -> (Arc<Store>, Recovery) {
    let settings = StoreSettings {
        checkpoint_bytes: distance,
        ..StoreSettings::default()
    };
    Store::open(
        disk,
        Arc::new(SystemClock),
        OpenOptions {
            settings,
            ..OpenOptions::default()
        },
    )
    .unwrap()
}

fn make(locked: &mut LockedObjects<'_>, dir: ObjectNo, name: &Name, kind: FileType) -> ObjectNo {
    let now = SystemClock.civil_time();
    let no = locked.create(NewObject {
        kind,
        perm: 0o755,
        uid: 0,
        gid: 0,
        rdev: 0,
        now,
    });
    locked.insert_entry(dir, name, no).unwrap();
    no
}

fn name(n: u64) -> Name {
    Name::new(format!("file {n}").as_bytes()).unwrap()
}

/// What a store holds.
#[derive(Debug, Clone, Default)]
struct Made {
    dirs: Vec<ObjectNo>,
    /// Number, directory and name of each file.
    files: Vec<(ObjectNo, ObjectNo, u64)>,
    /// Names given so far.
    names: u64,
}

/// A store in which work can be done.
struct Worked {
    store: Arc<Store>,
    made: Made,
}

impl Worked {
    fn add(&mut self, dir: ObjectNo, content: &[u8]) {
        let cost = Cost::names(2).and_also(Cost::write(content.len() as u64));
        let op = self.store.begin(cost).unwrap();
        let mut locked = op.lock(&[dir]).unwrap();
        let no = make(&mut locked, dir, &name(self.made.names), FileType::File);
        locked.write(no, 0, content).unwrap();
        self.made.files.push((no, dir, self.made.names));
        self.made.names += 1;
    }

    fn fill(&mut self, files: u64) {
        for n in 0..files {
            if n % PER_DIRECTORY == 0 {
                let op = self.store.begin(Cost::names(2)).unwrap();
                let mut locked = op.lock(&[ObjectNo::ROOT]).unwrap();
                let dir = Name::new(format!("dir {n}").as_bytes()).unwrap();
                self.made
                    .dirs
                    .push(make(&mut locked, ObjectNo::ROOT, &dir, FileType::Dir));
            }
            self.add(self.made.dirs[self.made.dirs.len() - 1], &[n as u8; 100]);
        }
    }

    fn mixed(&mut self, rng: &mut Rng) {
        let at = rng.pick_index(self.made.files.len());
        let (no, dir, old) = self.made.files[at];
        match rng.below(8) {
            0..4 => self.add(*rng.pick(&self.made.dirs), &[1; 4096]),
            4 | 5 => {
                let op = self.store.begin(Cost::write(4096)).unwrap();
                op.lock(&[no]).unwrap().write(no, 0, &[2; 4096]).unwrap();
            }
            6 => {
                let op = self.store.begin(Cost::names(4)).unwrap();
                let mut locked = op.lock(&[dir, no]).unwrap();
                locked.remove_entry(dir, &name(old)).unwrap();
                locked
                    .insert_entry(dir, &name(self.made.names), no)
                    .unwrap();
                self.made.files[at].2 = self.made.names;
                self.made.names += 1;
            }
            _ => {
                let op = self.store.begin(Cost::names(2)).unwrap();
                let mut locked = op.lock(&[dir, no]).unwrap();
                locked.remove_entry(dir, &name(old)).unwrap();
                locked.free_object(no).unwrap();
                self.made.files.swap_remove(at);
            }
        }
    }

    fn work(&mut self, tail: Tail, bytes: u64) {
        let mut rng = Rng::new(7);
        if tail == Tail::Mixed {
            self.made.dirs = (0..10).map(|_| *rng.pick(&self.made.dirs)).collect();
            self.made
                .files
                .retain(|(_, dir, _)| self.made.dirs.contains(dir));
        }
        let from = self.store.counter_values();
        let mut ops = 0;
        while self.store.counter_values().bytes_written - from.bytes_written < bytes {
            ops += 1;
            match tail {
                Tail::Mixed => self.mixed(&mut rng),
                Tail::Scattered => {
                    let no = rng.pick(&self.made.files).0;
                    let op = self.store.begin(Cost::write(0)).unwrap();
                    let perm = rng.below(0o1000) as u16;
                    op.lock(&[no]).unwrap().set_attr(
                        no,
                        teal_log::AttributeChanges {
                            perm: Some(perm),
                            ..Default::default()
                        },
                    );
                }
            }
            if ops % if tail == Tail::Mixed { 8 } else { 2000 } == 0 {
                self.store.commit().unwrap();
            }
        }
        self.store.commit().unwrap();
    }
}

struct Row {
    gib: u64,
    files: u64,
    tail: Tail,
    distance: u64,
}

impl Row {
    fn text(&self) -> String {
        let (tail, mib) = (
            format!("{:?}", self.tail).to_lowercase(),
            self.distance >> 20,
        );
        format!("{} GiB | {} | {tail}, {mib} MiB", self.gib, self.files)
    }
}

/// Nothing of it is in the page cache.
fn forget(path: &Path) {
    let of = format!("of={}", path.display());
    let done = Command::new("dd")
        .args([
            &of,
            "oflag=nocache",
            "conv=notrunc,fdatasync",
            "count=0",
            "status=none",
        ])
        .status();
    assert!(done.unwrap().success());
}

/// A store with files, closed; and which files.
fn filled(gib: u64, files: u64, path: &Path) -> Made {
    let _ = std::fs::remove_file(path);
    let disk = Counted::open(path, OpenMode::Create(gib * GIB));
    Store::mkfs(
        disk.clone(),
        Arc::new(SystemClock),
        &SystemEntropy,
        &MkfsOptions::default(),
    )
    .unwrap();
    let mut worked = Worked {
        store: open(disk, DISTANCES[0]).0,
        made: Made::default(),
    };
    worked.fill(files);
    worked.store.commit().unwrap();
    worked.store.close().unwrap();
    worked.made
}

/// Works on a copy of the store and crashes; opens it again and again.
fn measure(row: &Row, made: &Made, template: &Path, path: &Path, rounds: usize) {
    let copied = Command::new("cp")
        .arg("--sparse=always")
        .args([template, path])
        .status();
    assert!(copied.unwrap().success());
    // No checkpoint comes by itself here: nothing calls `tick`.
    let store = open(Counted::open(path, OpenMode::Write), row.distance).0;
    let mut worked = Worked {
        store,
        made: made.clone(),
    };
    worked.work(row.tail, row.distance * 19 / 20);
    drop(worked);

    let (mut times, mut spent, mut last) = (Vec::new(), Vec::new(), None);
    for _ in 0..rounds {
        // It holds the lock of the file.
        drop(last.take());
        forget(path);
        let disk = Counted::open(path, OpenMode::Write);
        let (begin, cpu) = (SystemClock.monotonic_time(), on_cpu());
        let (store, recovery) = open(Arc::clone(&disk), row.distance);
        times.push(SystemClock.monotonic_time() - begin);
        spent.push(on_cpu() - cpu);
        assert!(recovery.batches > 0 && store.counter_values().writes == 0);
        last = Some((disk, recovery));
    }
    times.sort();
    spent.sort();
    let (disk, recovery) = last.unwrap();
    println!(
        "| {} | {} | {:.1} | {} | {:.1} | {} | {:.3} | {:.3} | {:.2} |",
        row.text(),
        recovery.batches,
        recovery.bytes as f64 / 1048576.0,
        disk.reads.load(Relaxed),
        disk.bytes.load(Relaxed) as f64 / 1048576.0,
        disk.repositionings.load(Relaxed),
        times[times.len() / 2].as_secs_f64(),
        spent[spent.len() / 2].as_secs_f64(),
        disk.modelled().as_secs_f64(),
    );
    std::fs::remove_file(path).unwrap();
}

/// Returns what this thread has spent on a processor: the machine may have more to do.
fn on_cpu() -> Duration {
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(spent.split_whitespace().next().unwrap().parse().unwrap())
}

fn stop() -> ! {
    println!("{HELP}");
    std::process::exit(2)
}

fn main() {
    let (mut dir, mut rounds, mut largest, mut pattern) =
        (PathBuf::from("."), 5, 1_000_000, String::new());
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let Some(value) = args.next() else { stop() };
        match arg.as_str() {
            "--dir" => dir = value.into(),
            "--rounds" => {
                rounds = value
                    .parse()
                    .ok()
                    .filter(|n| *n > 0)
                    .unwrap_or_else(|| stop())
            }
            "--largest" => largest = value.parse().unwrap_or_else(|_| stop()),
            "--rows" => pattern = value,
            _ => stop(),
        }
    }
    std::fs::create_dir_all(&dir).unwrap();
    let sizes = [1, 16, 256, 1024].map(|gib| (gib, 10_000));
    let counts = [1_000, 100_000, 1_000_000].map(|files| (16, files));
    let stores = sizes
        .into_iter()
        .chain(counts)
        .chain([(1, 1_000_000), (1024, 1_000_000)]);
    let tails = [(Tail::Mixed, 0), (Tail::Mixed, 1), (Tail::Scattered, 1)];
    println!(
        "| store | files | tail of the log | batches | MiB of log | reads | MiB read | repositionings | seconds | on a processor | Microdrive, modelled |"
    );
    println!("|---|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|");
    let (template, path) = (dir.join("filled.teal"), dir.join("recovery.teal"));
    for (gib, files) in stores.filter(|(_, files)| *files <= largest) {
        let rows = tails.map(|(tail, distance)| Row {
            gib,
            files,
            tail,
            distance: DISTANCES[distance],
        });
        let rows: Vec<_> = rows
            .into_iter()
            .filter(|row| row.text().contains(&pattern))
            .collect();
        if !rows.is_empty() {
            let made = filled(gib, files, &template);
            rows.iter()
                .for_each(|row| measure(row, &made, &template, &path, rounds));
            std::fs::remove_file(&template).unwrap();
        }
    }
}
