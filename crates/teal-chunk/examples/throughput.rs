//! How fast content is cut, named, compressed, stored and read: `cargo run --release -p teal-chunk
//! --example throughput [DIR]`.
//!
//! One thread, 256 MiB of content that does not compress and as much that does, read from memory.
//! Without DIR the packs stay in memory; with it they are stored there durably. Figures are MiB/s
//! of content.

use std::error::Error;
use std::hint::black_box;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use teal_chunk::{
    AccessMode, ChunkSizes, ChunkStore, ChunkStoreOptions, ChunkStream, DedupDomain,
    DirectoryShelf, DomainId, MemoryShelf, Shelf, chunk_ranges,
};
use teal_env::{Clock as _, Entropy as _, SystemClock, SystemEntropy};
use teal_types::ChunkId;

const MIB: usize = 256;

fn measured<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let start = SystemClock.monotonic_time();
    let made = work();
    let took = SystemClock
        .monotonic_time()
        .saturating_sub(start)
        .max(Duration::from_nanos(1));
    println!("{what:<40} {:>8.0} MiB/s", MIB as f64 / took.as_secs_f64());
    made
}

/// Random words, or lines of few different words.
fn content(is_random: bool) -> Vec<u8> {
    let mut out = vec![0; MIB << 20];
    SystemEntropy.fill(&mut out);
    if !is_random {
        out.iter_mut()
            .for_each(|byte| *byte = b"etaoin shrdlu\nteal"[usize::from(*byte) % 18]);
    }
    out
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let dir = std::env::args().nth(1);
    for is_random in [true, false] {
        println!(
            "{}:",
            if is_random {
                "content that does not compress"
            } else {
                "content that does"
            }
        );
        let content = content(is_random);
        let ranges: Vec<_> = measured("cut a slice", || {
            chunk_ranges(&content, ChunkSizes::DEFAULT).collect()
        });
        measured("cut a stream", || {
            ChunkStream::new(&content[..], ChunkSizes::DEFAULT)
                .map(black_box)
                .count()
        });
        let domain = DedupDomain::new(DomainId::new([1; 16]), [2; 32]);
        let name = |range: &Range<usize>| domain.name_content(&content[range.clone()]);
        let names: Vec<ChunkId> = measured("name", || ranges.iter().map(name).collect());
        let shelf: Arc<dyn Shelf> = match &dir {
            Some(dir) => Arc::new(DirectoryShelf::open(
                Path::new(dir),
                AccessMode::Write,
                runtime.handle().clone(),
            )?),
            None => Arc::new(MemoryShelf::new()),
        };
        let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
        let store =
            ChunkStore::open(shelf, domain, ChunkStoreOptions::default(), clock, entropy)?.0;
        let put = || store.put(ranges.iter().map(|range| &content[range.clone()]));
        let (ids, _) = measured("store", put)?;
        assert_eq!(ids, names);
        measured("store again", put)?;
        measured("read", || {
            ids.iter().try_for_each(|id| store.get(id).map(drop))
        })?;
        println!("{:?}\n{:?}", store.counts(), store.usage());
    }
    Ok(())
}
