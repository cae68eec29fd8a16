//! One volume on several machines: real mounts, a real server, loopback.

#![allow(clippy::unwrap_used, reason = "a test whose ground gives way fails")]

#[path = "../support/support.rs"]
mod support;

mod appends;
mod damaged;
mod fetching;
mod pin;
mod restored;
mod serve;
mod stuck;
mod together;
