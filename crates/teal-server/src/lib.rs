//! The primary replica: it commits batches, keeps history, and tells clients what has changed.
//!
//! A synchronous state machine over two stores, metadata ([`teal_meta::MetaStore`]) and chunks
//! ([`teal_chunk::ChunkStore`]); transport and threads are the program's. Start with [`Server`];
//! `commit` has the rules of conflicts, `rules` those parts of them that need no database.
//!
//! # Guarantees
//! 1. A batch is one transaction, durable before it is answered; the same batch again is answered
//!    as before.
//! 2. No conflicting update is dropped: both states can be read, and the conflict is shown.
//! 3. Clients add to history and never take from it.
//! 4. Whatever bytes come, there is an answer in words and no panic.

mod admin;
mod checking;
mod commit;
mod conflicts;
mod content;
mod counters;
mod devices;
mod dispatch;
mod domain;
mod filter;
mod guesses;
mod hello;
mod history;
mod keeping;
mod lease;
mod limits;
mod list;
mod names;
mod peer;
mod presence;
mod pull;
mod recent;
mod refusal;
mod rules;
#[cfg(feature = "seeded-bugs")]
pub mod seeded;
#[cfg(not(feature = "seeded-bugs"))]
#[allow(unreachable_pub, dead_code, reason = "public with the feature only")]
mod seeded;
mod server;
mod turns;
mod upkeep;
mod uploads;
mod version;
mod volume;

pub use admin::{EnrolError, ReplicaNote, VolumeNote};
pub use checking::{ContentSource, DamagedFile, ServerCheckReport};
pub use counters::ServerCounts;
pub use domain::load_domain;
pub use limits::*;
pub use peer::Peer;
pub use server::{Server, ServerOpenError};
