//! From the open batch to the disk: sealing, writing, one barrier; checkpoints and anchors; the
//! clean end.
//!
//! Others may use `log` ([`CommitLog`](log::CommitLog): commits, checkpoints, settings),
//! `committer` (the state behind the committer's lock, and the kinds of batches),
//! `layout::ChainPosition` (where the chain stands) and `anchors` with `witness` for opening. The
//! order inside: `second_copies`, `layout`, `anchors`, `witness`, `committer`, `durability`, `log`,
//! and on it `room`, `features`, `seal`, `fold`, `write`.

pub(crate) mod anchors;
pub(crate) mod committer;
pub(crate) mod durability;
pub(crate) mod features;
pub(crate) mod fold;
pub(crate) mod layout;
pub(crate) mod log;
pub(crate) mod room;
pub(crate) mod seal;
pub(crate) mod second_copies;
pub(crate) mod witness;
pub(crate) mod write;
