//! POSIX semantics over a volume: names, permissions, content, and the thread that commits.
//!
//! # Guarantees
//! 1. *Atomic*: an operation on names or attributes is in one batch, so a crash shows all of it or
//!    nothing. A write larger than [`WRITE_STEP`] may be cut between its steps.
//! 2. *Total*: whatever arguments arrive, the answer is a result or an [`FsError`]; damage is named
//!    once in the program's log.
//! 3. *Kept*: an object that is referred to ([`FileSystem::hold`]) lives on without a name, and is
//!    given back at the last [`FileSystem::release`], or after a crash.
//! 4. *Silent*: while nothing changes there is no I/O, with the background thread running or not.
//! 5. Permissions are the kernel's business (`default_permissions`); this crate enforces only what
//!    the kernel cannot.
//!
//! # Locks
//! The locks that operations share with the replica are in the table of [`teal_volume`]. `syncs`
//! and `background` are leaves.

mod access_times;
mod acl;
mod attributes;
mod background;
mod background_state;
mod cleaning_pace;
mod content;
mod copying;
mod create;
mod file_system;
mod flags;
mod listing;
mod options;
mod remove;
mod rename;
#[cfg(feature = "seeded-bugs")]
pub mod seeded;
#[cfg(not(feature = "seeded-bugs"))]
#[allow(unreachable_pub, dead_code, reason = "public with the feature only")]
mod seeded;
mod status;
mod sync_queue;
mod syncing;
mod xattr;

pub use attributes::{SetAttrRequest, TimeChange};
pub use content::{FallocateMode, SeekTarget, WriteFlags};
pub use file_system::FileSystem;
pub use flags::InodeFlags;
pub use listing::DirEntry;
pub use options::{AtimePolicy, Caller, FileSystemOptions, ReadAccess};
pub use status::{RemainingReferences, SpaceStatistics, VolumeStatus};
pub use teal_types::{RenameMode, XattrMode, split_whiteout};
pub use teal_volume::{FsError, Invalidation, InvalidationSink, Moment, WRITE_STEP};
