//! Opening a store.

pub(crate) mod chain;
pub(crate) mod find_superblock;
pub(crate) mod open;
pub(crate) mod ownership;
pub(crate) mod refusal;
pub(crate) mod roll_forward;
pub(crate) mod window;
