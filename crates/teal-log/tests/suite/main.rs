//! The log store through its public face, on disks in memory: one module for each part of its
//! promises. `stores` and `new_objects` make stores and files. `explore`, `life` and `oracle` make
//! lives of stores, crash them and know what must be found again; the seeded bugs
//! (`tests/seeded.rs`) use them, too.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail")]

mod explore;
mod life;
mod new_objects;
mod oracle;
mod stores;

mod copies;
mod cost;
mod crash;
mod deleted;
mod directories;
mod faults;
mod flips;
mod forged;
mod format_doc;
mod kept;
mod names;
mod owner;
mod preallocate;
mod redo;
mod repair;
mod salvage;
mod sealing;
mod share;
mod stale;
mod store;
mod unfinished;
