//! The log store: objects, directories and extents in a log of batches, indexed by copy-on-write trees.
//!
//! Start with [`Store`]: its guarantees and its locks. `format` has every byte on the disk; `commit` argues why a crash is harmless;
//! `open`, `deferred` and `redo` are recovery; `space` and `clean` keep room.

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
#[cfg(feature = "seeded-bugs")]
pub mod seeded;
#[cfg(not(feature = "seeded-bugs"))]
#[allow(unreachable_pub, dead_code, reason = "public with the feature only")]
mod seeded;
mod space;
mod store;
mod tree;

pub use counters::Counts;
pub use error::{DiskRequest, StoreError};
pub use format::inode::FIRST_COOKIE;
pub use format::owner::Owner;
pub use format::superblock::Superblock;
pub use inspect::check::{
    CheckOptions, CheckProgress, PROBLEMS_MAX, Phase, Place, Problem, Report, Severity,
};
pub use inspect::dump::{DumpWhat, RawWhat, dump_raw};
pub use iovec::Parts;
pub use recovery::find_superblock::read_superblock;
pub use recovery::open::{OpenOptions, Recovery};
pub use recovery::ownership::OwnedElsewhere;
pub use recovery::refusal::OpenError;
pub use space::cost::{Cost, Purpose};
pub use store::mkfs::{MkfsError, MkfsOptions, SMALLEST_STORE};
pub use store::notes::{NOTE_HEAD, NOTE_MAX, note_cost};
pub use store::op::{Locked, NewObject, Op, SetAttr};
pub use store::share::Sharing;
pub use store::{Settings, Space, Store};
