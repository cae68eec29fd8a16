//! From the open batch to the disk.

pub(crate) mod anchors;
pub(crate) mod committer;
pub(crate) mod fold;
pub(crate) mod layout;
pub(crate) mod seal;
pub(crate) mod witness;
pub(crate) mod write;
