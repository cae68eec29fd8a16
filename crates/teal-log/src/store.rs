//! The store: what other crates call. Operations, reading, notes, sharing, and the room that all of
//! it needs.
//!
//! Above the six rooms of the log: everything here goes through
//! [`CommitLog`](crate::commit::log::CommitLog) and the objects below it. Others may use `handle`
//! ([`Store`](handle::Store) itself), `op` and `locked` (operations), `preallocate`, `notes`,
//! `share` and `mkfs`.

pub(crate) mod cleaner;
pub(crate) mod file_content;
pub(crate) mod handle;
pub(crate) mod locked;
pub(crate) mod mkfs;
pub(crate) mod notes;
pub(crate) mod op;
pub(crate) mod preallocate;
pub(crate) mod read;
pub(crate) mod reclaim;
pub(crate) mod relocate;
pub(crate) mod share;
pub(crate) mod space;
