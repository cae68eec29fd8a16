//! All objects of a store: where their records are, which of them are in memory, and what
//! operations have changed of them.
//!
//! # Locks, in the order in which they may be taken (those of the components say what is done under
//! them)
//! | lock | guards | under it |
//! |---|---|---|
//! | the gate of the [open batch](OpenBatch) | the batch: shared by operations, exclusive for sealing | operations: their own reads; sealing: no I/O on warm pages |
//! | object locks, by number | one object's state | reads of that object's pages and blocks |
//! | the list of [`DeferredRedo`] | changes of objects that wait | reads of one of these objects |
//! | `inode_map`, `orphans`, `notes`, the table of shared extents | their trees | reads of their pages |
//! | `segments`, the lists of the open batch and of what is unfolded | what they are called | nothing |

use crate::counters::add_to_counter;
use crate::error::StoreError;
use crate::format::delta::CheckpointRoots;
use crate::format::geometry::Geometry;
use crate::format::imap::RecordHome;
use crate::format::page::{STORE_WIDE, TreeKind};
use crate::format::superblock::Superblock;
use crate::object::cache::ObjectCache;
use crate::object::deferred::DeferredRedo;
use crate::object::directory::NameHash;
use crate::object::numbers::NumberAllocator;
use crate::object::open_batch::OpenBatch;
use crate::object::state::{CachedObject, ObjectRef, ObjectState};
use crate::object::unfolded::UnfoldedObjects;
use crate::space::host::HostAllocation;
use crate::space::ledger::{SpaceCharge, SpaceLedger};
use crate::space::reserves::Reserves;
use crate::space::segments::SegmentTable;
use crate::tree::Tree;
use crate::tree::inode_map::InodeMap;
use crate::tree::reader::CachedReader;
use parking_lot::{Mutex, RwLock};
use std::ops::ControlFlow;
use std::sync::Arc;
use teal_env::Clock;
use teal_types::{Lsn, Name, ObjectNo};

/// See the module. Each field is a component that is changed through its own methods only.
pub(crate) struct ObjectStore {
    pub(crate) sb: Superblock,
    pub(crate) name_hash: NameHash,
    pub(crate) geometry: Geometry,
    pub(crate) clock: Arc<dyn Clock>,
    /// The disk, and in front of it caches and the table of shared extents.
    pub(crate) reader: CachedReader,
    pub(crate) cache: ObjectCache,
    pub(crate) inode_map: RwLock<InodeMap>,
    /// Objects without a name that wait to be given back.
    pub(crate) orphans: Mutex<Tree>,
    pub(crate) notes: Mutex<Tree>,
    pub(crate) numbers: NumberAllocator,
    pub(crate) open: OpenBatch,
    pub(crate) unfolded: UnfoldedObjects,
    pub(crate) deferred: DeferredRedo,
    pub(crate) segments: Mutex<SegmentTable>,
    pub(crate) ledger: SpaceLedger,
    pub(crate) reserves: Reserves,
    pub(crate) host: HostAllocation,
}

impl ObjectStore {
    /// Returns the objects of a checkpoint with these roots. At most so many are kept in memory
    /// that could be read again.
    pub(crate) fn new(
        sb: Superblock,
        reader: CachedReader,
        clock: Arc<dyn Clock>,
        segments: SegmentTable,
        roots: &CheckpointRoots,
        cached_objects: usize,
    ) -> Self {
        let geometry = Geometry::new(&sb);
        let tree = |kind, root| Mutex::new(Tree::with_root(kind, STORE_WIDE, root));
        let disk = reader.shared_disk();
        Self {
            name_hash: NameHash::of_store(&sb),
            geometry,
            cache: ObjectCache::new(cached_objects),
            inode_map: RwLock::new(InodeMap::new(roots.imap)),
            orphans: tree(TreeKind::Orphans, roots.orphans),
            notes: tree(TreeKind::Notes, roots.notes),
            numbers: NumberAllocator::new(roots.next_object, roots.next_lsn, roots.objects),
            open: OpenBatch::new(),
            unfolded: UnfoldedObjects::default(),
            deferred: DeferredRedo::default(),
            segments: Mutex::new(segments),
            ledger: SpaceLedger::default(),
            reserves: Reserves::new(geometry),
            host: HostAllocation::new(disk, Arc::clone(&clock), geometry, &sb.label),
            sb,
            reader,
            clock,
        }
    }

    /// Returns an object, from memory or read from its record, with all changes made that waited
    /// for it.
    pub(crate) fn load_object(&self, no: ObjectNo) -> Result<ObjectRef, StoreError> {
        // No caller sees an object before its deferred changes.
        self.redo_deferred_of(no)?;
        if let Some(object) = self.cache.get(no) {
            return Ok(object);
        }
        // The map is read without the object's lock: both may change meanwhile.
        let home = self
            .inode_map
            .read()
            .get(&self.reader, no)?
            .ok_or(StoreError::NotFound(no))?;
        match self.read_home(no, home) {
            Ok(state) => Ok(self
                .cache
                .add_or_get(CachedObject::new(no, state, home.len as usize))),
            // Another thread that changed the object between the two looks has put it into the
            // cache.
            Err(e) => self.cache.get(no).ok_or(e),
        }
    }

    /// Returns an object as its record says.
    pub(crate) fn read_home(
        &self,
        no: ObjectNo,
        home: RecordHome,
    ) -> Result<ObjectState, StoreError> {
        let what = "an inode record";
        let bytes =
            self.reader
                .read_checked(home.byte, home.len as usize, home.crc, what, Some(no))?;
        let damaged = StoreError::Corrupt {
            what,
            at: home.byte / teal_types::SECTOR,
            object: Some(no),
        };
        ObjectState::decode(no, Some(home), &bytes).ok_or(damaged)
    }

    /// Looks at an object's state under its lock.
    pub(crate) fn with_state<T>(
        &self,
        no: ObjectNo,
        mut look: impl FnMut(&ObjectState) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.retry_after_seal(|| {
            let object = self.load_object(no)?;
            let state = object.state.read();
            // Removed, but still in memory until the batch is sealed.
            if state.gone {
                Err(StoreError::NotFound(no))
            } else {
                look(&state)
            }
        })
    }

    /// Looks again if it fails: a batch that is just being sealed has places that cannot be read
    /// before the seal is done.
    fn retry_after_seal<T>(
        &self,
        mut look: impl FnMut() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match look() {
            // The record may have moved while it was read: the second look is exact.
            Err(StoreError::Corrupt { .. } | StoreError::Io { .. }) => {
                self.open.wait_for_seal();
                look().inspect_err(|_| add_to_counter(&self.reader.counters.damaged, 1))
            }
            done => done,
        }
    }

    /// Returns the names of an object: parent and name of each.
    pub(crate) fn names_of(&self, no: ObjectNo) -> Result<Vec<(ObjectNo, Name)>, StoreError> {
        self.with_state(no, |state| {
            let links = state.links.iter();
            Ok(links.map(|link| (link.parent, link.name.clone())).collect())
        })
    }

    /// Returns a path of an object for messages: from the root, or `#number` where the way up is
    /// lost.
    pub(crate) fn path_of(&self, no: ObjectNo) -> String {
        let mut parts = Vec::new();
        let mut at = no;
        // Bounded, because a damaged tree may have circles.
        while at != ObjectNo::ROOT && parts.len() < 256 {
            let first = self
                .names_of(at)
                .ok()
                .and_then(|names| names.into_iter().next());
            let Some((parent, name)) = first else {
                parts.push(at.to_string());
                break;
            };
            parts.push(name.to_string());
            at = parent;
        }
        parts.reverse();
        format!("/{}", parts.join("/"))
    }

    /// Takes the number of a new operation.
    pub(crate) fn take_lsn(&self) -> Lsn {
        add_to_counter(&self.reader.counters.ops, 1);
        self.numbers.take_lsn()
    }

    /// Returns whether the open batch holds anything.
    pub(crate) fn has_changes(&self) -> bool {
        !self.open.is_empty() || self.reader.shared.is_changed()
    }

    /// Forgets everything that could be read again.
    pub(crate) fn drop_caches(&self) {
        self.reader.forget_caches();
        self.cache.evict_unheld();
    }

    /// Returns the objects without a name that wait to be given back.
    pub(crate) fn orphan_numbers(&self) -> Result<Vec<ObjectNo>, StoreError> {
        let mut found = Vec::new();
        self.orphans.lock().scan(&self.reader, 0, &mut |no, _| {
            found.push(ObjectNo::new(no));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }

    /// Lets an object join the orphan set or leave it, in the set's tree only; what that takes is
    /// charged.
    pub(crate) fn change_orphans(
        &self,
        no: ObjectNo,
        is_orphan: bool,
        charge: &SpaceCharge,
    ) -> Result<(), StoreError> {
        let mut tree = self.orphans.lock();
        let pages = tree.mem_pages();
        if is_orphan {
            tree.insert(&self.reader, no.get(), &[])?;
        } else {
            tree.remove(&self.reader, no.get())?;
        }
        // Changed pages are part of what the operation takes.
        charge.add_pages(pages, tree.mem_pages());
        let freed = tree.take_freed_space();
        // The segment table is locked without this tree.
        drop(tree);
        self.account_freed(&freed);
        Ok(())
    }
}
