//! The open batch: what operations have changed since the last one was sealed.
//!
//! # Locks
//! - The *gate* is shared by operations for as long as they run, and exclusive for sealing: so a
//!   batch is a set of whole operations. Operations read and wait for disks under it; sealing does
//!   no I/O.
//! - The *changes* lock guards the lists. Nothing but the wake-up of
//!   [`OpenBatch::when_first_changed`] is done under it or after it.

use crate::object::state::ObjectRef;
use crate::tree::page_bounds::LeafSpread;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;
use teal_env::Clock;
use teal_types::{Lsn, ObjectNo};

/// A piece of a note, or that there is none.
pub(crate) type NotePiece = Option<Box<[u8]>>;

/// What the open batch has changed.
#[derive(Debug, Default)]
pub(crate) struct BatchChanges {
    pub(crate) objects: Vec<ObjectRef>,
    /// Whether an object joined the orphan set or left it.
    pub(crate) orphans: BTreeMap<ObjectNo, (bool, Lsn)>,
    /// By key of the tree of notes.
    pub(crate) notes: BTreeMap<u64, (NotePiece, Lsn)>,
    /// Where the inode map will change.
    places: LeafSpread,
    /// Monotonic time of its first operation.
    pub(crate) since: Option<Duration>,
}

impl BatchChanges {
    fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.orphans.is_empty() && self.notes.is_empty()
    }

    /// Checks that no object is in the batch twice, and that a batch with a change has a beginning.
    fn check_invariants(&self) {
        let mut numbers: Vec<_> = self.objects.iter().map(|object| object.no).collect();
        numbers.sort_unstable();
        assert!(
            numbers.windows(2).all(|pair| pair[0] != pair[1]),
            "an object is sealed once"
        );
        assert!(
            self.is_empty() || self.since.is_some(),
            "a batch with changes is committed after the interval"
        );
    }

    /// Returns the number of the first operation in it.
    pub(crate) fn first_lsn(&self) -> Option<Lsn> {
        let of_objects = self
            .objects
            .iter()
            .map(|object| object.state.read().core.lsn);
        let of_orphans = self.orphans.values().map(|(_, lsn)| *lsn);
        let of_notes = self.notes.values().map(|(_, lsn)| *lsn);
        of_objects.chain(of_orphans).chain(of_notes).min()
    }
}

/// What an object that joined the batch changes of the inode map, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MapChange {
    /// An item in a leaf that is counted already.
    Item,
    /// A leaf more.
    Leaf,
    /// A leaf more, and one of the pages above the leaves.
    LeafAndAbove,
}

/// See the module.
pub(crate) struct OpenBatch {
    gate: RwLock<()>,
    changes: Mutex<BatchChanges>,
    when_first_changed: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl OpenBatch {
    pub(crate) fn new() -> Self {
        Self {
            gate: RwLock::new(()),
            changes: Mutex::default(),
            when_first_changed: OnceLock::new(),
        }
    }

    /// Has `wake` called at the first change of each batch; only the first call counts.
    pub(crate) fn when_first_changed(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.when_first_changed.set(Box::new(wake));
    }

    /// Joins the batch: it is not sealed before the answer is dropped.
    pub(crate) fn join(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read()
    }

    /// Waits until no operation is under way, and keeps new ones out.
    pub(crate) fn exclude_operations(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write()
    }

    /// Waits until a batch that is just being sealed has been.
    pub(crate) fn wait_for_seal(&self) {
        // Recursive: the thread may be in an operation, and then no batch is being sealed.
        drop(self.gate.read_recursive());
    }

    /// Changes the lists under their lock, and calls the wake-up after the first change.
    fn change_lists<T>(&self, clock: &dyn Clock, change: impl FnOnce(&mut BatchChanges) -> T) -> T {
        let mut changes = self.changes.lock();
        let done = change(&mut changes);
        let is_first = changes.since.is_none();
        changes.since.get_or_insert_with(|| clock.monotonic_time());
        drop(changes);
        if is_first && let Some(wake) = self.when_first_changed.get() {
            wake();
        }
        done
    }

    /// Enters an object that is not in the batch yet; the inode map has so many pages above its
    /// leaves, at most.
    pub(crate) fn add_object(
        &self,
        clock: &dyn Clock,
        object: &ObjectRef,
        pages_above: u64,
    ) -> MapChange {
        self.change_lists(clock, |changes| {
            changes.objects.push(ObjectRef::clone(object));
            match changes.places.add(object.no) {
                false => MapChange::Item,
                true if changes.places.leaves() <= pages_above => MapChange::LeafAndAbove,
                true => MapChange::Leaf,
            }
        })
    }

    /// Notes that an object has joined the orphan set or left it. The object itself is in the batch
    /// too.
    pub(crate) fn set_orphan(&self, no: ObjectNo, is_orphan: bool, lsn: Lsn) {
        self.changes.lock().orphans.insert(no, (is_orphan, lsn));
    }

    /// Takes back what was noted of an object and the orphan set.
    pub(crate) fn forget_orphan(&self, no: ObjectNo) {
        self.changes.lock().orphans.remove(&no);
    }

    /// Notes changed pieces of notes. Hands each piece that they replace in the batch to
    /// `replaced`.
    pub(crate) fn add_notes(
        &self,
        clock: &dyn Clock,
        lsn: Lsn,
        pieces: Vec<(u64, NotePiece)>,
        replaced: &mut dyn FnMut(&NotePiece),
    ) {
        self.change_lists(clock, |changes| {
            for (key, piece) in pieces {
                if let Some((before, _)) = changes.notes.insert(key, (piece, lsn)) {
                    replaced(&before);
                }
            }
        });
    }

    /// Notes that the batch has something to say that is not in its lists.
    pub(crate) fn begin_batch(&self, clock: &dyn Clock) {
        self.changes
            .lock()
            .since
            .get_or_insert_with(|| clock.monotonic_time());
    }

    /// Returns when the first operation of the batch happened.
    pub(crate) fn first_change_time(&self) -> Option<Duration> {
        self.changes.lock().since
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.changes.lock().is_empty()
    }

    /// Returns how many objects the batch has changed.
    pub(crate) fn object_count(&self) -> usize {
        self.changes.lock().objects.len()
    }

    /// Returns the numbers of the objects that the batch has changed.
    pub(crate) fn object_numbers(&self) -> Vec<ObjectNo> {
        self.changes
            .lock()
            .objects
            .iter()
            .map(|object| object.no)
            .collect()
    }

    /// Takes all changes out, to seal them; the next batch is empty.
    pub(crate) fn take_changes(&self) -> BatchChanges {
        let changes = std::mem::take(&mut *self.changes.lock());
        if cfg!(debug_assertions) {
            changes.check_invariants();
        }
        changes
    }
}
