//! Objects in memory: their state, content, names, and what a change of one takes.

pub(crate) mod accounting;
pub(crate) mod attributes;
pub(crate) mod cache;
pub(crate) mod content;
pub(crate) mod deferred;
pub(crate) mod directory;
pub(crate) mod extents;
pub(crate) mod gather;
pub(crate) mod redo;
pub(crate) mod sealed_size;
pub(crate) mod state;
pub(crate) mod sweep;
pub(crate) mod unfolded;
