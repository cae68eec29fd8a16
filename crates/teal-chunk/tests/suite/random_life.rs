//! One life of a store: batches, names, pins, collections, failures, crashes; and a note of what
//! was promised.

#[path = "fault.rs"]
pub(crate) mod fault;

use fault::FaultShelf;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use teal_chunk::{
    ChunkError, ChunkStore, ChunkStoreOptions, DedupDomain, DomainId, MemoryShelf, Pin, PinError,
    Shelf, ShelfScanReport,
};
use teal_env::Clock;
use teal_testkit::{Rng, SeededEntropy, SimClock};
use teal_types::ChunkId;

pub(crate) const GRACE: Duration = Duration::from_secs(60);
/// Different contents of a life: few, so that chunks meet again.
const CONTENTS: u64 = 80;
/// Packs of a few chunks.
const TARGET: usize = 6 << 10;

pub(crate) fn domain() -> DedupDomain {
    DedupDomain::new(DomainId::new([1; 16]), [2; 32])
}

pub(crate) fn open(
    shelf: Arc<dyn Shelf>,
    clock: &SimClock,
    seed: u64,
) -> Result<(ChunkStore, ShelfScanReport), ChunkError> {
    let options = ChunkStoreOptions {
        pack_target: TARGET,
        ..ChunkStoreOptions::default()
    };
    ChunkStore::open(
        shelf,
        domain(),
        options,
        Arc::new(clock.clone()),
        Arc::new(SeededEntropy::new(seed)),
    )
}

/// The `n`-th content: 1 to 2000 bytes, half of them such as do not compress.
pub(crate) fn content(n: u64) -> Vec<u8> {
    let mut rng = Rng::new(n);
    let mut out = vec![n as u8; 1 + rng.pick_index(2000)];
    if n.is_multiple_of(2) {
        rng.fill(&mut out);
    }
    out
}

pub(crate) struct Life {
    pub(crate) store: ChunkStore,
    pub(crate) shelf: FaultShelf,
    pub(crate) clock: SimClock,
    rng: Rng,
    /// What the metadata names: must be readable whatever happens.
    named: BTreeMap<ChunkId, u64>,
    /// Pins held: as if named, while they are held.
    pins: Vec<(Pin, Vec<(ChunkId, u64)>)>,
    /// Stored by this process just now: must stay for the grace.
    fresh: BTreeMap<ChunkId, Duration>,
}

impl Life {
    pub(crate) fn new(seed: u64) -> Self {
        let (shelf, clock) = (
            FaultShelf::new(MemoryShelf::new(), seed),
            SimClock::default(),
        );
        let (store, _) = open(Arc::new(shelf.clone()), &clock, seed).unwrap();
        let (named, fresh) = (BTreeMap::new(), BTreeMap::new());
        Self {
            store,
            shelf,
            clock,
            rng: Rng::new(seed),
            named,
            pins: Vec::new(),
            fresh,
        }
    }

    /// Does `steps` things. Whatever promise is found broken is the error.
    pub(crate) fn run(&mut self, steps: u32) -> Result<(), String> {
        for _ in 0..steps {
            match self.rng.below(14) {
                0..=4 => self.put()?,
                5 => self.pin_known()?,
                6 => drop(
                    (!self.pins.is_empty())
                        .then(|| self.pins.swap_remove(self.rng.pick_index(self.pins.len()))),
                ),
                7 => self.forget_names(),
                8 => self.clock.advance(GRACE / 2),
                9 => self.shelf.fail_puts(1 + self.rng.below(2) as u32),
                10 => self.collect()?,
                11 => self.merge()?,
                12 => self.ask()?,
                _ => self.reopen(self.shelf.objects().clone())?,
            }
            if self.shelf.is_dead() {
                self.reopen(self.shelf.after_crash())?;
            } else if self.rng.chance(0.1) {
                self.shelf.crash_soon();
            }
        }
        self.reopen(self.shelf.after_crash())?;
        self.verify()
    }

    fn reopen(&mut self, objects: MemoryShelf) -> Result<(), String> {
        self.pins.clear();
        self.fresh.clear();
        self.shelf = FaultShelf::new(objects, self.rng.next_u64());
        let (store, opening) = open(
            Arc::new(self.shelf.clone()),
            &self.clock,
            self.rng.next_u64(),
        )
        .map_err(|e| format!("opening: {e}"))?;
        if !opening.damaged.is_empty() || opening.stranger_count > 0 {
            return Err(format!("opening found {opening:?}"));
        }
        self.store = store;
        self.verify()
    }

    fn put(&mut self) -> Result<(), String> {
        let numbers: Vec<u64> = (0..1 + self.rng.below(8))
            .map(|_| self.rng.below(CONTENTS))
            .collect();
        let mut batch = self.store.begin_batch().map_err(|e| e.to_string())?;
        let (mut chunks, mut fresh) = (Vec::new(), Vec::new());
        for n in numbers {
            let content = content(n);
            if !self.store.peek_present(&[domain().name_content(&content)])[0] {
                fresh.push(domain().name_content(&content));
            }
            chunks.push((batch.add(&content).map_err(|e| e.to_string())?, n));
        }
        // What has failed promises nothing; a store that is dead by now neither.
        let Ok(pin) = batch.commit() else {
            return Ok(());
        };
        let now = self.clock.monotonic_time();
        self.fresh
            .extend(fresh.into_iter().map(|chunk| (chunk, now)));
        match self.rng.below(3) {
            0 => self.pins.push((pin, chunks)),
            1 => self.named.extend(chunks),
            _ => {}
        }
        self.verify()
    }

    /// A client asks what is here; the commit pins it and names it.
    fn pin_known(&mut self) -> Result<(), String> {
        let chunks: Vec<(ChunkId, u64)> = (0..1 + self.rng.below(4))
            .map(|_| self.rng.below(CONTENTS))
            .map(|n| (domain().name_content(&content(n)), n))
            .collect();
        let ids: Vec<ChunkId> = chunks.iter().map(|(chunk, _)| *chunk).collect();
        match self.store.pin(&ids) {
            Ok(pin) if self.rng.chance(0.5) => self.pins.push((pin, chunks)),
            Ok(_) => self.named.extend(chunks),
            Err(PinError::Missing(missing)) => {
                let have = self.store.peek_present(&missing);
                if have.contains(&true) {
                    return Err("a chunk is had and cannot be pinned".into());
                }
            }
            Err(PinError::Store(error)) => return Err(error.to_string()),
        }
        self.verify()
    }

    /// A client asks what is here, and is going to name it within the grace.
    fn ask(&mut self) -> Result<(), String> {
        let chunks: Vec<ChunkId> = (0..4)
            .map(|_| domain().name_content(&content(self.rng.below(CONTENTS))))
            .collect();
        let now = self.clock.monotonic_time();
        let have = self.store.find_present(&chunks);
        let told = chunks
            .into_iter()
            .zip(have)
            .filter(|(_, had)| *had)
            .map(|(chunk, _)| (chunk, now));
        self.fresh.extend(told);
        Ok(())
    }

    /// Small packs are put together, with commits at any point of it.
    fn merge(&mut self) -> Result<(), String> {
        let before = self.store.usage();
        let mut sweep = self.store.begin_merge().map_err(|e| e.to_string())?;
        loop {
            self.meanwhile()?;
            match sweep.run_step() {
                Ok(true) if self.rng.chance(0.1) => break,
                Ok(true) => {}
                Ok(false) | Err(_) => break,
            }
        }
        drop(sweep);
        let after = self.store.usage();
        if after.chunks < before.chunks {
            return Err(format!(
                "a merge lost chunks: {after:?}, and before {before:?}"
            ));
        }
        self.verify()
    }

    fn forget_names(&mut self) {
        let share = self.rng.below(100) as f64 / 100.0;
        let rng = &mut self.rng;
        self.named.retain(|_, _| rng.chance(share));
    }

    /// A collection, with commits at any point of it.
    fn collect(&mut self) -> Result<(), String> {
        let mut marking = self
            .store
            .begin_collection(GRACE)
            .map_err(|e| e.to_string())?;
        let live: Vec<ChunkId> = self.named.keys().copied().collect();
        self.meanwhile()?;
        marking.mark_live(live);
        self.meanwhile()?;
        let mut sweep = marking.begin_sweep();
        loop {
            self.meanwhile()?;
            match sweep.run_step() {
                Ok(true) if self.rng.chance(0.1) => break,
                Ok(true) => {}
                Ok(false) | Err(_) => break,
            }
        }
        if sweep.report().missing_count > 0 || !sweep.report().damaged.is_empty() {
            return Err(format!("the collection found {:?}", sweep.report()));
        }
        drop(sweep);
        self.verify()
    }

    fn meanwhile(&mut self) -> Result<(), String> {
        match self.rng.below(5) {
            0 => self.put(),
            4 => self.ask(),
            1 | 2 => self.pin_known(),
            3 => {
                drop(
                    (!self.pins.is_empty())
                        .then(|| self.pins.swap_remove(self.rng.pick_index(self.pins.len()))),
                );
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Everything promised is kept.
    pub(crate) fn verify(&mut self) -> Result<(), String> {
        if self.shelf.is_dead() {
            return Ok(());
        }
        let pinned = self
            .pins
            .iter()
            .flat_map(|(_, chunks)| chunks.iter().map(|(chunk, n)| (chunk, n)));
        let must: BTreeSet<(&ChunkId, &u64)> = self.named.iter().chain(pinned).collect();
        for (chunk, n) in must {
            match self.store.get(chunk) {
                Ok(read) if read == content(*n) => {}
                Ok(_) => return Err(format!("chunk {chunk} has another content")),
                Err(error) => return Err(format!("a promised chunk is gone: {error}")),
            }
        }
        let now = self.clock.monotonic_time();
        self.fresh
            .retain(|_, since| now.saturating_sub(*since) < GRACE);
        let fresh: Vec<ChunkId> = self.fresh.keys().copied().collect();
        if self.store.peek_present(&fresh).contains(&false) {
            return Err("a chunk is gone before its grace was over".into());
        }
        Ok(())
    }
}
