//! A life of a store: random operations on it and on the oracle, with notes in the trace of what
//! was submitted and promised.
//!
//! The state that a crash may show is the oracle's after some batch. Batches end at commits, those
//! that the store makes on its own while an operation waits for room included: the counter of
//! batches tells.

#![allow(clippy::unwrap_used, reason = "all of it is test code")]

use crate::oracle::{Bytes, Content, Model, Object};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use teal_env::Disk;
use teal_log::{
    AttributeChanges, Cost, NewObject, OpenOptions, SpacePurpose, Store, StoreCounts, StoreError,
    StoreOpenError, StoreOperation, StoreOwner, StoreSettings,
};
use teal_testkit::{RecordingDisk, Rng, SimClock};
use teal_types::{FileType, Name, ObjectNo, Timestamp};

/// Bytes of a segment in the small stores of these lives.
const SEGMENT: u64 = 512 << 10;
/// Notes in a trace: twice the number of operations, plus 1 when they are promised to be durable.
pub(crate) fn submitted(ops: u64) -> u64 {
    ops * 2
}
pub(crate) fn promised(ops: u64) -> u64 {
    ops * 2 + 1
}

/// What happened over all lives: a run that saw nothing must not pass.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    pub(crate) ops: u64,
    pub(crate) refused: u64,
    pub(crate) commits: u64,
    /// Batches that were written and not durable yet.
    pub(crate) written: u64,
    pub(crate) checkpoints: u64,
    pub(crate) cleaned: u64,
    pub(crate) large_batches: u64,
    pub(crate) reopened: u64,
    pub(crate) closed: u64,
    pub(crate) shared: u64,
    /// Objects made with the number of one that is gone.
    pub(crate) reused: u64,
    /// Files for which room was set aside.
    pub(crate) preallocated: u64,
}

/// How a life is to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Share of operations that write much.
    pub(crate) heavy: f64,
    /// Bytes kept free at least, so that a store stays away from its limits; 0 runs into them.
    pub(crate) spare: u64,
    /// Operations before a commit, on average.
    pub(crate) batch: u64,
}

pub(crate) struct Life {
    pub(crate) note: RecordingDisk,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) store: Arc<Store>,
    pub(crate) clock: SimClock,
    pub(crate) rng: Rng,
    pub(crate) model: Model,
    /// Operations done.
    pub(crate) ops: u64,
    /// The states at the ends of batches, by number of operations.
    pub(crate) batches: BTreeMap<u64, Model>,
    pub(crate) plan: Plan,
    pub(crate) seen: Seen,
    next_name: u64,
}

/// Small steps, so that a short life has checkpoints of every kind.
pub(crate) fn options() -> OpenOptions {
    let settings = StoreSettings {
        commit_interval: Duration::from_secs(5),
        checkpoint_interval: Duration::from_secs(30),
        checkpoint_bytes: 400_000,
        cached_objects: 256,
        clean_below_percent: 60,
        ..StoreSettings::default()
    };
    let owner = StoreOwner::new([1; 16], [2; 16], "life");
    OpenOptions {
        settings,
        owner,
        ..OpenOptions::default()
    }
}

pub(crate) fn open(disk: &Arc<dyn Disk>, clock: &SimClock) -> Result<Arc<Store>, StoreOpenError> {
    Ok(Store::open(Arc::clone(disk), Arc::new(clock.clone()), options())?.0)
}

/// Returns what mkfs leaves: a root.
pub(crate) fn fresh(store: &Store) -> Model {
    let attr = store.attr(ObjectNo::ROOT).unwrap();
    let root = Object {
        kind: FileType::Dir,
        perm: attr.perm,
        owner: (attr.uid, attr.gid),
        rdev: 0,
        times: [attr.atime, attr.mtime, attr.ctime, attr.btime],
        links: Default::default(),
        xattrs: BTreeMap::new(),
        content: Content::Dir(BTreeMap::new()),
        orphan: false,
    };
    Model {
        objects: BTreeMap::from([(ObjectNo::ROOT, Arc::new(root))]),
        notes: BTreeMap::new(),
    }
}

type Done = Result<(), StoreError>;

impl Life {
    pub(crate) fn new(
        note: RecordingDisk,
        disk: Arc<dyn Disk>,
        store: Arc<Store>,
        clock: SimClock,
        rng: Rng,
        model: Model,
        plan: Plan,
    ) -> Self {
        let batches = BTreeMap::from([(0, model.clone())]);
        let seen = Seen::default();
        Self {
            note,
            disk,
            store,
            clock,
            rng,
            model,
            ops: 0,
            batches,
            plan,
            seen,
            next_name: 0,
        }
    }

    fn count(&mut self, before: &StoreCounts) {
        let now = self.store.counter_values();
        self.seen.checkpoints += now.checkpoints - before.checkpoints;
        self.seen.cleaned += now.segments_cleaned - before.segments_cleaned;
        self.seen.commits += now.batches - before.batches;
        self.seen.large_batches += u64::from(
            now.bytes_written - before.bytes_written > SEGMENT * (now.batches - before.batches),
        );
    }

    /// Does what may end a batch, and notes what that submits and promises.
    pub(crate) fn ending<T>(
        &mut self,
        act: impl FnOnce(&Store) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.note.add_mark(submitted(self.ops));
        self.batches.insert(self.ops, self.model.clone());
        let before = self.store.counter_values();
        let store = Arc::clone(&self.store);
        let done = act(&store);
        self.count(&before);
        let after = self.store.counter_values();
        if after.barriers != before.barriers && !self.store.is_poisoned() && !self.store.is_dirty()
        {
            self.note.add_mark(promised(self.ops));
        }
        self.seen.written += u64::from(after.batches != before.batches && self.store.is_dirty());
        done
    }

    /// Starts an operation; `None` when there is no room for it.
    fn room<'s>(
        &mut self,
        store: &'s Store,
        cost: Cost,
    ) -> Result<Option<StoreOperation<'s>>, StoreError> {
        if cost.purpose() != SpacePurpose::Frees
            && store.space().free < cost.bytes() + self.plan.spare
        {
            self.seen.refused += 1;
            return Ok(None);
        }
        let is_known = self.batches.contains_key(&self.ops);
        let batches = store.counter_values().batches;
        let done = self.ending(|_| store.begin(cost));
        if store.counter_values().batches == batches && !is_known {
            self.batches.remove(&self.ops);
        }
        match done {
            Ok(op) => Ok(Some(op)),
            Err(StoreError::NoSpace) => {
                self.seen.refused += 1;
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    fn stamp(&mut self) -> Timestamp {
        Timestamp::new(
            self.rng.below(2_000_000_000) as i64,
            self.rng.below(1_000_000_000) as u32,
        )
    }

    fn name(&mut self) -> Name {
        self.next_name += 1;
        let len = *self.rng.pick(&[3, 8, 20, 120, 250]);
        let text = format!("{:x}-{}", self.rng.next_u64() >> 44, self.next_name);
        Name::new(format!("{text:x<len$}").as_bytes()).unwrap()
    }

    fn data(&mut self, len: usize) -> Vec<u8> {
        let mut data = vec![0; len];
        self.rng.fill(&mut data);
        data
    }

    fn pick(&mut self, kind: FileType) -> Option<ObjectNo> {
        let of = self.model.of_kind(kind);
        if of.is_empty() {
            None
        } else {
            Some(*self.rng.pick(&of))
        }
    }

    /// One random operation; `Ok(false)` when it found nothing to work on or no room.
    pub(crate) fn step(&mut self) -> Result<bool, StoreError> {
        let done = match self.rng.below(116) {
            0..20 => self.create(),
            20..42 => self.write(),
            42..50 => self.truncate(),
            50..54 => self.punch(),
            54..59 => self.set_attr(),
            59..66 => self.set_xattr(),
            66..71 => self.link(),
            71..82 => self.unlink(),
            82..92 => self.rename(),
            92..96 => self.reclaim(),
            96..100 => self.crowd(),
            100..110 => self.share(),
            _ => self.preallocate(),
        }?;
        self.ops += u64::from(done);
        self.seen.ops += u64::from(done);
        Ok(done)
    }

    fn create(&mut self) -> Result<bool, StoreError> {
        use FileType::{Block, Char, Dir, Fifo, File, Socket, Symlink};
        let kind = *self.rng.pick(&[
            File, File, File, File, Dir, Dir, Symlink, Fifo, Socket, Char, Block,
        ]);
        let Some(dir) = self.pick(Dir) else {
            return Ok(false);
        };
        if self.model.objects[&dir].orphan {
            return Ok(false);
        }
        self.create_in(dir, kind)
    }

    /// Adds the names and extended attributes of objects that an operation may log again.
    fn with_heads(&self, cost: Cost, of: &[ObjectNo]) -> Result<Cost, StoreError> {
        let heads = of.iter().map(|no| self.store.head_bytes(*no));
        Ok(cost.with_head(heads.sum::<Result<u64, _>>()?))
    }

    fn create_in(&mut self, dir: ObjectNo, kind: FileType) -> Result<bool, StoreError> {
        let store = Arc::clone(&self.store);
        let cost = self.with_heads(Cost::create(), &[dir])?;
        let Some(op) = self.room(&store, cost)? else {
            return Ok(false);
        };
        let (name, now) = (self.name(), self.stamp());
        let (uid, gid, perm) = (
            self.rng.below(9) as u32,
            self.rng.below(9) as u32,
            self.rng.below(0o7777) as u16,
        );
        let rdev = if matches!(kind, FileType::Char | FileType::Block) {
            self.rng.below(1 << 32) as u32
        } else {
            0
        };
        let target_len = 1 + self.rng.pick_index(4000);
        let target = if kind == FileType::Symlink {
            self.data(target_len)
        } else {
            Vec::new()
        };
        // Some objects never get a name: temporary files.
        let is_orphan = kind == FileType::File && self.rng.chance(0.1);
        let mut locked = op.lock(&[dir])?;
        let new = NewObject {
            kind,
            perm,
            uid,
            gid,
            rdev,
            now,
        };
        // Now and then with a number that another object has had.
        let first = ObjectNo::FIRST_FREE.get();
        let again = ObjectNo::new(first + self.rng.below((store.next_number() - first).max(1)));
        let is_free = !self.model.objects.contains_key(&again) && !store.is_leaving(again);
        let no = if is_free && self.rng.chance(0.5) {
            locked.create_as(again, new)?;
            self.seen.reused += 1;
            again
        } else {
            locked.create(new)
        };
        if kind == FileType::Symlink {
            locked.set_target(no, &target);
        }
        if is_orphan {
            locked.set_orphan(no, true)?;
        } else {
            locked.insert_entry(dir, &name, no)?;
        }
        drop(locked);
        drop(op);
        let content = match kind {
            FileType::File => Content::File(Bytes::default()),
            FileType::Symlink => Content::Target(target),
            FileType::Dir => Content::Dir(BTreeMap::new()),
            _ => Content::None,
        };
        let links = if is_orphan {
            Default::default()
        } else {
            [(dir, name.clone())].into()
        };
        let (owner, times, xattrs) = ((uid, gid), [now; 4], BTreeMap::new());
        let object = Object {
            kind,
            perm,
            owner,
            rdev,
            times,
            links,
            xattrs,
            content,
            orphan: is_orphan,
        };
        self.model.objects.insert(no, Arc::new(object));
        if !is_orphan {
            self.model.dir(dir).insert(name, no);
        }
        Ok(true)
    }

    /// Many names in one directory, or all of them gone: from inline to tree and back.
    fn crowd(&mut self) -> Result<bool, StoreError> {
        let Some(dir) = self
            .pick(FileType::Dir)
            .filter(|d| !self.model.objects[d].orphan)
        else {
            return Ok(false);
        };
        if self.model.dir(dir).len() > 30 {
            let names: Vec<_> = self
                .model
                .dir(dir)
                .iter()
                .map(|(n, c)| (n.clone(), *c))
                .collect();
            for (name, child) in names {
                if self.model.objects[&child].kind != FileType::Dir && self.rng.chance(0.9) {
                    self.ops += u64::from(self.remove(dir, &name, child)?);
                }
            }
        } else {
            for _ in 0..self.rng.below(40) {
                self.ops += u64::from(self.create_in(dir, FileType::File)?);
            }
        }
        Ok(false)
    }

    fn write(&mut self) -> Result<bool, StoreError> {
        let Some(no) = self.pick(FileType::File) else {
            return Ok(false);
        };
        let size = self.model.bytes(no).size;
        let heavy = self.rng.chance(self.plan.heavy);
        let len = if heavy {
            100_000 + self.rng.pick_index(900_000)
        } else {
            *self.rng.pick(&[1, 7, 500, 2000, 4096, 5000, 30_000])
        };
        let at = match self.rng.below(10) {
            0..4 => size.min(3 << 20),
            4..8 => self.rng.below(size.min(3 << 20) + 1),
            8 => self.rng.below(60_000),
            // Far out: a sparse file.
            _ => self.rng.below(1 << 40) / 4096 * *self.rng.pick(&[4096, 1]),
        };
        let cost = self.with_heads(Cost::write(len as u64), &[no])?;
        let store = Arc::clone(&self.store);
        let cost = match store.room_at(no, at, len as u64)? {
            Some(blocks) => cost.covered_by_room(blocks),
            None => cost,
        };
        let Some(op) = self.room(&store, cost)? else {
            return Ok(false);
        };
        let data = self.data(len);
        op.lock(&[no])?.write(no, at, &data)?;
        drop(op);
        self.model.bytes(no).write(at, &data);
        Ok(true)
    }

    /// Lets a part of a file hold what a part of another one, or of the same, holds.
    fn share(&mut self) -> Result<bool, StoreError> {
        let (Some(from), Some(to)) = (self.pick(FileType::File), self.pick(FileType::File)) else {
            return Ok(false);
        };
        let (size, target_size) = (self.model.bytes(from).size, self.model.bytes(to).size);
        let at = if self.rng.chance(0.5) {
            0
        } else {
            self.rng.below(size.min(3 << 20) / 4096 + 1) * 4096
        };
        let to_at = match self.rng.below(4) {
            0 | 1 => at,
            2 => target_size.min(3 << 20).next_multiple_of(4096),
            _ => self.rng.below(700) * 4096,
        };
        let len = *self.rng.pick(&[4096, 20_480, 300_000, 1 << 40]);
        let len = len.min(size.saturating_sub(at));
        if len == 0 || (from == to && at.abs_diff(to_at) < len.next_multiple_of(4096)) {
            return Ok(false);
        }
        let store = Arc::clone(&self.store);
        let sharing = store.plan_share((from, at), (to, to_at), len)?;
        if sharing.bytes == 0 {
            return Ok(false);
        }
        let cost = self.with_heads(sharing.cost, &[from, to])?;
        let Some(op) = self.room(&store, cost)? else {
            return Ok(false);
        };
        let done = op
            .lock(&[from, to])?
            .share((from, at), (to, to_at), len, &sharing)?;
        drop(op);
        if done == 0 {
            return Ok(false);
        }
        self.seen.shared += 1;
        let source = self.model.bytes(from).clone();
        self.model
            .bytes(to)
            .copy_blocks(&source, at / 4096, to_at / 4096, done);
        Ok(true)
    }

    /// Sets room aside for a part of a file, or for what may follow its end: nothing that can be
    /// read changes.
    fn preallocate(&mut self) -> Result<bool, StoreError> {
        let Some(no) = self.pick(FileType::File) else {
            return Ok(false);
        };
        let size = self.model.bytes(no).size.min(3 << 20);
        let from = match self.rng.below(3) {
            0 => 0,
            1 => self.rng.below(size + 1),
            _ => size,
        };
        let len = *self.rng.pick(&[1, 5000, 100_000, 700_000]);
        let store = Arc::clone(&self.store);
        self.ending(|store| store.permit_preallocation())?;
        let step = store.plan_preallocation(no, from, from + len)?;
        if step.bytes == 0 {
            return Ok(false);
        }
        let cost = self.with_heads(step.cost, &[no])?;
        let Some(op) = self.room(&store, cost)? else {
            return Ok(false);
        };
        op.lock(&[no])?.preallocate(no, from, step.end, &step)?;
        drop(op);
        self.seen.preallocated += 1;
        Ok(true)
    }

    fn truncate(&mut self) -> Result<bool, StoreError> {
        let Some(no) = self.pick(FileType::File) else {
            return Ok(false);
        };
        let size = self.model.bytes(no).size;
        let to = match self.rng.below(6) {
            0 => 0,
            1 | 2 => self.rng.below(size + 1),
            3 => self.rng.below(size + 1) / 4096 * 4096,
            4 => size + self.rng.below(100_000),
            _ => self.rng.below(5000),
        };
        let cost = self.with_heads(Cost::cut(), &[no])?.freeing();
        let store = Arc::clone(&self.store);
        let Some(op) = self.room(&store, cost)? else {
            return Ok(false);
        };
        op.lock(&[no])?.truncate(no, to)?;
        drop(op);
        self.model.bytes(no).truncate(to);
        Ok(true)
    }

    fn punch(&mut self) -> Result<bool, StoreError> {
        let Some(no) = self.pick(FileType::File) else {
            return Ok(false);
        };
        let size = self.model.bytes(no).size;
        let from = self.rng.below(size.min(3 << 20) + 1);
        let to = from
            + self
                .rng
                .below(*self.rng.clone().pick(&[100, 5000, 200_000, 4 << 20]));
        let cost = self.with_heads(Cost::cut().with_piece(0), &[no])?.freeing();
        let store = Arc::clone(&self.store);
        let Some(op) = self.room(&store, cost)? else {
            return Ok(false);
        };
        op.lock(&[no])?.punch(no, from, to)?;
        drop(op);
        self.model.bytes(no).zero(from, to.min(size));
        Ok(true)
    }

    fn set_attr(&mut self) -> Result<bool, StoreError> {
        let all: Vec<_> = self.model.objects.keys().copied().collect();
        let no = *self.rng.pick(&all);
        let store = Arc::clone(&self.store);
        let len = *self.rng.pick(&[0, 20, 999, 1000, 1001, 4000]);
        let note = self.rng.chance(0.7).then(|| self.data(len));
        let cost = self
            .with_heads(Cost::set_attributes(), &[no])?
            .with_note(4000);
        let Some(op) = self.room(&store, cost)? else {
            return Ok(false);
        };
        let (perm, uid, mtime) = (
            self.rng.below(0o7777) as u16,
            self.rng.below(99) as u32,
            self.stamp(),
        );
        let set = AttributeChanges {
            perm: Some(perm),
            uid: Some(uid),
            mtime: Some(mtime),
            ..AttributeChanges::default()
        };
        op.lock(&[no])?.set_attr(no, set);
        op.set_note(no, note.as_deref())?;
        drop(op);
        match note {
            Some(note) => drop(self.model.notes.insert(no, Arc::new(note))),
            None => drop(self.model.notes.remove(&no)),
        }
        let object = self.model.object(no);
        (object.perm, object.owner.0, object.times[1]) = (perm, uid, mtime);
        Ok(true)
    }

    fn set_xattr(&mut self) -> Result<bool, StoreError> {
        let all: Vec<_> = self.model.objects.keys().copied().collect();
        let no = *self.rng.pick(&all);
        let name = format!("user.{}", self.rng.below(4)).into_bytes();
        let len = if self.rng.chance(0.05) {
            65536
        } else {
            *self.rng.pick(&[0, 10, 300, 1400, 9000])
        };
        let value = if self.rng.chance(0.3) {
            None
        } else {
            Some(self.data(len))
        };
        let held: usize = self.model.objects[&no]
            .xattrs
            .iter()
            .filter(|(k, _)| **k != name)
            .map(|(k, v)| k.len() + v.len())
            .sum();
        if held + name.len() + len > 120_000 {
            return Ok(false);
        }
        let change = match &value {
            Some(value) => Cost::set_xattr((name.len() + value.len()) as u64),
            None => Cost::set_xattr(0).freeing(),
        };
        let cost = self.with_heads(change, &[no])?;
        let store = Arc::clone(&self.store);
        let Some(op) = self.room(&store, cost)? else {
            return Ok(false);
        };
        op.lock(&[no])?.set_xattr(no, &name, value.as_deref())?;
        drop(op);
        let xattrs = &mut self.model.object(no).xattrs;
        match value {
            Some(value) => drop(xattrs.insert(name, Arc::new(value))),
            None => drop(xattrs.remove(&name)),
        }
        Ok(true)
    }

    fn link(&mut self) -> Result<bool, StoreError> {
        let (Some(dir), Some(no)) = (self.pick(FileType::Dir), self.pick(FileType::File)) else {
            return Ok(false);
        };
        if self.model.objects[&dir].orphan {
            return Ok(false);
        }
        let store = Arc::clone(&self.store);
        let cost = self.with_heads(Cost::link(), &[dir, no])?;
        let Some(op) = self.room(&store, cost)? else {
            return Ok(false);
        };
        let name = self.name();
        let was_orphan = self.model.objects[&no].orphan;
        let mut locked = op.lock(&[dir, no])?;
        locked.insert_entry(dir, &name, no)?;
        if was_orphan {
            locked.set_orphan(no, false)?;
        }
        drop(locked);
        drop(op);
        self.model.dir(dir).insert(name.clone(), no);
        let object = self.model.object(no);
        object.links.insert((dir, name));
        object.orphan = false;
        Ok(true)
    }

    fn unlink(&mut self) -> Result<bool, StoreError> {
        let entries = self.model.entries();
        if entries.is_empty() {
            return Ok(false);
        }
        let (dir, name, child) = self.rng.pick(&entries).clone();
        if let Content::Dir(below) = &self.model.objects[&child].content
            && !below.is_empty()
        {
            return Ok(false);
        }
        self.remove(dir, &name, child)
    }

    fn remove(&mut self, dir: ObjectNo, name: &Name, child: ObjectNo) -> Result<bool, StoreError> {
        let store = Arc::clone(&self.store);
        let cost = self.with_heads(Cost::unlink(), &[dir, child])?.freeing();
        let Some(op) = self.room(&store, cost)? else {
            return Ok(false);
        };
        let keeps = self.rng.chance(0.3);
        let mut locked = op.lock(&[dir, child])?;
        locked.remove_entry(dir, name)?;
        if !locked.is_linked(child) {
            if keeps {
                locked.set_orphan(child, true)?
            } else {
                locked.free_object(child)?
            }
        }
        drop(locked);
        drop(op);
        self.unlink_in_model(dir, name, child, keeps);
        Ok(true)
    }

    fn unlink_in_model(&mut self, dir: ObjectNo, name: &Name, child: ObjectNo, keeps: bool) {
        self.model.dir(dir).remove(name);
        let object = self.model.object(child);
        object.links.remove(&(dir, name.clone()));
        if object.links.is_empty() {
            object.orphan = true;
            if !keeps {
                self.model.objects.remove(&child);
            }
        }
    }

    fn rename(&mut self) -> Result<bool, StoreError> {
        let entries = self.model.entries();
        let Some(to) = self.pick(FileType::Dir) else {
            return Ok(false);
        };
        if entries.is_empty() || self.model.objects[&to].orphan {
            return Ok(false);
        }
        let (from, name, child) = self.rng.pick(&entries).clone();
        let is_dir = self.model.objects[&child].kind == FileType::Dir;
        if is_dir && self.model.is_above(child, to) {
            return Ok(false);
        }
        // Half of the time onto a name that is there.
        let there: Vec<_> = self
            .model
            .dir(to)
            .iter()
            .map(|(n, c)| (n.clone(), *c))
            .collect();
        let victim = if there.is_empty() || self.rng.chance(0.5) {
            None
        } else {
            Some(self.rng.pick(&there).clone())
        };
        let fits = victim.as_ref().is_none_or(|(_, v)| {
            let object = &self.model.objects[v];
            let empty = !matches!(&object.content, Content::Dir(map) if !map.is_empty());
            *v != child && empty && (object.kind == FileType::Dir) == is_dir
        });
        if !fits {
            return Ok(false);
        }
        let mut nos = vec![from, to, child];
        nos.extend(victim.iter().map(|(_, v)| *v));
        let store = Arc::clone(&self.store);
        let cost = self.with_heads(Cost::rename(), &nos)?;
        let Some(op) = self.room(&store, cost)? else {
            return Ok(false);
        };
        let new = victim
            .as_ref()
            .map_or_else(|| self.name(), |(name, _)| name.clone());
        let keeps = self.rng.chance(0.3);
        let mut locked = op.lock(&nos)?;
        if let Some((name, victim)) = &victim {
            locked.remove_entry(to, name)?;
            if !locked.is_linked(*victim) {
                if keeps {
                    locked.set_orphan(*victim, true)?
                } else {
                    locked.free_object(*victim)?
                }
            }
        }
        locked.remove_entry(from, &name)?;
        locked.insert_entry(to, &new, child)?;
        drop(locked);
        drop(op);
        if let Some((name, victim)) = &victim {
            self.unlink_in_model(to, name, *victim, keeps);
        }
        self.model.dir(from).remove(&name);
        self.model.dir(to).insert(new.clone(), child);
        let links = &mut self.model.object(child).links;
        links.remove(&(from, name));
        links.insert((to, new));
        Ok(true)
    }

    /// Gives an orphan back.
    fn reclaim(&mut self) -> Result<bool, StoreError> {
        let orphan = self
            .model
            .objects
            .iter()
            .find(|(_, o)| o.orphan)
            .map(|(no, _)| *no);
        let Some(no) = orphan else { return Ok(false) };
        let store = Arc::clone(&self.store);
        let cost = self.with_heads(Cost::free(), &[no])?;
        let Some(op) = self.room(&store, cost)? else {
            return Ok(false);
        };
        op.lock(&[no])?.free_object(no)?;
        drop(op);
        self.model.objects.remove(&no);
        Ok(true)
    }

    /// Runs until `ops` more operations are done, with commits, checkpoints, cleaning and time in
    /// between.
    pub(crate) fn run(&mut self, ops: u64) -> Done {
        let until = self.ops + ops;
        for _ in 0..ops * 4 {
            if self.ops >= until {
                break;
            }
            self.step()?;
            if self.rng.below(self.plan.batch) == 0 {
                self.pause()?;
            }
        }
        self.commit()
    }

    fn pause(&mut self) -> Done {
        match self.rng.below(20) {
            0..11 => self.commit(),
            11..13 => self.write_out(),
            13..15 => self.ending(Store::checkpoint),
            15..18 => {
                self.clock
                    .advance(Duration::from_millis(self.rng.below(40_000)));
                self.ending(|store| store.tick().map(drop))
            }
            _ => {
                self.commit()?;
                let segments = 1 + self.rng.below(6);
                self.ending(|store| store.clean(segments, 90).map(drop))
            }
        }
    }

    pub(crate) fn commit(&mut self) -> Done {
        let done = self.ending(Store::commit);
        if done.is_ok() {
            self.note.add_mark(promised(self.ops));
        }
        done
    }

    /// As when a batch has become large: it is written, and that promises nothing.
    fn write_out(&mut self) -> Done {
        self.ending(|store| {
            let settings = store.settings();
            store.set_settings(StoreSettings {
                batch_bytes: 1,
                ..settings
            });
            let done = store.tick().map(drop);
            store.set_settings(settings);
            done
        })
    }

    /// Closes and opens again.
    pub(crate) fn reopen(&mut self, cleanly: bool) -> Result<(), String> {
        if cleanly {
            self.ending(Store::close).map_err(|e| e.to_string())?;
            self.seen.closed += 1;
        } else {
            self.commit().map_err(|e| e.to_string())?;
        }
        self.store = open(&self.disk, &self.clock).map_err(|e| e.to_string())?;
        self.seen.reopened += 1;
        self.model.differs(&self.store, true)
    }

    /// Opens again what is as it was opened: nothing has been asked for yet, and all that the log
    /// says of objects waits.
    pub(crate) fn open_anew(&mut self) -> Result<(), String> {
        self.store = open(&self.disk, &self.clock).map_err(|e| e.to_string())?;
        Ok(())
    }
}
