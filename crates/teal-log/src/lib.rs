//! The log store: objects, directories and extents in a log of batches, indexed by copy-on-write trees.
//!
//! Start with [`Store`]: its guarantees and its locks. `format` has every byte on the disk; `commit` argues why a crash is harmless;
//! `open`, `deferred` and `redo` are recovery; `space` and `clean` keep room.

mod ahead;
mod anchors;
mod check;
mod clean;
mod codec;
mod commit;
mod cost;
mod counters;
mod deferred;
mod dir;
mod dump;
mod error;
mod extents;
mod file;
mod fold;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod geometry;
mod host;
mod imap;
mod layout;
mod mkfs;
mod notes;
mod object;
mod op;
mod open;
mod owner;
mod page;
mod parts;
mod read;
mod reader;
mod redo;
mod round;
mod seal;
#[cfg(feature = "seeded-bugs")]
pub mod seeded;
#[cfg(not(feature = "seeded-bugs"))]
#[allow(unreachable_pub, dead_code, reason = "public with the feature only")]
mod seeded;
mod segments;
mod share;
mod shared;
mod space;
mod store;
mod table;
mod tree;
mod walk;
mod weight;

pub use check::{
    CheckOptions, CheckProgress, PROBLEMS_MAX, Phase, Place, Problem, Report, Severity,
};
pub use cost::{Cost, Purpose};
pub use counters::Counts;
pub use dump::{DumpWhat, RawWhat, dump_raw};
pub use error::{DiskRequest, StoreError};
pub use format::superblock::Superblock;
pub use mkfs::{MkfsError, MkfsOptions, SMALLEST_STORE};
pub use notes::{NOTE_HEAD, NOTE_MAX, note_cost};
pub use op::{Locked, NewObject, Op, SetAttr};
pub use open::{OpenError, OpenOptions, Recovery, read_superblock};
pub use owner::{OwnedElsewhere, Owner};
pub use parts::Parts;
pub use read::FIRST_COOKIE;
pub use share::Sharing;
pub use store::{Settings, Space, Store};
