//! The replica: recording changes, flushing them to the server, fetching and installing the
//! server's state, and drives.
//!
//! # Guarantees
//! 1. *Nothing is forgotten*: whatever changes here is noted as dirty in the batch of the change,
//!    and stays noted until the server has committed it or has said what became of it.
//! 2. *Nothing is mixed*: a state of the server is installed component by component, and never over
//!    one that is dirty or in flight here.
//! 3. *Absent is not unreachable*: what only the server has is noted as absent; reading it fetches
//!    it or fails with `Unreachable`, and is never an empty file or a missing name.
//! 4. *No waiting*: no operation waits for the server unless it needs something that only the
//!    server has.
//!
//! # How
//! 1. `note` beside each object says what is dirty, what is in flight in a batch, what is absent.
//!    `changes` sets it as operations change objects.
//! 2. A flush (`flush`) takes a cut: under the exclusive namespace lock, what is dirty goes in
//!    flight, and becomes operations (`cut`); then content is read and sent in chunks (`content`),
//!    then the batch is committed at the server.
//! 3. Changes at the server come as states (`pull`) and are installed (`install`, `names`); own
//!    batches are recognised among them (`acknowledge`).
//! 4. `listing` fetches the entries of directories that are not here, `fetch` content, each with
//!    more than is needed (`prefetch_window`, `neighbours`, `prefetch`); `run` decides when. Pinned
//!    content is fetched in the background (`pin`); other content makes way (`evict`).
//!
//! # Locks
//! Those with a rank are in the table of [`teal_volume`]. A *claim* (`prefetch_window`), by bytes
//! of an object, keeps others from fetching them; it is taken before `Namespace`, and ranges that
//! another thread has claimed are waited for without any lock. All others are leaves.

mod acknowledge;
mod announce;
mod backlog;
mod backlog_cap;
mod backoff;
mod changes;
mod committed;
mod components;
mod connect;
mod content;
mod counters;
mod cut;
mod drives;
mod engine;
mod error;
mod evict;
mod eviction_clock;
mod fetch;
mod field_reader;
mod filter;
mod filter_announcement;
mod flush;
mod hold_back;
mod identity;
mod install;
mod kernel_view;
mod large;
mod listing;
mod listings;
mod names;
mod neighbours;
mod news;
mod note;
mod numbers;
mod offer;
mod options;
mod own_identity;
mod parts;
mod pin;
mod pin_set;
mod prefetch;
mod prefetch_target;
mod prefetch_window;
mod pull;
mod reach;
mod renumber;
mod residency;
mod run;
#[cfg(feature = "seeded-bugs")]
pub mod seeded;
#[cfg(not(feature = "seeded-bugs"))]
#[allow(unreachable_pub, dead_code, reason = "public with the feature only")]
mod seeded;
mod settled_content;
mod state;
mod status;
mod stuck;
mod tails;
mod trail;
mod unresolved;

pub use drives::{
    AffineObject, ContentLocations, DriveRefused, DriveStatus, KnownDrive, KnownDrives, NewDrive,
    ReadPrice, SourceStatus,
};
pub use engine::Replica;
pub use options::UpstreamOptions;
pub use pin_set::{FreedContent, PinRefused, PinStatus, PinSummary};
pub use status::{ServerConnection, UnsentTotals, UpstreamStatus};
pub use stuck::{StuckDirection, StuckObject};
pub use unresolved::UnresolvedConflict;

pub(crate) use error::{SyncError, unexpected};
pub(crate) use identity::ReplicaIdentity;
pub(crate) use note::ObjectNote;
