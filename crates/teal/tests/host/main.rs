//! What commands and mounts do to the machine they run on: mount namespaces, locks, caches, files
//! that are left, and the words that people are told. No other test program runs beside this one.

#![allow(clippy::unwrap_used, reason = "a test whose ground gives way fails")]

#[path = "../support/support.rs"]
mod support;

mod attributes;
mod bad_input;
mod exclusive;
mod lifecycle;
mod sync;
mod words;
