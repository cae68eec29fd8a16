//! Every target replays its corpus and does a bounded number of fresh cases.

use super::*;
use crate::format::checksum::{crc, crc_matches, is_lenient};
use std::path::Path;
use teal_testkit::Rng;

/// What all tests of this crate may hold together: a length taken from an image that is allocated
/// unseen ends the process.
#[global_allocator]
static MEMORY: cap::Cap<std::alloc::System> = cap::Cap::new(std::alloc::System, 1 << 30);

/// Returns what is kept in the repository: inputs worth keeping, and those that once broke a
/// promise.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
        .into_iter()
        .map(|path| (path.display().to_string(), std::fs::read(&path).unwrap()))
        .collect()
}

fn mutated(rng: &mut Rng, from: &[Vec<u8>]) -> Vec<u8> {
    let mut input = rng.pick(from).clone();
    for _ in 0..=rng.below(4) {
        let len = input.len();
        match rng.below(5) {
            0 if len > 0 => input.truncate(rng.pick_index(len)),
            1 => {
                let mut more = vec![0; 1 + rng.pick_index(16)];
                rng.fill(&mut more);
                input.extend(more);
            }
            2 => {
                let other = rng.pick(from);
                let (at, start) = (rng.pick_index(len + 1), rng.pick_index(other.len() + 1));
                input.splice(at.., other[start..].iter().copied());
            }
            _ if len > 0 => {
                let at = rng.pick_index(len);
                let edge = [0, 1, 0x7f, 0x80, 0xff, rng.next_u64() as u8];
                let width = *rng.pick(&[1, 2, 4, 8]);
                let value = *rng.pick(&edge);
                input[at..len.min(at + width)].fill(value);
            }
            _ => {}
        }
    }
    input
}

fn run(name: &str, cases: u64) {
    let (_, target) = TARGETS
        .iter()
        .find(|(known, _)| *known == name)
        .expect("a target");
    let mut inputs = Vec::new();
    for (file, input) in corpus(name) {
        println!("{file}");
        target(&input);
        inputs.push(input);
    }
    for input in seeds(name) {
        println!("{input:02x?}");
        target(&input);
        inputs.push(input);
    }
    inputs.push(Vec::new());
    let mut rng = Rng::new(1);
    for _ in 0..cases {
        let input = mutated(&mut rng, &inputs);
        println!("{input:02x?}");
        target(&input);
    }
}

#[test]
fn decoders_take_every_input() {
    for (name, _) in TARGETS
        .iter()
        .filter(|(name, _)| !name.starts_with("image"))
    {
        run(name, 3000);
    }
}

#[test]
fn a_hostile_image_is_harmless() {
    run("image", 600);
}

#[test]
fn a_damaged_image_shows_what_was_committed_or_errors() {
    run("image-sealed", 300);
}

#[test]
fn checksums_look_away_for_the_fuzzer_only() {
    assert!(!crc_matches(b"x", crc(b"y")));
    with_lenient_checksums(|| assert!(crc_matches(b"x", crc(b"y"))));
    assert!(std::panic::catch_unwind(|| with_lenient_checksums(|| panic!("in a target"))).is_err());
    assert!(!is_lenient(), "a panic ends the leniency too");
}

#[test]
fn the_oracle_knows_wrong_data() {
    let base = &bases::base_images()[0];
    let (first, last) = (&base.states[0], base.states.last().unwrap());
    assert!(first.is_part_of(first) && last.is_part_of(last));
    assert!(!first.is_part_of(last) && !last.is_part_of(first));
}
