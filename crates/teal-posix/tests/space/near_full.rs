//! A life at the edge: the store is as full as it gets nearly all the time.
//!
//! Whatever happens, room may be refused only to what makes the store fuller, and only if hardly
//! any is left; commits, deletions, closing and opening always work, and no operation makes the
//! device write without end.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail")]

use std::sync::Arc;
use std::time::Duration;
use teal_env::{Disk, MemDisk};
use teal_log::{CheckOptions, Cost, MkfsOptions, OpenOptions, Store, StoreSettings};
use teal_posix::{
    Caller, FallocateMode, FileSystem, FileSystemOptions, FsError, SetAttrRequest, WriteFlags,
    XattrMode,
};
use teal_testkit::{Rng, SeededEntropy, SimClock};
use teal_types::{BLOCK, ObjectNo};

const CALLER: Caller = Caller {
    uid: 0,
    gid: 0,
    pid: 1,
    umask: 0,
};
const DIRS: usize = 8;
/// Bytes the device may write for one operation, in units of the store's size.
const MOST_WRITTEN: u64 = 4;
/// What must still fit when an operation is refused: nothing large.
const LEFT: u64 = 3 << 20;

#[derive(Debug, Clone)]
struct File {
    dir: usize,
    name: Vec<u8>,
    no: ObjectNo,
    size: u64,
}

/// How a life is to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) mib: u64,
    pub(crate) seed: u64,
    pub(crate) ops: u64,
    pub(crate) background: bool,
    /// Largest write.
    pub(crate) largest: usize,
    /// Files to make many of: small ones.
    pub(crate) small: bool,
}

/// What a life has seen: one that saw nothing must not pass.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) refused: u64,
    pub(crate) removed: u64,
    pub(crate) reopened: u64,
    pub(crate) cleaned: u64,
    pub(crate) most_written: u64,
}

struct Life {
    plan: Plan,
    disk: Arc<MemDisk>,
    clock: SimClock,
    client: Arc<FileSystem>,
    rng: Rng,
    dirs: Vec<ObjectNo>,
    files: Vec<File>,
    made: u64,
    seen: Seen,
}

fn open(disk: &Arc<MemDisk>, clock: &SimClock, rng: &mut Rng) -> Arc<FileSystem> {
    let disk: Arc<dyn Disk> = Arc::clone(disk) as _;
    let settings = StoreSettings {
        cached_objects: 256,
        batch_bytes: *rng.pick(&[1 << 20, 16 << 20]),
        ..StoreSettings::default()
    };
    let options = OpenOptions {
        settings,
        ..OpenOptions::default()
    };
    let (store, _) = Store::open(disk, Arc::new(clock.clone()), options).unwrap();
    FileSystem::new(
        store,
        Arc::new(clock.clone()),
        FileSystemOptions {
            reclaim_step: 4 << 20,
            ..FileSystemOptions::default()
        },
    )
    .unwrap()
}

/// Lives a plan; panics where a promise is broken.
pub(crate) fn live(plan: Plan) -> Seen {
    let (disk, clock) = (Arc::new(MemDisk::new(plan.mib << 11)), SimClock::default());
    let entropy = SeededEntropy::new(plan.seed);
    Store::mkfs(
        Arc::clone(&disk) as _,
        Arc::new(clock.clone()),
        &entropy,
        &MkfsOptions::default(),
    )
    .unwrap();
    let mut rng = Rng::new(plan.seed);
    let client = open(&disk, &clock, &mut rng);
    let mut dirs = Vec::new();
    for i in 0..DIRS {
        let dir = client
            .mkdir(&CALLER, ObjectNo::ROOT, format!("d{i}").as_bytes(), 0o755)
            .unwrap()
            .object;
        client.release(dir, 1);
        dirs.push(dir);
    }
    let (files, seen) = (Vec::new(), Seen::default());
    let mut life = Life {
        plan,
        disk,
        clock,
        client,
        rng,
        dirs,
        files,
        made: 0,
        seen,
    };
    for turn in 0..plan.ops {
        life.turn(turn);
    }
    life.reopen(true);
    // All of it comes back.
    for file in std::mem::take(&mut life.files) {
        life.client.unlink(life.dirs[file.dir], &file.name).unwrap();
    }
    life.reopen(true);
    let space = life.client.store().space();
    assert!(
        space.free + LEFT > space.total,
        "{plan:?}: {space:?} after all was deleted"
    );
    life.seen
}

impl Life {
    fn turn(&mut self, turn: u64) {
        let before = self.client.store().counter_values().bytes_written;
        let reopens = self.rng.below(self.plan.ops / 8) == 0;
        if reopens {
            let clean = self.rng.chance(0.5);
            self.reopen(clean);
            return;
        }
        match self.act() {
            Ok(()) => {}
            Err(FsError::NoSpace) => self.refused(turn),
            Err(e) => panic!("{:?}, turn {turn}: {e}", self.plan),
        }
        self.clock
            .advance(Duration::from_millis(self.rng.below(40)));
        if self.rng.below(50) == 0 {
            self.client
                .sync()
                .unwrap_or_else(|e| panic!("{:?}, turn {turn}: sync: {e}", self.plan));
        }
        if self.plan.background {
            self.client.step();
        } else {
            self.client
                .store()
                .tick()
                .unwrap_or_else(|e| panic!("{:?}, turn {turn}: tick: {e}", self.plan));
        }
        let written = self.client.store().counter_values().bytes_written - before;
        self.seen.most_written = self.seen.most_written.max(written);
        assert!(
            written < MOST_WRITTEN * (self.plan.mib << 20),
            "{:?}, turn {turn}: {written} bytes",
            self.plan
        );
    }

    /// Only a full store refuses; then something is deleted.
    fn refused(&mut self, turn: u64) {
        self.seen.refused += 1;
        let space = self.client.store().space();
        let most = LEFT + self.plan.largest as u64;
        assert!(
            space.free < most,
            "{:?}, turn {turn}: refused with {space:?}",
            self.plan
        );
        for _ in 0..1 + self.rng.below(4) {
            self.remove().unwrap_or_else(|e| {
                panic!("{:?}, turn {turn}: {e} on deleting; {space:?}", self.plan)
            });
        }
    }

    fn act(&mut self) -> Result<(), FsError> {
        let space = self.client.store().space();
        if space.free > space.total / 20 && self.rng.chance(0.5) {
            return (0..20).try_for_each(|_| self.create());
        }
        match self.rng.below(100) {
            0..25 => self.create(),
            25..65 => self.overwrite(),
            65..75 => self.append(),
            75..82 => self.must(Self::remove),
            82..87 => self.must(Self::cut),
            87..90 => self.must(Self::punch),
            90..93 => self.xattr(),
            93..97 => self.rename(),
            _ => self.link(),
        }
    }

    /// Carries out what gives space back, which is never refused.
    fn must(&mut self, act: fn(&mut Self) -> Result<(), FsError>) -> Result<(), FsError> {
        let done = act(self);
        assert!(
            !matches!(done, Err(FsError::NoSpace)),
            "{:?}: refused: {:?}",
            self.plan,
            self.client.store().space()
        );
        done
    }

    fn name(&mut self) -> Vec<u8> {
        self.made += 1;
        let len = *self.rng.pick(&[8, 12, 30, 200]);
        format!("{:x>len$}", format!("-{}", self.made)).into_bytes()
    }

    fn data(&mut self, len: usize) -> Vec<u8> {
        let mut data = vec![0; len];
        for piece in data.chunks_mut(BLOCK as usize) {
            let n = piece.len().min(16);
            self.rng.fill(&mut piece[..n]);
        }
        data
    }

    fn length(&mut self) -> usize {
        let largest = self.plan.largest;
        if self.plan.small && self.rng.chance(0.95) {
            return self.rng.pick_index(6000);
        }
        *self
            .rng
            .pick(&[1, 100, 3000, 4096, 20_000, 100_000, largest])
    }

    fn create(&mut self) -> Result<(), FsError> {
        let (dir, name) = (self.rng.pick_index(DIRS), self.name());
        let attr = self
            .client
            .create(&CALLER, self.dirs[dir], &name, 0o644, true)?;
        self.client.release(attr.object, 1);
        self.files.push(File {
            dir,
            name,
            no: attr.object,
            size: 0,
        });
        let len = self.length();
        self.write(self.files.len() - 1, 0, len)
    }

    fn write(&mut self, at: usize, offset: u64, len: usize) -> Result<(), FsError> {
        let data = self.data(len);
        let done = self
            .client
            .write(self.files[at].no, offset, &data, WriteFlags::default())?;
        let file = &mut self.files[at];
        file.size = file.size.max(offset + done as u64);
        Ok(())
    }

    fn pick(&mut self) -> Option<usize> {
        (!self.files.is_empty()).then(|| self.rng.pick_index(self.files.len()))
    }

    /// Small pieces in the midst of large files: what wears the maps most.
    fn overwrite(&mut self) -> Result<(), FsError> {
        for _ in 0..1 + self.rng.below(20) {
            let Some(at) = self.pick() else { return Ok(()) };
            let blocks = self.files[at].size / BLOCK;
            if blocks > 0 {
                let offset = self.rng.below(blocks) * BLOCK;
                let len = *self.rng.pick(&[1, 4096, 4096, 4096, 65536]);
                self.write(at, offset, len.min((self.files[at].size - offset) as usize))?;
            }
        }
        Ok(())
    }

    fn append(&mut self) -> Result<(), FsError> {
        let Some(at) = self.pick() else { return Ok(()) };
        let len = self.length();
        self.write(at, self.files[at].size, len)
    }

    fn remove(&mut self) -> Result<(), FsError> {
        let Some(at) = self.pick() else { return Ok(()) };
        let file = self.files.swap_remove(at);
        self.seen.removed += 1;
        self.client.unlink(self.dirs[file.dir], &file.name)
    }

    fn cut(&mut self) -> Result<(), FsError> {
        let Some(at) = self.pick() else { return Ok(()) };
        if self.files[at].size == 0 {
            return Ok(());
        }
        let size = self.rng.below(self.files[at].size);
        let set = SetAttrRequest {
            size: Some(size),
            ..SetAttrRequest::default()
        };
        self.client.setattr(self.files[at].no, &set)?;
        let no = self.files[at].no;
        for file in self.files.iter_mut().filter(|file| file.no == no) {
            file.size = size;
        }
        Ok(())
    }

    fn punch(&mut self) -> Result<(), FsError> {
        let Some(at) = self.pick() else { return Ok(()) };
        let file = self.files[at].clone();
        let offset = self.rng.below(file.size + 1);
        let len = 1 + self.rng.below(file.size + 1);
        self.client.fallocate(
            file.no,
            FallocateMode::PunchHole,
            offset,
            len,
            Default::default(),
        )
    }

    fn xattr(&mut self) -> Result<(), FsError> {
        let Some(at) = self.pick() else { return Ok(()) };
        let len = *self.rng.pick(&[10, 1000, 20_000, 60_000]);
        let value = self.data(len);
        self.client
            .setxattr(self.files[at].no, b"user.x", &value, XattrMode::Any, false)
    }

    fn rename(&mut self) -> Result<(), FsError> {
        let Some(at) = self.pick() else { return Ok(()) };
        let (to, name) = (self.rng.pick_index(DIRS), self.name());
        let file = self.files[at].clone();
        let mode = teal_posix::RenameMode::NoReplace;
        self.client
            .rename(self.dirs[file.dir], &file.name, self.dirs[to], &name, mode)?;
        (self.files[at].dir, self.files[at].name) = (to, name);
        Ok(())
    }

    fn link(&mut self) -> Result<(), FsError> {
        let Some(at) = self.pick() else { return Ok(()) };
        let (dir, name) = (self.rng.pick_index(DIRS), self.name());
        let file = self.files[at].clone();
        let attr = self.client.link(file.no, self.dirs[dir], &name)?;
        self.client.release(attr.object, 1);
        self.files.push(File { dir, name, ..file });
        Ok(())
    }

    fn reopen(&mut self, clean: bool) {
        let plan = self.plan;
        self.seen.cleaned += self.client.store().counter_values().segments_cleaned;
        if clean {
            self.client
                .shutdown()
                .unwrap_or_else(|e| panic!("{plan:?}: closing: {e}"));
        } else {
            self.client
                .sync()
                .unwrap_or_else(|e| panic!("{plan:?}: sync: {e}"));
        }
        self.client = open(&self.disk, &self.clock, &mut self.rng);
        // As the background thread does when it starts.
        for no in self.client.store().orphans().unwrap() {
            let op = self
                .client
                .store()
                .begin(Cost::free())
                .unwrap_or_else(|e| panic!("{plan:?}: orphan: {e}"));
            op.lock(&[no]).unwrap().free_object(no).unwrap();
        }
        let report = self
            .client
            .store()
            .check(CheckOptions { verify_data: true }, &mut |_| {});
        assert!(report.is_clean(), "{plan:?}: {:#?}", report.problems);
        self.seen.reopened += 1;
    }
}
