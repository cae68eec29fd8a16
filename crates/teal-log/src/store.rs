//! The store: one log on one disk, and what is known of it in memory.
//!
//! # Guarantees
//! 1. *Durability*: what happened before [`Store::commit`] was called is found again once it has returned `Ok`.
//! 2. *Prefix*: after a crash the state is the one after some prefix of the committed batches.
//! 3. *Stability*: what one recovery dropped, no later recovery brings back.
//! 4. *Honesty*: a durable record that cannot be read makes opening fail; damaged content is an error, never data.
//! 5. *Silence*: without changes there is no I/O, and opening writes nothing.
//!
//! # Locks, in the order in which they may be taken
//! | lock | guards | under it |
//! |---|---|---|
//! | `commit` | the chain: one committer at a time | sealing, writing and syncing: the point of it |
//! | `gate` | the open batch: shared by operations, exclusive for sealing | operations: their own reads; sealing: no I/O on warm pages |
//! | `rename` (client) | moves of directories | |
//! | object locks, by number | one object's state | reads of that object's pages and blocks |
//! | the list of [deferred](crate::object::deferred) | changes of objects that wait | reads of one of these objects |
//! | `imap`, `orphans`, `notes`, the table of shared extents | their trees | reads of their pages |
//! | `segments`, `open`, `unfolded` | what they are called | nothing |

pub(crate) mod cleaner;
pub(crate) mod mkfs;
pub(crate) mod notes;
pub(crate) mod op;
pub(crate) mod read;
pub(crate) mod reclaim;
pub(crate) mod relocate;
pub(crate) mod share;

use crate::commit::committer::Committer;
use crate::counters::{Counts, add};
use crate::error::StoreError;
use crate::format::geometry::Geometry;
use crate::format::imap::Home;
use crate::format::superblock::Superblock;
use crate::object::cache::Table;
use crate::object::deferred::Deferred;
use crate::object::directory::NameHash;
use crate::object::state::{Object, ObjectRef, State};
use crate::object::unfolded::Unfolded;
use crate::space::host::HostSeen;
use crate::space::segments::Segments;
use crate::store::notes::Changed;
use crate::tree::Tree;
use crate::tree::inode_map::InodeMap;
use crate::tree::page_bounds::Places;
use crate::tree::reader::Reader;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use teal_env::{Clock, Disk};
use teal_types::{Lsn, ObjectNo};

/// What may be changed while a store is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// A batch is committed at the latest this long after its first operation.
    pub commit_interval: Duration,
    /// A batch is written when it holds this much. It is durable with the next commit, after the interval at the latest.
    pub batch_bytes: u64,
    /// A checkpoint follows at the latest this long after the first commit behind the last one.
    pub checkpoint_interval: Duration,
    /// A checkpoint follows when the log has grown by this much: bounds recovery.
    pub checkpoint_bytes: u64,
    /// Objects kept in memory that could be read again.
    pub cached_objects: usize,
    /// An idle store is cleaned ahead until this share of all segments is free, in percent.
    pub clean_below_percent: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            commit_interval: Duration::from_secs(5),
            batch_bytes: 8 << 20,
            checkpoint_interval: Duration::from_secs(30),
            checkpoint_bytes: 64 << 20,
            cached_objects: 16384,
            clean_below_percent: 10,
        }
    }
}

/// What the open batch has changed.
#[derive(Debug, Default)]
pub(crate) struct OpenBatch {
    pub(crate) objects: Vec<ObjectRef>,
    pub(crate) orphans: BTreeMap<ObjectNo, (bool, Lsn)>,
    pub(crate) notes: Changed,
    /// Where the inode map will change.
    pub(crate) places: Places,
    /// Monotonic time of its first operation.
    pub(crate) since: Option<Duration>,
}

/// An open log store. All methods may be called from any thread.
pub struct Store {
    pub(crate) sb: Superblock,
    pub(crate) names: NameHash,
    pub(crate) geometry: Geometry,
    pub(crate) reader: Reader,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) read_only: bool,
    pub(crate) table: Table,
    pub(crate) commit: Mutex<Committer>,
    pub(crate) gate: RwLock<()>,
    pub(crate) imap: RwLock<InodeMap>,
    pub(crate) orphans: Mutex<Tree>,
    pub(crate) notes: Mutex<Tree>,
    pub(crate) usage: Mutex<Tree>,
    pub(crate) segments: Mutex<Segments>,
    pub(crate) open: Mutex<OpenBatch>,
    pub(crate) unfolded: Mutex<Unfolded>,
    pub(crate) deferred: Deferred,
    pub(crate) settings: RwLock<Settings>,
    pub(crate) next_object: AtomicU64,
    pub(crate) next_lsn: AtomicU64,
    pub(crate) objects: AtomicI64,
    /// Number of the batch that operations join now.
    pub(crate) open_batch: AtomicU64,
    /// Number of the batch that was open when all before became durable; `commit` guards changes of it.
    pub(crate) durable_batch: AtomicU64,
    /// Pages of objects that only memory holds.
    pub(crate) mem_pages: AtomicI64,
    /// Bytes the open batch takes at most, beside the pages: see `weight`.
    pub(crate) gathered: AtomicI64,
    /// Among them those of blocks the cleaner has read.
    pub(crate) moved: AtomicI64,
    /// Bytes that a round of cleaning has taken and will give back.
    pub(crate) lent: AtomicI64,
    /// Bytes promised to operations that are not done yet.
    pub(crate) promised: AtomicI64,
    /// Bytes that may still be promised before somebody must look closer.
    pub(crate) budget: AtomicI64,
    pub(crate) poisoned: AtomicBool,
    /// It has been said that the host is full, and nothing was had from it since.
    pub(crate) host_is_full: AtomicBool,
    /// What the host had left when it was last asked; taken after `segments` is given back.
    pub(crate) host_seen: Mutex<Option<HostSeen>>,
    pub(crate) when_changed: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("label", &self.sb.label)
            .finish_non_exhaustive()
    }
}

/// How full a store is, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// What files can take together.
    pub total: u64,
    /// What can still be written: of the capacity, and of what the host has room for.
    pub free: u64,
    /// The same if the host had room for the whole store.
    pub free_of_capacity: u64,
    /// What the newest state takes.
    pub live: u64,
    /// Objects there are.
    pub objects: u64,
    /// Segments that hold nothing.
    pub free_segments: u64,
    /// Segments that the next two checkpoints set free, without any cleaning.
    pub ripening: u64,
    /// All segments.
    pub segments: u64,
    /// Bytes of one.
    pub segment_bytes: u64,
    /// What can be written before somebody has to wait for the cleaner.
    pub before_waiting: u64,
}

impl Store {
    /// Who this store is.
    pub fn superblock(&self) -> &Superblock {
        &self.sb
    }

    /// The settings in force.
    pub fn settings(&self) -> Settings {
        *self.settings.read()
    }

    /// Changes the settings from now on.
    pub fn set_settings(&self, settings: Settings) {
        *self.settings.write() = settings;
    }

    /// What the store has done since it was opened.
    pub fn counts(&self) -> Counts {
        self.reader.counters.get()
    }

    /// The disk it lies on.
    pub fn disk(&self) -> &dyn Disk {
        self.reader.disk()
    }

    /// Whether a failure has ended all writing.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// Whether it was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Has `wake` called whenever the open batch gets its first change, from then on [`tick`](Self::tick) has something to say again.
    /// It is called under the locks of that operation and must not come back to the store. Only the first call counts.
    pub fn when_changed(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.when_changed.set(Box::new(wake));
    }

    pub(crate) fn first_change(&self) {
        if let Some(wake) = self.when_changed.get() {
            wake();
        }
    }

    pub(crate) fn poison(&self, why: &StoreError) {
        log::error!("the store stops taking changes: {why}");
        self.poisoned.store(true, Ordering::Release);
    }

    pub(crate) fn writable(&self) -> Result<(), StoreError> {
        if self.read_only {
            return Err(StoreError::ReadOnly);
        }
        if self.is_poisoned() {
            Err(StoreError::Poisoned)
        } else {
            Ok(())
        }
    }

    /// Whether anything is not durable yet.
    pub fn is_dirty(&self) -> bool {
        self.durable_batch.load(Ordering::Acquire) < self.open_batch.load(Ordering::Acquire)
            || self.has_changes()
    }

    /// Whether the open batch holds anything.
    pub(crate) fn has_changes(&self) -> bool {
        let open = self.open.lock();
        !open.objects.is_empty()
            || !open.orphans.is_empty()
            || !open.notes.is_empty()
            || self.reader.shared.is_changed()
    }

    /// Forgets everything that could be read again (for tests and memory pressure).
    pub fn drop_caches(&self) {
        self.reader.forget_caches();
        self.table.shrink();
    }

    pub(crate) fn object(&self, no: ObjectNo) -> Result<ObjectRef, StoreError> {
        self.settle(no)?;
        if let Some(object) = self.table.get(no) {
            return Ok(object);
        }
        let home = self
            .imap
            .read()
            .get(&self.reader, no)?
            .ok_or(StoreError::NotFound(no))?;
        match self.read_home(no, home) {
            Ok(state) => Ok(self.table.add(Object::new(no, state, home.len as usize))),
            // Whoever changed the object between the two looks has put it into the table.
            Err(e) => self.table.get(no).ok_or(e),
        }
    }

    /// An object as its record says.
    pub(crate) fn read_home(&self, no: ObjectNo, home: Home) -> Result<State, StoreError> {
        let what = "an inode record";
        let bytes = self
            .reader
            .checked(home.byte, home.len as usize, home.crc, what, Some(no))?;
        let damaged = StoreError::Corrupt {
            what,
            at: home.byte / teal_types::SECTOR,
            object: Some(no),
        };
        State::decode(no, Some(home), &bytes).ok_or(damaged)
    }

    pub(crate) fn next_lsn(&self) -> Lsn {
        add(&self.reader.counters.ops, 1);
        Lsn::new(self.next_lsn.fetch_add(1, Ordering::Relaxed))
    }

    /// Objects without a name that wait to be given back.
    ///
    /// # Errors
    /// [`StoreError`] when the set cannot be read.
    pub fn orphans(&self) -> Result<Vec<ObjectNo>, StoreError> {
        let mut out = Vec::new();
        self.orphans.lock().scan(&self.reader, 0, &mut |no, _| {
            out.push(ObjectNo::new(no));
            Ok(std::ops::ControlFlow::Continue(()))
        })?;
        Ok(out)
    }
}
