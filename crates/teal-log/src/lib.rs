//! The log store: objects, directories and extents in a log of batches, indexed by copy-on-write
//! trees.
//!
//! Start with [`Store`]: its guarantees. Then read the front file of each room; a room uses those
//! above it in this table only.
//!
//! | room | is | begin with |
//! |---|---|---|
//! | `format` | every byte on the disk, and where the parts of a store lie | `docs/format.md` |
//! | `tree` | copy-on-write trees of pages, and the reader with its caches below them | `tree.rs` |
//! | `space` | the segment usage table, the ledger of space, what operations cost | `space/ledger.rs` |
//! | `object` | objects in memory, the open batch, what waits to be redone | `object/objects.rs` |
//! | `commit` | sealing, writing, barriers, checkpoints; why a crash is harmless | `commit/write.rs` |
//! | `recovery` | opening: finding the end of the log, roll-forward | `recovery/open.rs` |
//! | `store` | what other crates call: operations, reading, notes, sharing, making room, the cleaner | `store/handle.rs` |
//! | `inspect` | `check` and `dump` | `inspect/check.rs` |
//! | `repair` | a new store with what a damaged one still says | `repair.rs` |
//!
//! Space is below objects because every change of an object is counted where it is made; the
//! cleaner and whatever else makes room is in `store`, because it commits.

mod commit;
mod counters;
mod error;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod inspect;
mod iovec;
mod object;
mod recovery;
mod repair;
#[cfg(feature = "seeded-bugs")]
pub mod seeded;
#[cfg(not(feature = "seeded-bugs"))]
#[allow(unreachable_pub, dead_code, reason = "public with the feature only")]
mod seeded;
mod space;
mod store;
mod tree;

pub use commit::log::StoreSettings;
pub use counters::StoreCounts;
pub use error::{DiskRequest, StoreError};
pub use format::inode::FIRST_COOKIE;
pub use format::owner::StoreOwner;
pub use format::superblock::Superblock;
pub use inspect::check::{
    CheckOptions, CheckPhase, CheckProblem, CheckProgress, CheckReport, DiskPlace, PROBLEMS_MAX,
    Severity,
};
pub use inspect::dump::{DumpWhat, RawWhat, dump_raw};
pub use iovec::ScatteredBytes;
pub use recovery::find_superblock::read_superblock;
pub use recovery::open::{OpenOptions, Recovery};
pub use recovery::ownership::OwnedElsewhere;
pub use recovery::refusal::StoreOpenError;
pub use repair::copy::RepairError;
pub use repair::findings::{
    LOSSES_MAX, LossKind, RepairFindings, RepairLoss, RepairPhase, RepairProgress,
};
pub use repair::plan::UNFINISHED;
pub use repair::survey::RepairSurvey;
pub use space::cost::{Cost, OperationKind, SpacePurpose};
pub use store::handle::Store;
pub use store::locked::{AttributeChanges, LockedObjects, NewObject};
pub use store::mkfs::{MkfsError, MkfsOptions, SMALLEST_STORE};
pub use store::notes::{NOTE_HEAD, NOTE_MAX};
pub use store::op::StoreOperation;
pub use store::preallocate::{Preallocated, PreallocationPlan};
pub use store::share::SharePlan;
pub use store::space::SpaceStatus;
