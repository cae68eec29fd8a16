//! check and dump.

pub(crate) mod check;
pub(crate) mod dump;
