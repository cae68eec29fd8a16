//! How much comes ahead of what is needed, and that it comes once.
//!
//! # Guarantees
//! 1. *In proportion*: a window grows by what of it is used, sooner or later, and shrinks by half
//!    of what was not when somebody had to wait again, or by half when it took long. So a walk over
//!    all that is there soon has whole replies, several at a time, and who reads here and there
//!    what he needs.
//! 2. *Once*: content that one thread is fetching is not fetched by another, but waited for by
//!    whoever needs it, until that has ended, well or not.

use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use teal_types::ObjectNo;
use teal_types::ranges::ByteRanges;

/// Entries that come ahead when nothing is known of a walk.
pub(super) const NAMES_LEAST: u64 = 512;
/// Content that comes ahead when nothing is known of a walk.
pub(super) const CONTENT_LEAST: u64 = 256 << 10;

/// The most objects of which something came ahead that are remembered.
const UNUSED_MAX: usize = 8192;
/// Who waits so long waited for too much.
const LONG: Duration = Duration::from_secs(1);

/// How much comes ahead, in bytes or in entries.
#[derive(Debug)]
pub(super) struct PrefetchWindow {
    least: u64,
    most: u64,
    /// Whether something has come that was not used yet.
    has_unused: AtomicBool,
    /// Guards itself.
    state: Mutex<WindowState>,
}

#[derive(Debug)]
struct WindowState {
    size: u64,
    /// What came ahead and was not used yet.
    unused: HashMap<ObjectNo, UnusedPrefetch>,
    /// The sizes of those of them that are not old.
    fresh: u64,
}

#[derive(Debug)]
struct UnusedPrefetch {
    /// It is used when the object is, beyond this.
    from: u64,
    size: u64,
    /// Somebody had to wait since it came.
    is_old: bool,
}

impl PrefetchWindow {
    /// From `least` up to `most`; never more than `most`.
    pub(super) fn new(least: u64, most: u64) -> Self {
        let (least, has_unused) = (least.min(most), AtomicBool::new(false));
        Self {
            least,
            most,
            has_unused,
            state: Mutex::new(WindowState {
                size: least,
                unused: HashMap::new(),
                fresh: 0,
            }),
        }
    }

    /// An object is used up to `end`. Whether more should come now: that had come ahead, and half
    /// of the window has room again.
    pub(super) fn note_use(&self, no: ObjectNo, end: u64) -> bool {
        if !self.has_unused.load(Ordering::Relaxed) {
            return false;
        }
        let mut open = self.state.lock();
        if open.unused.get(&no).is_none_or(|unused| unused.from >= end) {
            return false;
        }
        open.size = (open.size + open.forget_object(no)).min(self.most);
        self.has_unused
            .store(!open.unused.is_empty(), Ordering::Relaxed);
        open.fresh <= open.size / 2
    }

    /// The size, and how much more may come now: what came since somebody had to wait and was not
    /// used takes room.
    pub(super) fn available(&self) -> (u64, u64) {
        let open = self.state.lock();
        (open.size, open.size.saturating_sub(open.fresh))
    }

    /// Somebody must wait: how much may come with what he needs.
    pub(super) fn note_wait(&self) -> u64 {
        let mut open = self.state.lock();
        if open.unused.len() > UNUSED_MAX {
            open.unused.clear();
        }
        open.unused
            .values_mut()
            .for_each(|unused| unused.is_old = true);
        let unused = std::mem::take(&mut open.fresh);
        open.size = open.size.saturating_sub(unused / 2).max(self.least);
        open.size
    }

    /// So much has come ahead, and is used when the object is used beyond `from`.
    pub(super) fn note_prefetched(&self, no: ObjectNo, from: u64, size: u64) {
        if size > 0 {
            let mut open = self.state.lock();
            open.forget_object(no);
            open.unused.insert(
                no,
                UnusedPrefetch {
                    from,
                    size,
                    is_old: false,
                },
            );
            open.fresh += size;
            self.has_unused.store(true, Ordering::Relaxed);
        }
    }

    /// It took this time to come.
    pub(super) fn note_duration(&self, time: Duration) {
        if time > LONG {
            let mut open = self.state.lock();
            open.size = (open.size / 2).max(self.least);
        }
    }
}

impl WindowState {
    /// The size of what came ahead of an object, which is not unused any more.
    fn forget_object(&mut self, no: ObjectNo) -> u64 {
        let Some(UnusedPrefetch { size, is_old, .. }) = self.unused.remove(&no) else {
            return 0;
        };
        self.fresh -= if is_old { 0 } else { size };
        size
    }
}

/// Content that is being fetched.
#[derive(Debug, Default)]
pub(super) struct FetchesInFlight {
    /// Guards itself.
    in_flight: Mutex<HashMap<ObjectNo, ByteRanges>>,
    landed: Condvar,
}

/// What one thread is fetching, for as long as this lives.
#[derive(Debug)]
pub(super) struct FetchClaim<'a> {
    fetches: &'a FetchesInFlight,
    taken: Vec<(ObjectNo, ByteRanges)>,
}

impl FetchesInFlight {
    pub(super) fn begin_claim(&self) -> FetchClaim<'_> {
        FetchClaim {
            fetches: self,
            taken: Vec::new(),
        }
    }

    /// Waits as long as others fetch any of these bytes; `false`: nobody does.
    pub(super) fn wait_for_others(&self, no: ObjectNo, from: u64, to: u64) -> bool {
        let mut in_flight = self.in_flight.lock();
        let is_flying = |in_flight: &mut HashMap<_, ByteRanges>| {
            in_flight.get(&no).is_some_and(|all| all.overlaps(from, to))
        };
        let waits = is_flying(&mut in_flight);
        self.landed.wait_while(&mut in_flight, is_flying);
        waits
    }
}

impl FetchClaim<'_> {
    /// Takes those of `wanted` that nobody is fetching yet.
    pub(super) fn claim_ranges(&mut self, no: ObjectNo, wanted: &ByteRanges) -> ByteRanges {
        let mut in_flight = self.fetches.in_flight.lock();
        let all = in_flight.entry(no).or_default();
        let free = wanted.difference(all);
        all.add_all(&free);
        self.taken.push((no, free.clone()));
        free
    }
}

impl Drop for FetchClaim<'_> {
    fn drop(&mut self) {
        let mut in_flight = self.fetches.in_flight.lock();
        for (no, taken) in self.taken.drain(..) {
            if let Some(all) = in_flight.get_mut(&no) {
                *all = all.difference(&taken);
                if all.is_empty() {
                    in_flight.remove(&no);
                }
            }
        }
        drop(in_flight);
        self.fetches.landed.notify_all();
    }
}

#[cfg(test)]
mod tests;
