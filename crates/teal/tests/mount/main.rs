//! One mount as programs meet it: what they expect of a file system, its limits, what large things
//! and bad sectors cost, and what it does when nothing happens.

#![allow(clippy::unwrap_used, reason = "a test whose ground gives way fails")]

#[path = "../support/support.rs"]
mod support;

mod acl;
mod allocate;
mod copy;
mod damaged;
mod doctor;
mod features;
mod full;
mod idle;
mod inside;
mod large;
mod limits;
mod memory;
mod one_file;
mod overlay;
mod places;
mod repair;
mod ring;
mod salvage;
