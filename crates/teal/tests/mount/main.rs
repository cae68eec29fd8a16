//! One mount as programs meet it: what they expect of a file system, its limits, and what large
//! things cost.

#![allow(clippy::unwrap_used, reason = "a test whose ground gives way fails")]

#[path = "../support/support.rs"]
mod support;

mod acl;
mod allocate;
mod copy;
mod doctor;
mod features;
mod full;
mod inside;
mod large;
mod limits;
mod memory;
mod salvage;
