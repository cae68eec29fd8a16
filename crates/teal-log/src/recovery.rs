//! Opening a store: its superblock, the chain of records behind the newest anchor, and what they
//! say.
//!
//! Others may use `open` (how to open, and what was found), `find_superblock`, `refusal` (why a
//! store is not opened) and `ownership`. The order inside: `refusal`, `ownership`,
//! `find_superblock`, `window`, `chain` with `resume` and `scan`, `roll_forward`, `open` with
//! `salvage`.

pub(crate) mod chain;
pub(crate) mod find_superblock;
pub(crate) mod open;
pub(crate) mod ownership;
pub(crate) mod refusal;
pub(crate) mod resume;
pub(crate) mod roll_forward;
pub(crate) mod salvage;
pub(crate) mod scan;
pub(crate) mod window;
