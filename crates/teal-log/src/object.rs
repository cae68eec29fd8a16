//! Objects: their state in memory, their content and names, where their records lie, and what
//! changes of them take.
//!
//! Others may use `objects` ([`ObjectStore`](objects::ObjectStore): looking objects up, accounting
//! of what changes take away) and its components: `open_batch`, `unfolded`, `deferred`, `numbers`,
//! `cache`; `state` with `directory`, `extents` and `content` for one object; `estimate` and
//! `headroom` for room. The order inside: `extents` and `directory`, `state`, `attributes`,
//! `gather`, `content`, `preallocation`, `sealed_size`, the components, `objects`, and on it
//! `accounting`, `sweep`,
//! `redo` with `losses`, `catch_up`, `estimate`, `headroom`.

pub(crate) mod accounting;
pub(crate) mod attributes;
pub(crate) mod cache;
pub(crate) mod catch_up;
pub(crate) mod content;
pub(crate) mod deferred;
pub(crate) mod directory;
pub(crate) mod estimate;
pub(crate) mod extents;
pub(crate) mod gather;
pub(crate) mod headroom;
pub(crate) mod losses;
pub(crate) mod numbers;
pub(crate) mod objects;
pub(crate) mod open_batch;
pub(crate) mod preallocation;
pub(crate) mod redo;
pub(crate) mod sealed_size;
pub(crate) mod state;
pub(crate) mod sweep;
pub(crate) mod unfolded;
