//! Objects locked for change by one operation: their attributes, entries, names and extended
//! attributes.

use crate::counters::add;
use crate::error::StoreError;
use crate::format::inode::{Core, Entry, Link};
use crate::object::attributes::attr_of;
use crate::object::directory::Dir;
use crate::object::objects::ObjectStore;
use crate::object::open_batch::MapChange;
use crate::object::sealed_size::SealedSize;
use crate::object::state::{Content, Object, ObjectRef, State};
use crate::seeded::{Bug, bug};
use crate::space::ledger::Charge;
use crate::tree::page_bounds::PAGE;
use parking_lot::{ArcRwLockWriteGuard, RawRwLock, RwLock};
use teal_types::limits::{
    LINKS_MAX, XATTR_NAME_MAX, XATTR_VALUE_MAX, XATTRS_BYTES_MAX, xattr_bytes,
};
use teal_types::{Attr, FileType, Lsn, Name, ObjectNo, Stamp, Timestamp};

type Guard = ArcRwLockWriteGuard<RawRwLock, State>;

/// Objects locked for change.
pub struct Locked<'o> {
    objects: &'o ObjectStore,
    /// What the operation has taken so far.
    charge: &'o Charge,
    lsn: Lsn,
    items: Vec<(ObjectRef, Guard)>,
    /// What sealing these objects took when they were locked.
    before: SealedSize,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let (before, now) = (self.before, sealed_size(&self.items));
        let ledger = &self.objects.ledger;
        ledger.pages_changed_by_operation(before.pages, now.pages);
        ledger.add_to_batch(now.bytes as i64 - before.bytes as i64);
        self.charge.add(now.bytes as i64 - before.bytes as i64);
        self.charge.add_pages(before.pages, now.pages);
    }
}

fn sealed_size(items: &[(ObjectRef, Guard)]) -> SealedSize {
    SealedSize::of(items.iter().map(|(_, state)| &**state))
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

impl<'o> Locked<'o> {
    /// Locks these objects, each once, in the order of their numbers.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for one that does not exist, or what reading it met.
    pub(crate) fn new(
        objects: &'o ObjectStore,
        charge: &'o Charge,
        nos: &[ObjectNo],
    ) -> Result<Self, StoreError> {
        let mut sorted = nos.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let mut items = Vec::with_capacity(sorted.len() + 1);
        for no in sorted {
            let object = objects.object(no)?;
            let guard = RwLock::write_arc(&object.state);
            if guard.gone {
                return Err(StoreError::NotFound(no));
            }
            items.push((object, guard));
        }
        Ok(Self {
            before: sealed_size(&items),
            objects,
            charge,
            lsn: objects.take_lsn(),
            items,
        })
    }

    pub(crate) fn charge(&self) -> &'o Charge {
        self.charge
    }

    pub(crate) fn objects(&self) -> &'o ObjectStore {
        self.objects
    }

    /// The number of the operation.
    pub(crate) fn lsn(&self) -> Lsn {
        self.lsn
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
            let pages_above = self.objects.pages_above();
            let joined = self
                .objects
                .open
                .add_object(&*self.objects.clock, object, pages_above);
            // As a checkpoint counts them.
            let bytes = match joined {
                MapChange::Item => 128,
                MapChange::Leaf => PAGE,
                MapChange::LeafAndAbove => 2 * PAGE,
            };
            self.objects.ledger.add_to_batch(bytes as i64);
            self.charge.add(bytes as i64);
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
        let objects = self.objects;
        let mut no = objects.numbers.take_object();
        // A damaged store may count from too low: the object that has the number may be locked by
        // this thread.
        while objects.cache.get(no).is_some() {
            no = objects.numbers.take_object();
        }
        self.enter_new(no, new);
        no
    }

    /// Makes a new object with a number of the caller's choice, which no object has, nor
    /// leaves (`Store::is_leaving`).
    ///
    /// # Errors
    /// What reading what is left of an object that had the number met; nothing has changed then.
    pub fn create_as(&mut self, no: ObjectNo, new: NewObject) -> Result<(), StoreError> {
        if !bug(Bug::DeferredOutlived) {
            self.objects.redo_deferred_of(no)?;
        }
        self.enter_new(no, new);
        Ok(())
    }

    fn enter_new(&mut self, no: ObjectNo, new: NewObject) {
        let objects = self.objects;
        objects.numbers.object_seen(no);
        assert!(no < ObjectNo::LIMIT, "2^63 objects are never reached");
        objects.numbers.object_created();
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
        let object = objects.cache.add(Object::new(no, state, 0));
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
                .find(&self.objects.reader, dir, self.objects.name_hash, name)?
                .map(|(_, entry)| (entry.child, entry.kind))),
            _ => Ok(None),
        }
    }

    /// Returns whether a locked object still has a name (a directory: still hangs in the tree).
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
    /// [`StoreError::TooBig`] beyond [`LINKS_MAX`] names, or what reading the directory met;
    /// nothing has changed then.
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
        let (reader, names) = (&self.objects.reader, self.objects.name_hash);
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
        self.account_freed_pages(dir);
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
        let (reader, names) = (&self.objects.reader, self.objects.name_hash);
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
        self.account_freed_pages(dir);
        let state = self.mark(entry.child);
        state.links.retain(|l| l.parent != dir || l.name != *name);
        state.head_changed = true;
        Ok(entry.child)
    }

    /// Hands pages a tree has given up to the segment table.
    pub(crate) fn account_freed_pages(&mut self, no: ObjectNo) {
        let mut freed = Vec::new();
        self.state(no).pages_freed(&mut freed);
        self.objects.account(&freed);
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
        self.objects.change_orphans(no, orphan, self.charge)?;
        self.mark(no);
        let lsn = self.lsn;
        self.objects.open.set_orphan(no, orphan, lsn);
        Ok(())
    }

    /// Gives an object and all its space back. It must have no names left.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when it has names: only a damaged orphan set leads here. Or what
    /// reading its map met; the object is still there then.
    pub fn free(&mut self, no: ObjectNo) -> Result<(), StoreError> {
        if !self.peek(no).links.is_empty() {
            return Err(StoreError::Corrupt {
                what: "an orphan with names",
                at: 0,
                object: Some(no),
            });
        }
        let objects = self.objects;
        let mut freed = Vec::new();
        self.state(no).warm_shared(&objects.reader)?;
        self.state(no)
            .drop_content(&objects.reader, no, &mut freed)?;
        objects.account(&freed);
        let state = self.mark(no);
        state.content = Content::None;
        state.gone = true;
        objects.numbers.object_freed();
        // The delta that frees the object also takes it out of the orphan set.
        objects.open.forget_orphan(no);
        objects.change_orphans(no, false, self.charge)
    }

    /// Content bytes the cleaner has read.
    pub(crate) fn count_moved(&self, bytes: u64) {
        add(&self.objects.reader.counters.bytes_moved, bytes);
        self.objects.ledger.add_relocated(bytes);
    }
}
