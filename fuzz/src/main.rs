//! The fuzzer: libFuzzer in front of every target. `cargo xtask fuzz` builds it with coverage and
//! runs it; see there.
//!
//! The target is named by `TEAL_FUZZ_TARGET`; inputs to start from are written to the directory
//! `TEAL_FUZZ_SEEDS`, if that is set.

#![no_main]

#[path = "../../crates/teal-fuse/tests/garbage/digest.rs"]
mod digest;

use cap::Cap;
use libfuzzer_sys::fuzz_target;
use std::alloc::System;
use std::sync::OnceLock;
use teal_log::fuzzing::{TARGETS, Target, seeds};

#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

/// What an input may make a decoder hold, and an image of 16 MiB, its changed sectors included.
const DECODER_BYTES: usize = 8 << 20;
const IMAGE_BYTES: usize = 128 << 20;

static TARGET: OnceLock<Target> = OnceLock::new();

fn start() {
    let name = std::env::var("TEAL_FUZZ_TARGET").expect("TEAL_FUZZ_TARGET names a target");
    let (target, inputs): (Target, _) = match TARGETS.iter().find(|(known, _)| *known == name) {
        Some((_, target)) => (*target, seeds(&name)),
        None if name == "fuse" => (digest::digest_all, digest::seeds()),
        None => panic!("no target {name}"),
    };
    if let Some(dir) = std::env::var_os("TEAL_FUZZ_SEEDS") {
        for (i, input) in inputs.iter().enumerate() {
            let path = std::path::Path::new(&dir).join(format!("seed-{i}"));
            std::fs::write(&path, input).expect("the directory of seeds takes them");
        }
    }
    TARGET.get_or_init(|| target);
    let bytes = if name.starts_with("image") { IMAGE_BYTES } else { DECODER_BYTES };
    MEMORY.set_limit(MEMORY.allocated() + bytes).expect("less is allocated");
}

fuzz_target!(init: start(), |input: &[u8]| {
    if let Some(target) = TARGET.get() {
        target(input);
    }
});
