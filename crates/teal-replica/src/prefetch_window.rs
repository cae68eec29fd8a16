//! Bounds on prefetching: how much may be fetched before it is needed, and that nothing is fetched
//! twice.
//!
//! # Guarantees
//! 1. *In proportion*: a window grows by the content that is used, sooner or later. It shrinks by
//!    half of the content that was unused when a reader had to wait again, and by half when a fetch
//!    took long. So a walk over the whole tree soon has full replies, several at a time, and a
//!    random reader has little more than it asked for.
//! 2. *Once*: content that one thread is fetching is not fetched by another. A thread that needs it
//!    waits until that fetch has ended, whether or not it succeeded.

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
/// A reader that waits longer than this has fetched too much at once.
const LONG: Duration = Duration::from_secs(1);

/// A bound on prefetching, in bytes or in entries.
#[derive(Debug)]
pub(super) struct PrefetchWindow {
    least: u64,
    most: u64,
    /// Is true while some prefetched content has not been used.
    has_unused: AtomicBool,
    /// Guards itself.
    state: Mutex<WindowState>,
}

#[derive(Debug)]
struct WindowState {
    size: u64,
    /// Prefetched content that has not been used yet.
    unused: HashMap<ObjectNo, UnusedPrefetch>,
    /// The sizes of those of them that are not old.
    fresh: u64,
}

#[derive(Debug)]
struct UnusedPrefetch {
    /// The content counts as used when the object is used beyond this offset.
    from: u64,
    size: u64,
    /// Is true if a reader had to wait after this content came.
    is_old: bool,
}

impl PrefetchWindow {
    /// Returns a window that begins at `least` and may grow to `most`; it is never larger than
    /// `most`.
    pub(super) fn new(least: u64, most: u64) -> Self {
        let least = least.min(most);
        let has_unused = AtomicBool::new(false);
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

    /// Notes that an object is used up to `end`. Returns whether to fetch more now: the content had
    /// been prefetched, and half of the window is free again.
    pub(super) fn note_use(&self, no: ObjectNo, end: u64) -> bool {
        // The flag keeps readers from the lock while no prefetched content is unused.
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
        debug_assert!(open.size <= self.most);
        open.fresh <= open.size / 2
    }

    /// Returns the size of the window, and how much of it is free. Content that came since the last
    /// wait and was not used takes up space in it.
    pub(super) fn available(&self) -> (u64, u64) {
        let open = self.state.lock();
        (open.size, open.size.saturating_sub(open.fresh))
    }

    /// Notes that a reader must wait. Returns how much may be fetched together with the content
    /// that is needed.
    pub(super) fn note_wait(&self) -> u64 {
        let mut open = self.state.lock();
        // A list that is too long is dropped. This costs accuracy only: its content counts neither
        // as used nor as unused.
        if open.unused.len() > UNUSED_MAX {
            open.unused.clear();
        }
        for unused in open.unused.values_mut() {
            unused.is_old = true;
        }
        // Half of the unused content is taken off the window: multiplicative decrease, as in
        // congestion control.
        let unused = std::mem::take(&mut open.fresh);
        open.size = open.size.saturating_sub(unused / 2).max(self.least);
        debug_assert!((self.least..=self.most).contains(&open.size));
        open.size
    }

    /// Notes that content was prefetched which counts as used once the object is used beyond
    /// `from`.
    pub(super) fn note_prefetched(&self, no: ObjectNo, from: u64, size: u64) {
        if size > 0 {
            let mut open = self.state.lock();
            // Content that comes again is counted once.
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

    /// Notes how long a fetch took.
    pub(super) fn note_duration(&self, time: Duration) {
        if time > LONG {
            // A fetch that took long makes readers of other files wait.
            let mut open = self.state.lock();
            open.size = (open.size / 2).max(self.least);
        }
    }
}

impl WindowState {
    /// Removes an object from the unused ones. Returns the size of its prefetched content.
    fn forget_object(&mut self, no: ObjectNo) -> u64 {
        let Some(UnusedPrefetch { size, is_old, .. }) = self.unused.remove(&no) else {
            return 0;
        };
        debug_assert!(
            is_old || size <= self.fresh,
            "unused content is counted twice"
        );
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

/// The ranges that one thread is fetching. Dropping the claim ends it.
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

    /// Waits while other threads fetch any of these bytes. Returns whether it had to wait.
    pub(super) fn wait_for_others(&self, no: ObjectNo, from: u64, to: u64) -> bool {
        let mut in_flight = self.in_flight.lock();
        let is_flying = |in_flight: &mut HashMap<_, ByteRanges>| {
            in_flight.get(&no).is_some_and(|all| all.overlaps(from, to))
        };
        // The answer is for statistics; the wait itself looks again under the lock.
        let waits = is_flying(&mut in_flight);
        self.landed.wait_while(&mut in_flight, is_flying);
        waits
    }
}

impl FetchClaim<'_> {
    /// Claims those of the `wanted` ranges that no other thread is fetching.
    pub(super) fn claim_ranges(&mut self, no: ObjectNo, wanted: &ByteRanges) -> ByteRanges {
        let mut in_flight = self.fetches.in_flight.lock();
        let all = in_flight.entry(no).or_default();
        // The rest is claimed by other threads, and their fetches are waited for.
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
            // Other threads may have claimed other ranges of the same object.
            if let Some(all) = in_flight.get_mut(&no) {
                *all = all.difference(&taken);
                if all.is_empty() {
                    in_flight.remove(&no);
                }
            }
        }
        drop(in_flight);
        // All waiters look again: the condition variable does not know their ranges.
        self.fetches.landed.notify_all();
    }
}

#[cfg(test)]
mod tests;
