//! Segment usage, the ledger of space, and what operations cost.

pub(crate) mod cost;
pub(crate) mod host;
pub(crate) mod segments;
