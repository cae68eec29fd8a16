//! Outside suites and programs on a mount, and on the two machines of a volume: `pjdfstest`, `fsx`,
//! `fio`, databases, archives, and random programs against a model.

#![allow(clippy::unwrap_used, reason = "a test whose ground gives way fails")]

#[path = "../support/support.rs"]
mod support;

mod fio;
mod fsx;
mod joined;
mod loads;
mod model;
mod posix;
mod real;
