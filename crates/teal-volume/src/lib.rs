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
//! 2. *Told*: an object is given back, and a change is noted, in the same batch ([`ChangeRecorder`]).
//! 3. *Ordered*: the locks below are taken in the order of their [`LockRank`]; debug builds assert it.
//!
//! # Locks, in the order in which a thread may take them
//! | rank | lock | guards | under it |
//! |---|---|---|---|
//! | [`DriveBurst`](LockRank::DriveBurst) | a drive's `flushing` | one burst to a drive at a time, and its end | calls to the server, copying |
//! | [`DriveMarks`](LockRank::DriveMarks) | a drive's `marking` | one change of what has affinity at a time | reads and writes of the drive's notes |
//! | [`Flush`](LockRank::Flush) | `Replica::flushing` | one flush at a time | calls to the server, all of the flush |
//! | [`Apply`](LockRank::Apply) | `Replica::applying` | the position in history: one thread advances it at a time | calls to the server, installing |
//! | [`Prefetch`](LockRank::Prefetch) | `Lookout::looking` | one choice of what to fetch ahead at a time | reads of the store |
//! | [`Namespace`](LockRank::Namespace) | [`Volume::share_namespace`], [`Volume::own_namespace`] | shared by every change of names; exclusive for a cut, and for a change that lost its race too often | whole operations |
//! | [`Moves`](LockRank::Moves) | [`Volume::lock_moves`] | which directory lies in which: moves of directories between directories | whole operations |
//! | [`Content`](LockRank::Content) | `Replica::content_locks`, by object | whether content is here: shared by readers, exclusive for changes | reads and writes of that object |
//! | [`Reclaim`](LockRank::Reclaim) | `OrphanQueue::reclaiming` | one step of giving space back at a time | that step |
//! | | the store's | see [`teal_log::Store`] | |
//!
//! Every other lock of these crates is a *leaf*: it guards the fields beside it, is held for a few
//! statements, and no lock of the table is taken under it. Nobody holds any of them while the
//! kernel is told of a change ([`InvalidationSink`]).

mod changes;
mod error;
mod invalidation;
mod orphan_queue;
mod orphans;
mod ranked;
mod references;
mod residency;
mod signal;
mod stale;
mod standalone;
mod volume;

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
pub use volume::{Volume, WRITE_STEP, touch_directory, touch_object};
