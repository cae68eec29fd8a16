//! Objects locked for change by one operation: their attributes, entries, names and extended
//! attributes.

use crate::counters::add_to_counter;
use crate::error::StoreError;
use crate::format::inode::{DirectoryEntry, InodeCore, ParentLink};
use crate::object::attributes::attr_of;
use crate::object::directory::DirectoryContent;
use crate::object::objects::ObjectStore;
use crate::object::open_batch::MapChange;
use crate::object::sealed_size::SealedSize;
use crate::object::state::{CachedObject, ObjectContent, ObjectRef, ObjectState};
use crate::seeded::{Bug, bug};
use crate::space::ledger::SpaceCharge;
use crate::tree::page_bounds::PAGE;
use parking_lot::{ArcRwLockWriteGuard, RawRwLock, RwLock};
use teal_types::limits::{
    LINKS_MAX, XATTR_NAME_MAX, XATTR_VALUE_MAX, XATTRS_BYTES_MAX, xattr_bytes,
};
use teal_types::{Attr, FileType, Lsn, Name, ObjectNo, Timestamp, UpdateId};

type Guard = ArcRwLockWriteGuard<RawRwLock, ObjectState>;

/// Objects locked for change.
pub struct LockedObjects<'o> {
    objects: &'o ObjectStore,
    /// The space that the operation has taken so far.
    charge: &'o SpaceCharge,
    lsn: Lsn,
    items: Vec<(ObjectRef, Guard)>,
    /// The sealed size of these objects when they were locked.
    before: SealedSize,
}

impl Drop for LockedObjects<'_> {
    fn drop(&mut self) {
        // The difference of the sizes is what the operation added to the batch.
        let before = self.before;
        let now = sealed_size(&self.items);
        let ledger = &self.objects.ledger;
        ledger.pages_changed_by_operation(before.pages, now.pages);
        ledger.add_to_batch(now.bytes as i64 - before.bytes as i64);
        self.charge.add(now.bytes as i64 - before.bytes as i64);
        self.charge.add_pages(before.pages, now.pages);
    }
}

fn sealed_size(items: &[(ObjectRef, Guard)]) -> SealedSize {
    SealedSize::of_states(items.iter().map(|(_, state)| &**state))
}

/// Changes of an object's attributes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AttributeChanges {
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

impl<'o> LockedObjects<'o> {
    /// Locks these objects, each once, in the order of their numbers.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for one that does not exist, or errors of reading it.
    pub(crate) fn new(
        objects: &'o ObjectStore,
        charge: &'o SpaceCharge,
        nos: &[ObjectNo],
    ) -> Result<Self, StoreError> {
        // In the order of their numbers: two operations can never wait for each other in a circle.
        let mut sorted = nos.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let mut items = Vec::with_capacity(sorted.len() + 1);
        for no in sorted {
            // Each object is up to date before it is locked.
            let object = objects.load_object(no)?;
            let guard = RwLock::write_arc(&object.state);
            // Removed between the look and the lock.
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

    pub(crate) fn space_charge(&self) -> &'o SpaceCharge {
        self.charge
    }

    pub(crate) fn objects(&self) -> &'o ObjectStore {
        self.objects
    }

    /// Returns the number of the operation.
    pub(crate) fn lsn(&self) -> Lsn {
        self.lsn
    }
}

impl LockedObjects<'_> {
    pub(crate) fn state_mut(&mut self, no: ObjectNo) -> &mut ObjectState {
        let index = self.index_of(no);
        &mut self.items[index].1
    }

    pub(crate) fn state_of(&self, no: ObjectNo) -> &ObjectState {
        &self.items[self.index_of(no)].1
    }

    fn index_of(&self, no: ObjectNo) -> usize {
        self.items
            .iter()
            .position(|(o, _)| o.no == no)
            .expect("the operation locked every object it uses")
    }

    /// Returns the present attributes of a locked object.
    pub fn attr(&self, no: ObjectNo) -> Attr {
        attr_of(no, self.state_of(no))
    }

    /// Enters the object into the open batch.
    pub(crate) fn mark_changed(&mut self, no: ObjectNo) -> &mut ObjectState {
        let index = self.index_of(no);
        let lsn = self.lsn;
        let (object, state) = &mut self.items[index];
        // The newest operation that changed the object.
        state.core.lsn = lsn;
        // The first change in this batch: the object joins it.
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

    pub(crate) fn stamp(&self) -> UpdateId {
        UpdateId {
            counter: self.lsn.get(),
            ..UpdateId::default()
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

    /// Makes a new object with a number of the caller's choice. No object may have that number, or
    /// be leaving it (`Store::is_leaving`).
    ///
    /// # Errors
    /// Errors of reading the rest of an object that had the number; nothing has changed then.
    pub fn create_as(&mut self, no: ObjectNo, new: NewObject) -> Result<(), StoreError> {
        if !bug(Bug::DeferredOutlived) {
            // Deferred changes may be of an object that had the number.
            self.objects.redo_deferred_of(no)?;
        }
        self.enter_new(no, new);
        Ok(())
    }

    fn enter_new(&mut self, no: ObjectNo, new: NewObject) {
        let objects = self.objects;
        objects.numbers.raise_above_object(no);
        debug_assert!(
            self.items.iter().all(|(object, _)| object.no != no),
            "the number is in use"
        );
        assert!(no < ObjectNo::LIMIT, "2^63 objects are never reached");
        objects.numbers.object_created();
        let core = InodeCore {
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
        let state = ObjectState::new(core, ObjectState::empty_content(new.kind));
        let object = objects.cache.add_or_get(CachedObject::new(no, state, 0));
        // New, so the lock is free.
        let guard = RwLock::write_arc(&object.state);
        self.items.push((object, guard));
        // The object joins the batch even if nothing else is done to it.
        self.mark_changed(no);
    }

    fn directory_mut(&mut self, no: ObjectNo) -> Result<&mut DirectoryContent, StoreError> {
        match &mut self.state_mut(no).content {
            ObjectContent::Dir(dir) => Ok(dir),
            _ => Err(StoreError::NotFound(no)),
        }
    }

    /// Returns the entry of a locked directory under a name.
    ///
    /// # Errors
    /// Errors of reading the directory.
    pub fn entry(
        &self,
        dir: ObjectNo,
        name: &Name,
    ) -> Result<Option<(ObjectNo, FileType)>, StoreError> {
        let ObjectContent::Dir(content) = &self.state_of(dir).content else {
            return Ok(None);
        };
        let reader = &self.objects.reader;
        let names = self.objects.name_hash;
        let Some((_, entry)) = content.find_entry(reader, dir, names, name)? else {
            return Ok(None);
        };
        Ok(Some((entry.child, entry.kind)))
    }

    /// Returns whether a locked object still has a name (a directory: still hangs in the tree).
    pub fn is_linked(&self, no: ObjectNo) -> bool {
        no == ObjectNo::ROOT || !self.state_of(no).links.is_empty()
    }

    /// Returns the number of entries of a locked directory.
    pub fn entry_count(&self, dir: ObjectNo) -> u64 {
        self.state_of(dir).core.size
    }

    /// Adds an entry for `child`; both are locked. The name must be free.
    ///
    /// # Errors
    /// [`StoreError::TooBig`] beyond [`LINKS_MAX`] names, or errors of reading the directory;
    /// nothing has changed then.
    pub fn insert_entry(
        &mut self,
        dir: ObjectNo,
        name: &Name,
        child: ObjectNo,
    ) -> Result<(), StoreError> {
        let kind = self.state_of(child).core.kind;
        // The limit keeps a whole record within its size.
        if self.state_of(child).links.len() >= LINKS_MAX {
            return Err(StoreError::TooBig("an object's number of names"));
        }
        let reader = &self.objects.reader;
        let names = self.objects.name_hash;
        self.directory_mut(dir)?.insert_entry(
            reader,
            dir,
            names,
            DirectoryEntry {
                child,
                kind,
                name: name.clone(),
            },
        )?;
        let state = self.mark_changed(dir);
        // Saturating: a damaged directory may have said that it has more.
        state.core.size = state.core.size.saturating_add(1);
        state.core.subdirs = state.core.subdirs.saturating_add(u32::from(kind.is_dir()));
        self.account_freed_pages(dir);
        // Both ends of a name change together.
        let state = self.mark_changed(child);
        state.links.push(ParentLink {
            parent: dir,
            name: name.clone(),
        });
        state.head_changed();
        Ok(())
    }

    /// Removes the entry under `name`. Its child is locked too.
    ///
    /// # Errors
    /// Errors of reading the directory; nothing has changed then.
    pub fn remove_entry(&mut self, dir: ObjectNo, name: &Name) -> Result<ObjectNo, StoreError> {
        let reader = &self.objects.reader;
        let names = self.objects.name_hash;
        let found = self
            .directory_mut(dir)?
            .find_entry(reader, dir, names, name)?;
        let (cookie, entry) = found.ok_or(StoreError::NotFound(dir))?;
        debug_assert!(
            self.items
                .iter()
                .any(|(object, _)| object.no == entry.child),
            "the child is not locked"
        );
        self.directory_mut(dir)?.remove_entry(reader, dir, cookie)?;
        let state = self.mark_changed(dir);
        // Saturating: a damaged directory may have said that it has fewer.
        state.core.size = state.core.size.saturating_sub(1);
        state.core.subdirs = state
            .core
            .subdirs
            .saturating_sub(u32::from(entry.kind.is_dir()));
        self.account_freed_pages(dir);
        let state = self.mark_changed(entry.child);
        // The name is in the entry and in the object: both go.
        state.links.retain(|l| l.parent != dir || l.name != *name);
        state.head_changed();
        Ok(entry.child)
    }

    /// Hands pages a tree has given up to the segment table.
    pub(crate) fn account_freed_pages(&mut self, no: ObjectNo) {
        let mut freed = Vec::new();
        self.state_mut(no).take_freed_pages(&mut freed);
        self.objects.account_freed(&freed);
    }

    /// Changes attributes.
    pub fn set_attr(&mut self, no: ObjectNo, set: AttributeChanges) {
        let stamp = self.stamp();
        let core = &mut self.mark_changed(no).core;
        // Only permission bits; the type never changes.
        core.perm = set.perm.unwrap_or(core.perm) & 0o7777;
        core.uid = set.uid.unwrap_or(core.uid);
        core.gid = set.gid.unwrap_or(core.gid);
        core.atime = set.atime.unwrap_or(core.atime);
        core.mtime = set.mtime.unwrap_or(core.mtime);
        core.ctime = set.ctime.unwrap_or(core.ctime);
        core.attr_stamp = stamp;
    }

    /// Has the attributes of a locked object logged as they are: the access time may be newer in
    /// memory ([`Store::set_atime`](crate::Store::set_atime)).
    pub fn log_attributes(&mut self, no: ObjectNo) {
        self.mark_changed(no);
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
        let state = self.state_of(no);
        // All attributes together must fit the object's record.
        let mut others = 0;
        for (other, value) in &state.xattrs {
            if other.as_ref() != name {
                others += xattr_bytes(other.len(), value.len());
            }
        }
        if let Some(value) = value
            && others + xattr_bytes(name.len(), value.len()) > XATTRS_BYTES_MAX
        {
            return Err(StoreError::TooBig("an object's extended attributes"));
        }
        let state = self.mark_changed(no);
        let old = match value {
            Some(value) => state.xattrs.insert(name.into(), value.into()),
            None => state.xattrs.remove(name),
        };
        state.head_changed();
        Ok(old.is_some())
    }

    /// Returns the value of an extended attribute of a locked object.
    pub fn xattr(&self, no: ObjectNo, name: &[u8]) -> Option<&[u8]> {
        self.state_of(no).xattrs.get(name).map(AsRef::as_ref)
    }

    /// Puts an object without names into the orphan set, or takes it out.
    ///
    /// # Errors
    /// Errors of reading the set.
    pub fn set_orphan(&mut self, no: ObjectNo, orphan: bool) -> Result<(), StoreError> {
        // The set changes at once; the log gets it with the batch.
        self.objects.change_orphans(no, orphan, self.charge)?;
        self.mark_changed(no);
        let lsn = self.lsn;
        self.objects.open.set_orphan(no, orphan, lsn);
        Ok(())
    }

    /// Gives an object and all its space back. It must have no names left.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when it has names: only a damaged orphan set leads here. Or errors
    /// of reading its map; the object is still there then.
    pub fn free_object(&mut self, no: ObjectNo) -> Result<(), StoreError> {
        // Callers take the names away first.
        if !self.state_of(no).links.is_empty() {
            return Err(StoreError::Corrupt {
                what: "an orphan with names",
                at: 0,
                object: Some(no),
            });
        }
        let objects = self.objects;
        let mut freed = Vec::new();
        // Everything that can fail comes first.
        self.state_mut(no).warm_shared(&objects.reader)?;
        self.state_mut(no)
            .free_content(&objects.reader, no, &mut freed)?;
        objects.account_freed(&freed);
        // The object stays in memory until its removal is sealed.
        let state = self.mark_changed(no);
        state.content = ObjectContent::None;
        state.gone = true;
        objects.numbers.object_freed();
        // The delta that frees the object also takes it out of the orphan set.
        objects.open.forget_orphan(no);
        objects.change_orphans(no, false, self.charge)
    }

    /// Counts content bytes that the cleaner has read.
    pub(crate) fn count_moved(&self, bytes: u64) {
        add_to_counter(&self.objects.reader.counters.bytes_moved, bytes);
        self.objects.ledger.add_relocated(bytes);
    }
}
