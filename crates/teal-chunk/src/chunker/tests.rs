//! Cuts are stable, local and bounded.

use super::*;
use proptest::prelude::*;
use std::collections::HashSet;
use teal_testkit::Rng;

fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    Rng::new(seed).fill(&mut out);
    out
}

fn ends(content: &[u8], sizes: ChunkSizes) -> Vec<usize> {
    chunk_ranges(content, sizes)
        .map(|range| range.end)
        .collect()
}

fn small() -> ChunkSizes {
    ChunkSizes::new(256, 1024, 4096).unwrap()
}

/// Gives at most a few bytes at once, is interrupted now and then, and fails once.
struct Halting<'a> {
    rest: &'a [u8],
    rng: Rng,
    fails_at: Option<usize>,
}

impl Read for Halting<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.fails_at.is_some_and(|at| self.rest.len() <= at) {
            self.fails_at = None;
            return Err(io::Error::other("the source halts"));
        }
        if self.rng.chance(0.2) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let n = (1 + self.rng.pick_index(700))
            .min(buf.len())
            .min(self.rest.len());
        buf[..n].copy_from_slice(&self.rest[..n]);
        self.rest = &self.rest[n..];
        Ok(n)
    }
}

#[test]
fn the_cuts_of_a_seeded_stream_never_change() {
    // Golden: a change here loses deduplication against everything that any client has stored so
    // far.
    let bytes = content(1, 3 << 20);
    assert_eq!(ends(&bytes, ChunkSizes::DEFAULT), GOLDEN);
    assert_eq!(ends(&content(2, 12_000), small()), GOLDEN_SMALL);
    assert_eq!(ends(&[], ChunkSizes::DEFAULT), [0; 0]);
    assert_eq!(ends(&[7], ChunkSizes::DEFAULT), [1]);
    assert_eq!(
        ends(&vec![0; 5 << 19], ChunkSizes::DEFAULT),
        [1 << 20, 2 << 20, 5 << 19],
        "zeros have no cuts of their own"
    );
}

const GOLDEN: &[usize] = &[
    160_789, 666_415, 1_289_965, 1_757_347, 2_085_565, 2_456_353, 2_786_024, 3_145_728,
];
const GOLDEN_SMALL: &[usize] = &[1221, 1714, 2791, 4582, 7049, 7650, 9825, 10_986, 12_000];

#[test]
fn sizes_that_cannot_work_are_refused() {
    for (min, avg, max) in [
        (0, 0, 0),
        (65, 256, 1024),
        (64, 64, 1024),
        (64, 1024, 1024),
        (64, 256, CHUNK_MAX + 2),
    ] {
        assert_eq!(ChunkSizes::new(min, avg, max), None, "{min} {avg} {max}");
    }
    let ChunkSizes { min, avg, max } = ChunkSizes::DEFAULT;
    assert_eq!(ChunkSizes::new(min, avg, max), Some(ChunkSizes::default()));
    assert_eq!(
        (ChunkSizes::DEFAULT.min(), ChunkSizes::DEFAULT.max()),
        (min, max)
    );
}

#[test]
fn a_source_that_fails_can_be_asked_again() {
    let bytes = content(3, 40_000);
    let source = Halting {
        rest: &bytes,
        rng: Rng::new(3),
        fails_at: Some(20_000),
    };
    let (mut failures, mut joined) = (0, Vec::new());
    for chunk in ChunkStream::new(source, small()) {
        match chunk {
            Ok(chunk) => joined.extend(chunk),
            Err(e) => {
                assert_eq!(e.to_string(), "the source halts");
                failures += 1;
            }
        }
    }
    assert!(failures == 1 && joined == bytes);
}

#[test]
fn an_average_chunk_is_near_the_wanted_size() {
    let bytes = content(4, 64 << 20);
    let mean = bytes.len() / chunk_ranges(&bytes, ChunkSizes::DEFAULT).count();
    assert!((200 << 10..400 << 10).contains(&mean), "{mean}");
}

#[test]
fn a_change_anywhere_changes_few_chunks() {
    // Seeded, not drawn: how soon cuts meet again is a matter of chance, and there is always a
    // longer way.
    let mut changed = Vec::new();
    for seed in 0..300 {
        let before = content(seed, 200_000);
        let mut rng = Rng::new(seed);
        let at = rng.pick_index(before.len() - 8);
        let mut after = before.clone();
        match seed % 3 {
            0 => drop(after.splice(at..at, content(seed + 1000, 1 + rng.pick_index(8)))),
            1 => drop(after.drain(at..at + 1 + rng.pick_index(8))),
            _ => after[at] ^= 1,
        }
        let old: HashSet<&[u8]> = chunk_ranges(&before, small())
            .map(|range| &before[range])
            .collect();
        changed.push(
            chunk_ranges(&after, small())
                .filter(|range| !old.contains(&after[range.clone()]))
                .count(),
        );
    }
    changed.sort_unstable();
    let (mean, worst) = (changed.iter().sum::<usize>() as f64 / 300.0, changed[299]);
    assert!(
        mean < 4.0 && worst < 30,
        "of about 160 chunks: {mean} changed, at worst {worst}"
    );
}

proptest! {
    #[test]
    fn a_stream_is_cut_like_a_slice(seed: u64, bytes in 0_usize..60_000) {
        let bytes = content(seed, bytes);
        let source = Halting { rest: &bytes, rng: Rng::new(seed), fails_at: None };
        let streamed: Vec<Vec<u8>> = ChunkStream::new(source, small()).collect::<Result<_, _>>().unwrap();
        let sliced: Vec<&[u8]> = chunk_ranges(&bytes, small()).map(|range| &bytes[range]).collect();
        prop_assert_eq!(&streamed, &sliced);
        for (at, chunk) in sliced.iter().enumerate() {
            prop_assert!(chunk.len() <= small().max());
            prop_assert!(chunk.len() >= small().min() || at + 1 == sliced.len());
        }
        prop_assert_eq!(sliced.concat(), bytes);
    }
}
