//! The chunk store through its public face: one module for each part of its promises. `random_life`
//! changes, crashes and checks stores by lot, `place` makes file systems for them; the seeded bugs
//! (`tests/seeded.rs`) use both.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail")]

mod place;
mod random_life;

mod directory;
mod format_doc;
mod life;
mod sharing;
mod store;
