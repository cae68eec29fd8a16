//! Loads that make a store work near its limits, driven through the client, the same for every
//! seed.
//!
//! # How
//! 1. The store is filled until this share of it lives. 2. It is overwritten until the cleaner has
//!    found its pace. 3. Then counters tell what the device wrote for what the user wrote.
//!
//! Time passes as on a device of 100 MB/s; the background thread gets a step for every 4 MiB, when
//! the bell would ring.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail")]

use std::sync::Arc;
use std::time::Duration;
use teal_env::{Disk, MemDisk};
use teal_log::{CheckOptions, Counts, MkfsOptions, OpenOptions, SpaceStatus, Store};
use teal_posix::{Caller, FileSystem, FileSystemOptions, FsError, WriteFlags};
use teal_testkit::{Rng, SeededEntropy, SimClock};
use teal_types::{BLOCK, ObjectNo};

const CALLER: Caller = Caller {
    uid: 0,
    gid: 0,
    pid: 1,
    umask: 0,
};
/// Nanoseconds a byte takes on the device that time is told by.
const PER_BYTE: u64 = 10;
/// Written between two steps of the background.
const STEP: u64 = 4 << 20;
/// Most files of a directory.
const CROWD: usize = 1000;

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Any place of any file.
    Uniform,
    /// Nine of ten writes to a tenth of the files, as in Rosenblum and Ousterhout.
    HotCold,
    /// Small files, 1 to 16 KiB: one deleted, one made.
    Files,
}

/// A load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) mib: u64,
    /// Percent of the store's size that lives.
    pub(crate) percent: u64,
    pub(crate) pattern: Pattern,
    /// Bytes of one write.
    pub(crate) io: usize,
    /// Bytes of one file that is overwritten.
    pub(crate) file: u64,
    /// Whether a background thread works.
    pub(crate) background: bool,
    /// Writes between two `fsync`; 0: none.
    pub(crate) sync: u64,
    pub(crate) seed: u64,
}

/// What a load has cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spent {
    /// Bytes the user wrote.
    pub(crate) user: u64,
    pub(crate) counts: Counts,
}

impl Spent {
    /// Bytes of one kind for one byte of the user.
    pub(crate) fn per_user(&self, bytes: u64) -> f64 {
        bytes as f64 / self.user as f64
    }
}

pub(crate) struct Run {
    pub(crate) load: Load,
    disk: Arc<MemDisk>,
    pub(crate) clock: SimClock,
    pub(crate) client: Arc<FileSystem>,
    rng: Rng,
    pub(crate) files: Vec<ObjectNo>,
    /// Small files: directory, name, bytes.
    pub(crate) small: Vec<(ObjectNo, u64, u64)>,
    dirs: Vec<ObjectNo>,
    pub(crate) made: u64,
    pub(crate) written: u64,
    since_step: u64,
    writes: u64,
}

impl Run {
    /// A store that is filled as the load says.
    pub(crate) fn new(load: Load) -> Self {
        let (disk, clock) = (Arc::new(MemDisk::new(load.mib << 11)), SimClock::default());
        let entropy = SeededEntropy::new(load.seed);
        Store::mkfs(
            Arc::clone(&disk) as _,
            Arc::new(clock.clone()),
            &entropy,
            &MkfsOptions::default(),
        )
        .unwrap();
        let client = Self::open(&disk, &clock);
        let rng = Rng::new(load.seed);
        let mut run = Self {
            load,
            disk,
            clock,
            client,
            rng,
            files: Vec::new(),
            small: Vec::new(),
            dirs: Vec::new(),
            made: 0,
            written: 0,
            since_step: 0,
            writes: 0,
        };
        run.fill();
        run
    }

    fn open(disk: &Arc<MemDisk>, clock: &SimClock) -> Arc<FileSystem> {
        let disk: Arc<dyn Disk> = Arc::clone(disk) as _;
        let (store, _) =
            Store::open(disk, Arc::new(clock.clone()), OpenOptions::default()).unwrap();
        FileSystem::new(store, Arc::new(clock.clone()), FileSystemOptions::default()).unwrap()
    }

    /// Closes the store, opens it again and looks at all of it.
    pub(crate) fn is_whole_after_reopening(&mut self) {
        self.client.shutdown().unwrap();
        self.client = Self::open(&self.disk, &self.clock);
        let report = self
            .client
            .store()
            .check(CheckOptions { verify_data: true }, &mut |_| {});
        assert!(report.is_clean(), "{:?}: {:#?}", self.load, report.problems);
    }

    pub(crate) fn space(&self) -> SpaceStatus {
        self.client.store().space()
    }

    fn wants_more(&self) -> bool {
        self.space().live * 100 < (self.load.mib << 20) * self.load.percent
    }

    /// Files until this share of what files can take is taken.
    pub(crate) fn fill_files(&mut self, percent: u64) {
        loop {
            let space = self.space();
            if (space.total - space.free + self.load.file) * 100 > space.total * percent {
                break self.client.sync().unwrap();
            }
            let name = format!("file-{}", self.files.len());
            let no = self.create(ObjectNo::ROOT, &name).unwrap();
            self.write(no, 0, self.load.file as usize).unwrap();
            self.files.push(no);
            self.client.sync().unwrap();
        }
    }

    fn fill(&mut self) {
        while self.wants_more() {
            match self.load.pattern {
                Pattern::Files => self.make_small().unwrap(),
                Pattern::Uniform | Pattern::HotCold => {
                    let name = format!("file-{}", self.files.len());
                    let no = self.create(ObjectNo::ROOT, &name).unwrap();
                    let mut at = 0;
                    while at < self.load.file && self.wants_more() {
                        self.write(no, at, 1 << 18).unwrap();
                        at += 1 << 18;
                    }
                    if at == self.load.file {
                        self.files.push(no);
                    } else {
                        break;
                    }
                }
            }
            self.client.sync().unwrap();
        }
        self.client.sync().unwrap();
    }

    pub(crate) fn create(&mut self, dir: ObjectNo, name: &str) -> Result<ObjectNo, FsError> {
        let no = self
            .client
            .create(&CALLER, dir, name.as_bytes(), 0o644, true)?
            .object;
        self.client.release(no, 1);
        Ok(no)
    }

    fn make_small(&mut self) -> Result<(), FsError> {
        if self.small.len() >= self.dirs.len() * CROWD {
            let name = format!("dir-{}", self.dirs.len());
            let dir = self
                .client
                .mkdir(&CALLER, ObjectNo::ROOT, name.as_bytes(), 0o755)?
                .object;
            self.client.release(dir, 1);
            self.dirs.push(dir);
        }
        let dir = *self.rng.pick(&self.dirs);
        let bytes = 1024 + self.rng.below(15 * 1024);
        let name = self.made;
        self.made += 1;
        let no = self.create(dir, &format!("small-{name}"))?;
        self.write(no, 0, bytes as usize)?;
        self.small.push((dir, name, bytes));
        Ok(())
    }

    pub(crate) fn write(&mut self, no: ObjectNo, at: u64, len: usize) -> Result<(), FsError> {
        let mut data = vec![0; len];
        for piece in data.chunks_mut(BLOCK as usize) {
            // Enough that no two blocks are equal; filling all of it would take longer than the
            // store does.
            let n = piece.len().min(16);
            self.rng.fill(&mut piece[..n]);
        }
        self.client.write(no, at, &data, WriteFlags::default())?;
        self.writes += 1;
        self.pass(len as u64);
        Ok(())
    }

    /// Lets time pass, and the background thread work.
    fn pass(&mut self, bytes: u64) {
        self.written += bytes;
        self.since_step += bytes;
        self.clock.advance(Duration::from_nanos(bytes * PER_BYTE));
        if self.load.sync > 0 && self.writes.is_multiple_of(self.load.sync) {
            self.client.sync().unwrap();
        }
        if self.since_step >= STEP {
            self.since_step = 0;
            if self.load.background {
                self.client.step();
            } else {
                self.client.store().tick().unwrap();
            }
        }
    }

    /// One write of the load.
    pub(crate) fn change(&mut self) -> Result<(), FsError> {
        if self.load.pattern == Pattern::Files {
            let at = self.rng.pick_index(self.small.len());
            let (dir, name, _) = self.small.swap_remove(at);
            self.client
                .unlink(dir, format!("small-{name}").as_bytes())?;
            return self.make_small();
        }
        let hot = (self.files.len() / 10).max(1);
        let file = match self.load.pattern {
            Pattern::HotCold if self.rng.chance(0.9) => self.rng.pick_index(hot),
            Pattern::HotCold => hot + self.rng.pick_index(self.files.len() - hot),
            _ => self.rng.pick_index(self.files.len()),
        };
        let at = self.rng.below(self.load.file / self.load.io as u64) * self.load.io as u64;
        self.write(self.files[file], at, self.load.io)
    }

    /// Writes this many bytes, and says what that took.
    pub(crate) fn spend(&mut self, bytes: u64) -> Spent {
        let (from, before) = (self.written, self.client.store().counter_values());
        while self.written < from + bytes {
            self.change()
                .unwrap_or_else(|e| panic!("{e}: {:?}", self.space()));
        }
        Spent {
            user: self.written - from,
            counts: self.client.store().counter_values().since(&before),
        }
    }
}
