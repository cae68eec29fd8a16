//! What POSIX semantics and the replica both need of a volume: the store, the namespace lock,
//! references, orphans.
//!
//! Two crates stand on this one. `teal-posix` carries out operations of programs; `teal-replica`
//! installs what the server has and notes what it lacks. Both change names, count references and
//! give objects back, and both must do it by the same rules, so the rules are here, below both. The
//! crate is one layer below them, rather than a lower room of `teal-replica`, so that POSIX
//! semantics can be built and tested without a replica.
//!
//! # Guarantees
//! 1. *Kept*: an object that is referred to ([`Volume::hold`]) lives on without a name, and is
//!    given back at the last [`Volume::release`], or after a crash.
//! 2. *Told*: an object is given back, and a change is noted, in the same batch ([`Changes`]).
//! 3. *Ordered*: the locks below are taken in the order of their [`Rank`]; debug builds assert it.
//!
//! # Locks, in the order in which a thread may take them
//! | rank | lock | guards | under it |
//! |---|---|---|---|
//! | [`DriveBurst`](Rank::DriveBurst) | a drive's `flushing` | one burst to a drive at a time, and its end | calls to the server, copying |
//! | [`DriveMarks`](Rank::DriveMarks) | a drive's `marking` | one change of what has affinity at a time | reads and writes of the drive's notes |
//! | [`Flush`](Rank::Flush) | `Replica::flushing` | one flush at a time | calls to the server, all of the flush |
//! | [`Apply`](Rank::Apply) | `Replica::applying` | the position in history: one thread advances it at a time | calls to the server, installing |
//! | [`Lookout`](Rank::Lookout) | `Lookout::looking` | one choice of what to fetch ahead at a time | reads of the store |
//! | [`Namespace`](Rank::Namespace) | [`Volume::share_namespace`], [`Volume::own_namespace`] | shared by every change of names; exclusive for a cut, and for a change that lost its race too often | whole operations |
//! | [`Moves`](Rank::Moves) | [`Volume::lock_moves`] | which directory lies in which: moves of directories between directories | whole operations |
//! | [`Content`](Rank::Content) | `Replica::content_locks`, by object | whether content is here: shared by readers, exclusive for changes | reads and writes of that object |
//! | [`Reclaim`](Rank::Reclaim) | `OrphanQueue::reclaiming` | one step of giving space back at a time | that step |
//! | | the store's | see [`teal_log::Store`] | |
//!
//! Every other lock of these crates is a *leaf*: it guards the fields beside it, is held for a few
//! statements, and no lock of the table is taken under it. Nobody holds any of them while the
//! kernel is told of a change ([`InvalidationSink`]).

mod changes;
mod error;
mod invalidation;
mod orphans;
mod ranked;
mod references;
mod residency;
mod signal;
mod stale;
mod standalone;

pub use changes::{ChangeBase, ChangeRecorder, ObjectChange};
pub use error::FsError;
pub use invalidation::{Invalidation, InvalidationChannel, InvalidationSink};
pub use orphans::ObjectFate;
pub use ranked::{
    LockRank, RankedMutex, RankedMutexGuard, RankedReadGuard, RankedRwLock, RankedWriteGuard,
};
pub use references::{ReferenceTable, ReferenceTotals};
pub use residency::{NearbyContent, Residency};
pub use signal::CommitSignal;
pub use stale::{Moment, StaleFiles, WritePlacement};
pub use standalone::Standalone;

use orphans::OrphanQueue;
use std::sync::Arc;
use std::time::Duration;
use teal_env::Clock;
use teal_log::{AttributeChanges, Cost, LockedObjects, Store, StoreError};
use teal_types::{ObjectNo, Timestamp};

/// The most bytes that one operation writes; a longer write is cut into steps of this length.
pub const WRITE_STEP: usize = 1 << 20;

/// A volume on this machine. All methods may be called from any thread.
pub struct Volume {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    /// Bytes of content that one operation gives back at most.
    reclaim_step: u64,
    namespace: RankedRwLock<()>,
    moves: RankedMutex<()>,
    references: ReferenceTable,
    orphans: OrphanQueue,
    commit_signal: CommitSignal,
    stale_files: StaleFiles,
    invalidations: InvalidationChannel,
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

impl Volume {
    /// Returns the volume of an open store. One operation gives back at most `reclaim_step` bytes
    /// of an object's content.
    pub fn new(store: Arc<Store>, clock: Arc<dyn Clock>, reclaim_step: u64) -> Arc<Self> {
        Arc::new(Self {
            store,
            clock,
            reclaim_step,
            namespace: RankedRwLock::new(LockRank::Namespace, ()),
            moves: RankedMutex::new(LockRank::Moves, ()),
            references: ReferenceTable::new(),
            orphans: OrphanQueue::default(),
            commit_signal: CommitSignal::default(),
            stale_files: StaleFiles::default(),
            invalidations: InvalidationChannel::default(),
        })
    }

    /// Returns the store below.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Returns the clock of this machine.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Returns the time that changes made now carry.
    pub fn now(&self) -> Timestamp {
        self.clock.civil_time()
    }

    /// Returns the time that passes evenly, by which intervals are measured.
    pub fn monotonic(&self) -> Duration {
        self.clock.monotonic_time()
    }

    /// Returns the most bytes of content that one operation gives back.
    pub fn reclaim_step(&self) -> u64 {
        self.reclaim_step
    }

    /// Returns how often the kernel refers to each object.
    pub fn references(&self) -> &ReferenceTable {
        &self.references
    }

    /// Returns what wakes the commit thread.
    pub fn commit_signal(&self) -> &CommitSignal {
        &self.commit_signal
    }

    /// Returns the files of which the kernel may hold an older state.
    pub fn stale_files(&self) -> &StaleFiles {
        &self.stale_files
    }

    /// Returns the way on which the kernel is told what to forget.
    pub fn invalidations(&self) -> &InvalidationChannel {
        &self.invalidations
    }

    /// Shares the namespace with other changes of names.
    pub fn share_namespace(&self) -> RankedReadGuard<'_, ()> {
        self.namespace.read()
    }

    /// Shuts all changes of names out.
    pub fn own_namespace(&self) -> RankedWriteGuard<'_, ()> {
        self.namespace.write()
    }

    /// Shuts moves of directories between directories out.
    pub fn lock_moves(&self) -> RankedMutexGuard<'_, ()> {
        self.moves.lock()
    }

    /// Makes everything that happened before durable.
    ///
    /// # Errors
    /// [`FsError::Io`]; then nothing more is promised until the volume is mounted again.
    pub fn sync(&self) -> Result<(), FsError> {
        if self.store.is_read_only() {
            return Ok(());
        }
        Ok(self.store.commit()?)
    }

    /// Runs an operation on `no` that holds no lock when it returns, and logs the path of the
    /// object if the operation met damage.
    ///
    /// # Errors
    /// Those of the operation.
    pub fn name_damage<T>(
        &self,
        no: ObjectNo,
        operation: impl FnOnce() -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        operation().inspect_err(|e| {
            if let FsError::Io(e @ (StoreError::Corrupt { .. } | StoreError::Io { .. })) = e {
                log::error!("{}: {e}", self.store.path_of(no));
            }
        })
    }

    /// Returns the cost of an operation in which these objects write their names and extended
    /// attributes again. An object that is gone costs nothing.
    ///
    /// # Errors
    /// What reading the objects met.
    pub fn cost_of_names(&self, mut cost: Cost, objects: &[ObjectNo]) -> Result<Cost, StoreError> {
        for no in objects {
            match self.store.head_bytes(*no) {
                Err(StoreError::NotFound(_)) => {}
                bytes => cost = cost.with_head(bytes?),
            }
        }
        Ok(cost)
    }
}

/// Moves the times of a locked directory whose entries changed.
pub fn touch_directory(locked: &mut LockedObjects<'_>, dir: ObjectNo, now: Timestamp) {
    let times = AttributeChanges {
        mtime: Some(now),
        ctime: Some(now),
        ..AttributeChanges::default()
    };
    locked.set_attr(dir, times);
}

/// Moves the change time of a locked object. All that one operation changes gets one time, so that
/// a replica can tell it to others.
pub fn touch_object(locked: &mut LockedObjects<'_>, no: ObjectNo, now: Timestamp) {
    let times = AttributeChanges {
        ctime: Some(now),
        ..AttributeChanges::default()
    };
    locked.set_attr(no, times);
}
