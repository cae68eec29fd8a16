//! The server as its clients meet it: one module for each part of its promises, `fixture` is a
//! server in memory and its devices.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail")]

#[macro_use]
mod fixture;

mod appends;
mod basics;
mod bounds;
mod crash;
mod devices;
mod filters;
mod history;
mod identity;
mod listings;
mod names;
mod random;
mod saves;
mod states;
mod stream;
mod upkeep;
