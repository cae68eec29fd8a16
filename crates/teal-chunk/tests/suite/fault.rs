//! A shelf that fails and crashes as its contract allows.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use teal_chunk::{MemoryShelf, Shelf, ShelfError, ShelfObject};
use teal_testkit::Rng;

/// What happens to changes.
#[derive(Debug)]
struct Plan {
    rng: Rng,
    /// Puts and removals so far.
    calls: u64,
    /// The call during which the machine dies.
    crash_at: Option<u64>,
    is_dead: bool,
    /// How many of the next puts fail.
    failing_puts: u32,
    /// May be back after a crash.
    removed: BTreeMap<String, Vec<u8>>,
}

/// Objects in memory behind a plan of mishaps.
#[derive(Debug, Clone)]
pub(crate) struct FaultShelf {
    objects: MemoryShelf,
    plan: Arc<Mutex<Plan>>,
}

impl FaultShelf {
    pub(crate) fn new(objects: MemoryShelf, seed: u64) -> Self {
        let plan = Plan {
            rng: Rng::new(seed),
            calls: 0,
            crash_at: None,
            is_dead: false,
            failing_puts: 0,
            removed: BTreeMap::new(),
        };
        Self {
            objects,
            plan: Arc::new(Mutex::new(plan)),
        }
    }

    pub(crate) fn objects(&self) -> &MemoryShelf {
        &self.objects
    }

    /// The machine dies during one of the next few puts and removals.
    pub(crate) fn crash_soon(&self) {
        let mut plan = self.plan.lock();
        let soon = 1 + plan.rng.below(6);
        plan.crash_at = Some(plan.calls + soon);
    }

    pub(crate) fn fail_puts(&self, count: u32) {
        self.plan.lock().failing_puts = count;
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.plan.lock().is_dead
    }

    /// Returns what is there after the crash: of what was removed, anything may be back.
    pub(crate) fn after_crash(&self) -> MemoryShelf {
        let plan = &mut *self.plan.lock();
        let mut objects = self.objects.snapshot();
        for (name, bytes) in &plan.removed {
            if plan.rng.chance(0.5) {
                objects.entry(name.clone()).or_insert_with(|| bytes.clone());
            }
        }
        MemoryShelf::from_objects(objects)
    }

    /// Counts a change. `Some(true)`: it fails and takes effect; `Some(false)`: it fails without.
    fn mishap(&self, is_put: bool) -> Option<bool> {
        let plan = &mut *self.plan.lock();
        if plan.is_dead {
            return Some(false);
        }
        plan.calls += 1;
        let takes_effect = plan.rng.chance(0.5);
        if plan.crash_at == Some(plan.calls) {
            plan.is_dead = true;
            return Some(takes_effect);
        }
        if is_put && plan.failing_puts > 0 {
            plan.failing_puts -= 1;
            return Some(takes_effect);
        }
        None
    }

    fn error(name: &str) -> ShelfError {
        ShelfError::Unreachable {
            name: name.into(),
            source: Arc::new(std::io::Error::other("injected")),
        }
    }
}

impl Shelf for FaultShelf {
    fn place(&self) -> String {
        "the test".into()
    }
    fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), ShelfError> {
        let mishap = self.mishap(true);
        if mishap != Some(false) {
            self.objects.put(name, bytes)?;
        }
        mishap.map_or(Ok(()), |_| Err(Self::error(name)))
    }
    fn read(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, ShelfError> {
        if self.is_dead() {
            Err(Self::error(name))
        } else {
            self.objects.read(name, range)
        }
    }
    fn list_objects(&self) -> Result<Vec<ShelfObject>, ShelfError> {
        if self.is_dead() {
            Err(Self::error(""))
        } else {
            self.objects.list_objects()
        }
    }
    fn remove(&self, name: &str) -> Result<(), ShelfError> {
        let mishap = self.mishap(false);
        if mishap != Some(false) {
            let before = self.objects.snapshot().remove(name);
            self.plan
                .lock()
                .removed
                .extend(before.map(|bytes| (name.to_owned(), bytes)));
            self.objects.remove(name)?;
        }
        mishap.map_or(Ok(()), |_| Err(Self::error(name)))
    }
}
