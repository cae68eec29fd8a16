//! Operations: everything that changes the store goes through [`Store::begin`] and [`Op::lock`].
//!
//! # Guarantees
//! 1. *Atomic*: all changes made under one [`Op`] are in one batch.
//! 2. *Promised*: an operation that began has the space it may need; it does not fail later for lack of it.
//! 3. Objects are locked in the order of their numbers, whatever order they are asked for.

use crate::counters::add;
use crate::error::StoreError;
use crate::format::inode::{Core, Entry, Link};
use crate::object::attributes::attr_of;
use crate::object::directory::Dir;
use crate::object::sealed_size::Weight;
use crate::object::state::{Content, Object, ObjectRef, State};
use crate::seeded::{Bug, bug};
use crate::space::cost::Cost;
use crate::store::Store;
use crate::tree::freed::Freed;
use crate::tree::page_bounds::PAGE;
use parking_lot::{ArcRwLockWriteGuard, RawRwLock, RwLock, RwLockReadGuard};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use teal_types::limits::{
    FILE_MAX, LINKS_MAX, XATTR_NAME_MAX, XATTR_VALUE_MAX, XATTRS_BYTES_MAX, xattr_bytes,
};
use teal_types::{Attr, FileType, Lsn, Name, ObjectNo, Stamp, Timestamp};

/// One operation in progress; joins the open batch.
pub struct Op<'s> {
    store: &'s Store,
    /// Promised until it is done; then what it has really added counts.
    promised: i64,
    _gate: RwLockReadGuard<'s, ()>,
}

impl Drop for Op<'_> {
    fn drop(&mut self) {
        self.store
            .promised
            .fetch_sub(self.promised, Ordering::Relaxed);
        self.store
            .budget
            .fetch_add(self.promised, Ordering::Relaxed);
    }
}

type Guard = ArcRwLockWriteGuard<RawRwLock, State>;

/// Objects locked for change.
pub struct Locked<'o> {
    pub(crate) store: &'o Store,
    pub(crate) lsn: Lsn,
    items: Vec<(ObjectRef, Guard)>,
    /// What these objects weighed when they were locked.
    before: Weight,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let (before, now) = (
            self.before,
            Weight::of(self.items.iter().map(|(_, state)| &**state)),
        );
        self.store.pages_changed(before.pages, now.pages);
        self.store.gathers(now.bytes as i64 - before.bytes as i64);
        let pages = now.pages as i64 - before.pages as i64;
        self.store
            .budget
            .fetch_sub(pages * PAGE as i64, Ordering::Relaxed);
    }
}

/// What to change of an object's attributes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits.
    pub perm: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Access time.
    pub atime: Option<Timestamp>,
    /// Modification time.
    pub mtime: Option<Timestamp>,
    /// Change time.
    pub ctime: Option<Timestamp>,
}

/// A new object's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewObject {
    /// Its type.
    pub kind: FileType,
    /// Permission bits.
    pub perm: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub rdev: u32,
    /// All four times.
    pub now: Timestamp,
}

impl Store {
    /// Starts an operation that may take `cost` in the log. May commit, checkpoint or clean first.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] when that cannot be promised, [`StoreError::ReadOnly`], [`StoreError::Poisoned`].
    pub fn begin(&self, cost: Cost) -> Result<Op<'_>, StoreError> {
        self.writable()?;
        self.promise(cost)?;
        Ok(Op {
            store: self,
            promised: cost.bytes as i64,
            _gate: self.gate.read(),
        })
    }

    /// For the cleaner, whose space is set aside.
    pub(crate) fn begin_cleaning(&self) -> Op<'_> {
        Op {
            store: self,
            promised: 0,
            _gate: self.gate.read(),
        }
    }

    /// Counts what the open batch takes more, or less.
    pub(crate) fn gathers(&self, bytes: i64) {
        self.gathered.fetch_add(bytes, Ordering::Relaxed);
        self.budget.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Op<'_> {
    pub(crate) fn store(&self) -> &Store {
        self.store
    }

    /// Locks these objects, each once.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for one that does not exist, or what reading it met.
    pub fn lock(&self, nos: &[ObjectNo]) -> Result<Locked<'_>, StoreError> {
        let mut sorted = nos.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let mut items = Vec::with_capacity(sorted.len() + 1);
        for no in sorted {
            let object = self.store.object(no)?;
            let guard = RwLock::write_arc(&object.state);
            if guard.gone {
                return Err(StoreError::NotFound(no));
            }
            items.push((object, guard));
        }
        let before = Weight::of(items.iter().map(|(_, state)| &**state));
        Ok(Locked {
            store: self.store,
            lsn: self.store.next_lsn(),
            items,
            before,
        })
    }
}

impl Locked<'_> {
    pub(crate) fn state(&mut self, no: ObjectNo) -> &mut State {
        let index = self.index(no);
        &mut self.items[index].1
    }

    pub(crate) fn peek(&self, no: ObjectNo) -> &State {
        &self.items[self.index(no)].1
    }

    fn index(&self, no: ObjectNo) -> usize {
        self.items
            .iter()
            .position(|(o, _)| o.no == no)
            .expect("the operation locked every object it uses")
    }

    /// The attributes of a locked object as they stand.
    pub fn attr(&self, no: ObjectNo) -> Attr {
        attr_of(no, self.peek(no))
    }

    /// Enters the object into the open batch.
    pub(crate) fn mark(&mut self, no: ObjectNo) -> &mut State {
        let index = self.index(no);
        let lsn = self.lsn;
        let (object, state) = &mut self.items[index];
        state.core.lsn = lsn;
        if !state.in_batch {
            state.in_batch = true;
            let mut open = self.store.open.lock();
            open.objects.push(Arc::clone(object));
            // Its page of the inode map and one above it, as a checkpoint counts them, or an item in a page counted already.
            let is_new = open.places.add(object.no);
            let has_above = is_new && open.places.leaves() <= self.store.pages_above();
            self.store.gathers(
                (if is_new { PAGE } else { 128 } + if has_above { PAGE } else { 0 }) as i64,
            );
            if open.since.is_none() {
                open.since = Some(self.store.clock.monotonic());
                drop(open);
                self.store.first_change();
            }
        }
        state
    }

    pub(crate) fn stamp(&self) -> Stamp {
        Stamp {
            counter: self.lsn.get(),
            ..Stamp::default()
        }
    }

    /// Makes a new object without a name; it is locked like the others.
    pub fn create(&mut self, new: NewObject) -> ObjectNo {
        let store = self.store;
        let next = || ObjectNo::new(store.next_object.fetch_add(1, Ordering::Relaxed));
        let mut no = next();
        // A damaged store may count from too low: whoever holds the number may be this thread.
        while store.table.get(no).is_some() {
            no = next();
        }
        self.enter_new(no, new);
        no
    }

    /// Makes a new object with a number of the caller's choice, which no object has, nor [leaves](Store::is_leaving).
    ///
    /// # Errors
    /// What reading what is left of an object that had the number met; nothing has changed then.
    pub fn create_as(&mut self, no: ObjectNo, new: NewObject) -> Result<(), StoreError> {
        if !bug(Bug::DeferredOutlived) {
            self.store.settle(no)?;
        }
        self.enter_new(no, new);
        Ok(())
    }

    fn enter_new(&mut self, no: ObjectNo, new: NewObject) {
        let store = self.store;
        store.next_object.fetch_max(no.get() + 1, Ordering::Relaxed);
        assert!(no < ObjectNo::LIMIT, "2^63 objects are never reached");
        store.objects.fetch_add(1, Ordering::Relaxed);
        let core = Core {
            kind: new.kind,
            perm: new.perm,
            uid: new.uid,
            gid: new.gid,
            rdev: new.rdev,
            size: 0,
            subdirs: 0,
            generation: 0,
            atime: new.now,
            mtime: new.now,
            ctime: new.now,
            btime: new.now,
            lsn: self.lsn,
            data_stamp: self.stamp(),
            attr_stamp: self.stamp(),
            sectors: 0,
        };
        let state = State::new(core, State::empty_content(new.kind));
        let object = store.table.add(Object::new(no, state, 0));
        let guard = RwLock::write_arc(&object.state);
        self.items.push((object, guard));
        self.mark(no);
    }

    fn dir(&mut self, no: ObjectNo) -> Result<&mut Dir, StoreError> {
        match &mut self.state(no).content {
            Content::Dir(dir) => Ok(dir),
            _ => Err(StoreError::NotFound(no)),
        }
    }

    /// The entry of a locked directory under a name.
    ///
    /// # Errors
    /// What reading the directory met.
    pub fn entry(
        &self,
        dir: ObjectNo,
        name: &Name,
    ) -> Result<Option<(ObjectNo, FileType)>, StoreError> {
        match &self.peek(dir).content {
            Content::Dir(d) => Ok(d
                .find(&self.store.reader, dir, self.store.names, name)?
                .map(|(_, entry)| (entry.child, entry.kind))),
            _ => Ok(None),
        }
    }

    /// Whether a locked object still has a name (a directory: still hangs in the tree).
    pub fn is_linked(&self, no: ObjectNo) -> bool {
        no == ObjectNo::ROOT || !self.peek(no).links.is_empty()
    }

    /// Number of entries of a locked directory.
    pub fn entries(&self, dir: ObjectNo) -> u64 {
        self.peek(dir).core.size
    }

    /// Adds an entry for `child`; both are locked. The name must be free.
    ///
    /// # Errors
    /// [`StoreError::TooBig`] beyond [`LINKS_MAX`] names, or what reading the directory met; nothing has changed then.
    pub fn insert_entry(
        &mut self,
        dir: ObjectNo,
        name: &Name,
        child: ObjectNo,
    ) -> Result<(), StoreError> {
        let kind = self.peek(child).core.kind;
        if self.peek(child).links.len() >= LINKS_MAX {
            return Err(StoreError::TooBig("an object's number of names"));
        }
        let (reader, names) = (&self.store.reader, self.store.names);
        self.dir(dir)?.insert(
            reader,
            dir,
            names,
            Entry {
                child,
                kind,
                name: name.clone(),
            },
        )?;
        let state = self.mark(dir);
        state.core.size = state.core.size.saturating_add(1);
        state.core.subdirs = state.core.subdirs.saturating_add(u32::from(kind.is_dir()));
        self.settle(dir);
        let state = self.mark(child);
        state.links.push(Link {
            parent: dir,
            name: name.clone(),
        });
        state.head_changed = true;
        Ok(())
    }

    /// Removes the entry under `name`, whose child is locked too.
    ///
    /// # Errors
    /// What reading the directory met; nothing has changed then.
    pub fn remove_entry(&mut self, dir: ObjectNo, name: &Name) -> Result<ObjectNo, StoreError> {
        let (reader, names) = (&self.store.reader, self.store.names);
        let found = self.dir(dir)?.find(reader, dir, names, name)?;
        let (cookie, entry) = found.ok_or(StoreError::NotFound(dir))?;
        self.dir(dir)?.remove(reader, dir, cookie)?;
        let state = self.mark(dir);
        // Saturating: a damaged directory may have said that it has fewer.
        state.core.size = state.core.size.saturating_sub(1);
        state.core.subdirs = state
            .core
            .subdirs
            .saturating_sub(u32::from(entry.kind.is_dir()));
        self.settle(dir);
        let state = self.mark(entry.child);
        state.links.retain(|l| l.parent != dir || l.name != *name);
        state.head_changed = true;
        Ok(entry.child)
    }

    /// Hands pages a tree has given up to the segment table.
    pub(crate) fn settle(&mut self, no: ObjectNo) {
        let mut freed = Vec::new();
        self.state(no).pages_freed(&mut freed);
        self.store.account(&freed);
    }

    /// Changes attributes.
    pub fn set_attr(&mut self, no: ObjectNo, set: SetAttr) {
        let stamp = self.stamp();
        let core = &mut self.mark(no).core;
        core.perm = set.perm.unwrap_or(core.perm) & 0o7777;
        core.uid = set.uid.unwrap_or(core.uid);
        core.gid = set.gid.unwrap_or(core.gid);
        core.atime = set.atime.unwrap_or(core.atime);
        core.mtime = set.mtime.unwrap_or(core.mtime);
        core.ctime = set.ctime.unwrap_or(core.ctime);
        core.attr_stamp = stamp;
    }

    /// Writes into a file, growing it if needed.
    ///
    /// # Errors
    /// [`StoreError::TooBig`] beyond [`FILE_MAX`], or what reading partly overwritten blocks met; nothing has changed then.
    pub fn write(&mut self, no: ObjectNo, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        if offset
            .checked_add(data.len() as u64)
            .is_none_or(|end| end > FILE_MAX)
        {
            return Err(StoreError::TooBig("a file"));
        }
        let (reader, stamp) = (&self.store.reader, self.stamp());
        self.state(no).write(reader, no, offset, data)?;
        self.mark(no).core.data_stamp = stamp;
        self.settle(no);
        Ok(())
    }

    fn change(
        &mut self,
        no: ObjectNo,
        change: impl FnOnce(&mut State, &mut Vec<Freed>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let stamp = self.stamp();
        let mut freed = Vec::new();
        let done = change(self.state(no), &mut freed);
        self.mark(no).core.data_stamp = stamp;
        self.store.account(&freed);
        self.settle(no);
        done
    }

    /// Sets a file's length.
    ///
    /// # Errors
    /// [`StoreError::TooBig`] beyond [`FILE_MAX`], or what reading its map met.
    pub fn truncate(&mut self, no: ObjectNo, size: u64) -> Result<(), StoreError> {
        if size > FILE_MAX {
            return Err(StoreError::TooBig("a file"));
        }
        let store = self.store;
        self.change(no, |state, freed| {
            state.set_size(&store.reader, no, size, freed)
        })
    }

    /// Makes a range of a file read as zeros and gives its blocks back.
    ///
    /// # Errors
    /// What reading its map met.
    pub fn punch(&mut self, no: ObjectNo, offset: u64, end: u64) -> Result<(), StoreError> {
        let store = self.store;
        self.change(no, |state, freed| {
            state.punch(&store.reader, no, offset, end, freed)
        })
    }

    /// Sets a symlink's target, at most [`TARGET_MAX`](teal_types::limits::TARGET_MAX) bytes.
    pub fn set_target(&mut self, no: ObjectNo, target: &[u8]) {
        let state = self.mark(no);
        state.content = Content::Inline(target.to_vec());
        state.core.size = target.len() as u64;
    }

    /// Sets an extended attribute, or removes it; says whether it was there.
    ///
    /// # Errors
    /// [`StoreError::TooBig`] beyond the limits.
    pub fn set_xattr(
        &mut self,
        no: ObjectNo,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<bool, StoreError> {
        if name.len() > XATTR_NAME_MAX || value.is_some_and(|v| v.len() > XATTR_VALUE_MAX) {
            return Err(StoreError::TooBig("an extended attribute"));
        }
        let state = self.peek(no);
        let others: usize = state
            .xattrs
            .iter()
            .filter(|(other, _)| other.as_ref() != name)
            .map(|(other, value)| xattr_bytes(other.len(), value.len()))
            .sum();
        if value
            .is_some_and(|value| others + xattr_bytes(name.len(), value.len()) > XATTRS_BYTES_MAX)
        {
            return Err(StoreError::TooBig("an object's extended attributes"));
        }
        let state = self.mark(no);
        let old = match value {
            Some(value) => state.xattrs.insert(name.into(), value.into()),
            None => state.xattrs.remove(name),
        };
        state.head_changed = true;
        Ok(old.is_some())
    }

    /// The value of an extended attribute of a locked object.
    pub fn xattr(&self, no: ObjectNo, name: &[u8]) -> Option<&[u8]> {
        self.peek(no).xattrs.get(name).map(AsRef::as_ref)
    }

    /// Puts an object without names into the orphan set, or takes it out.
    ///
    /// # Errors
    /// What reading the set met.
    pub fn set_orphan(&mut self, no: ObjectNo, orphan: bool) -> Result<(), StoreError> {
        self.store.change_orphans(no, orphan)?;
        self.mark(no);
        let lsn = self.lsn;
        self.store.open.lock().orphans.insert(no, (orphan, lsn));
        Ok(())
    }

    /// Gives an object and all its space back. It must have no names left.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when it has names: only a damaged orphan set leads here. Or what reading its map met; the object is still
    /// there then.
    pub fn free(&mut self, no: ObjectNo) -> Result<(), StoreError> {
        if !self.peek(no).links.is_empty() {
            return Err(StoreError::Corrupt {
                what: "an orphan with names",
                at: 0,
                object: Some(no),
            });
        }
        let store = self.store;
        let mut freed = Vec::new();
        self.state(no).warm_shared(&store.reader)?;
        self.state(no).drop_content(&store.reader, no, &mut freed)?;
        store.account(&freed);
        let state = self.mark(no);
        state.content = Content::None;
        state.gone = true;
        store.objects.fetch_sub(1, Ordering::Relaxed);
        // The delta that frees the object also takes it out of the orphan set.
        store.open.lock().orphans.remove(&no);
        store.change_orphans(no, false)
    }

    /// Content bytes the cleaner has read.
    pub(crate) fn count_moved(&self, bytes: u64) {
        add(&self.store.reader.counters.bytes_moved, bytes);
        self.store.moved.fetch_add(bytes as i64, Ordering::Relaxed);
    }
}

impl Store {
    pub(crate) fn change_orphans(&self, no: ObjectNo, orphan: bool) -> Result<(), StoreError> {
        let mut tree = self.orphans.lock();
        if orphan {
            tree.insert(&self.reader, no.get(), &[])?;
        } else {
            tree.remove(&self.reader, no.get())?;
        }
        let freed: Vec<_> = tree.take_freed().into_iter().map(Freed::page).collect();
        drop(tree);
        self.account(&freed);
        Ok(())
    }
}
