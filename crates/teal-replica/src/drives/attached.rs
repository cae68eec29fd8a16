//! One drive that is attached: what is known of it, and what waits for it.

use super::choice::LatencyModel;
use super::queue::DriveQueue;
use super::sleep::SleepTracker;
use super::successions::AffinitySuccessions;
use super::unplaced::UnplacedFiles;
use parking_lot::{Condvar, Mutex};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use teal_device::{Drive, DriveWorker};
use teal_energy::policy::choice::{CostWeights, WeightedCost};
use teal_env::Clock;
use teal_log::StoreError;
use teal_types::ObjectNo;
use teal_volume::RankedMutex;

/// Of a drive with at most so many objects it is known from the beginning which they are.
const HAS_MAX: usize = 16 << 10;

/// A drive that is attached.
#[derive(Debug)]
pub(crate) struct AttachedDrive {
    pub(super) device: u32,
    pub(super) name: String,
    /// Where it is, for people.
    pub(super) place: String,
    pub(super) drive: Arc<Drive>,
    pub(super) reader: DriveWorker,
    pub(super) latency_model: Mutex<LatencyModel>,
    /// `None`: it never sleeps.
    pub(super) sleep_tracker: Mutex<Option<SleepTracker>>,
    pub(super) queue: Mutex<DriveQueue>,
    pub(super) changed: Condvar,
    pub(super) flushing: RankedMutex<()>,
    /// Objects that the burst under way has not come to yet.
    pub(super) burst_left: AtomicU64,
    /// Monotonic time at which the last burst began.
    pub(super) last_burst: Mutex<Duration>,
    /// Something may be always to be on it.
    pub(super) has_affinity: AtomicBool,
    /// The server has said that it knows the history the drive has seen.
    pub(super) is_checked: AtomicBool,
    /// It was attached while the server was away, which is to hear of it.
    pub(super) is_unannounced: AtomicBool,
    /// All objects of which something is on it, and perhaps others; `None`: they are too many.
    pub(super) known_objects: Mutex<Option<HashSet<ObjectNo>>>,
    pub(super) profile: String,
    pub(super) marking: RankedMutex<()>,
    pub(super) successions: Mutex<AffinitySuccessions>,
    pub(super) unplaced: Mutex<UnplacedFiles>,
    pub(super) is_gone: AtomicBool,
    pub(super) counters: DriveCounters,
}

/// What has passed between a drive and this client.
#[derive(Debug, Default)]
pub(super) struct DriveCounters {
    pub(super) reads: AtomicU64,
    pub(super) read_bytes: AtomicU64,
    /// Times it did not answer in time.
    pub(super) late: AtomicU64,
    /// Times it was not asked, because it slept and another had it; and was woken for the next.
    pub(super) asleep: AtomicU64,
    pub(super) woken: AtomicU64,
    /// Times it was not asked, because it had not come back from before.
    pub(super) avoided: AtomicU64,
    /// Times it was not asked, because it was known not to have something.
    pub(super) skipped: AtomicU64,
    pub(super) written_bytes: AtomicU64,
    pub(super) bursts: AtomicU64,
    /// Bytes that were damaged.
    pub(super) spoiled: AtomicU64,
    /// Times something was not copied to it, because nothing more may make way.
    pub(super) full: AtomicU64,
}

impl AttachedDrive {
    pub(super) fn is_usable(&self) -> bool {
        self.is_checked.load(Ordering::Acquire) && !self.is_gone.load(Ordering::Acquire)
    }

    /// Learns what is on it, if that is not too much; under `flushing`: nothing comes meanwhile.
    pub(super) fn load_known_objects(&self) -> Result<(), StoreError> {
        let mut found = HashSet::new();
        self.drive.visit_objects(&mut |no| {
            found.insert(no);
            if found.len() <= HAS_MAX {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        *self.known_objects.lock() = (found.len() <= HAS_MAX).then_some(found);
        Ok(())
    }

    /// Something of an object has come to it.
    pub(super) fn add_known_object(&self, no: ObjectNo) {
        let mut has = self.known_objects.lock();
        if let Some(found) = &mut *has {
            found.insert(no);
            if found.len() > HAS_MAX {
                *has = None;
            }
        }
    }

    pub(super) fn is_asleep(&self, now: Duration) -> bool {
        self.sleep_tracker
            .lock()
            .as_ref()
            .is_some_and(|rest| rest.is_asleep(now))
    }

    pub(super) fn note_use(&self, now: Duration) {
        self.sleep_tracker
            .lock()
            .iter_mut()
            .for_each(|rest| rest.note_use(now));
    }

    /// Returns whether it is written to: a burst is under way, or its log writes for another
    /// reason, as when it is cleaned.
    pub(super) fn is_busy(&self) -> bool {
        self.flushing.is_locked() || self.drive.is_written()
    }

    /// Returns what it costs as it is now.
    pub(super) fn current_latency(&self) -> LatencyModel {
        let mut meter = self.latency_model.lock().clone();
        meter.is_busy = self.is_busy();
        meter
    }

    /// Something else serves at this cost what it would have at another, were it awake: it is woken
    /// if that pays. Nobody waits for it.
    pub(super) fn note_passed_over(
        self: &Arc<Self>,
        (served, bytes): (WeightedCost, u64),
        weights: CostWeights,
        clock: &Arc<dyn Clock>,
    ) {
        self.counters.asleep.fetch_add(1, Ordering::Relaxed);
        let (ideal, now) = (
            self.latency_model.lock().read_cost(bytes, weights),
            clock.monotonic_time(),
        );
        if self
            .sleep_tracker
            .lock()
            .as_mut()
            .is_some_and(|rest| rest.count_loss((served, ideal), weights, now))
        {
            self.counters.woken.fetch_add(1, Ordering::Relaxed);
            let (this, clock) = (Arc::clone(self), Arc::clone(clock));
            self.reader.run_with_deadline(Duration::ZERO, move || {
                if this.drive.read_uncached().is_ok() {
                    this.note_use(clock.monotonic_time());
                }
            });
        }
    }

    pub(super) fn has_nothing_of(&self, no: ObjectNo) -> bool {
        self.known_objects
            .lock()
            .as_ref()
            .is_some_and(|found| !found.contains(&no))
    }
}
