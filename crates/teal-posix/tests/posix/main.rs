//! The file system over a store on a disk in memory: each promise of its documentation, and a long
//! comparison with the reference model.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail")]

mod acl;
mod attributes;
mod concurrent;
mod content;
mod copying;
mod fixture;
mod limits;
mod model;
mod names;
mod orphans;
mod removal;
mod reopen;
mod replica;
mod syncing;
mod target;
