//! One drive that is attached: what is known of it, and what waits for it.

use super::choice::LatencyModel;
use super::queue::{BurstQueue, QUEUE_MAX};
use super::sleep::SleepTracker;
use super::successions::AffinitySuccessions;
use super::unplaced::UnplacedFiles;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashSet;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use teal_device::{Drive, DriveWorker};
use teal_energy::Profile;
use teal_energy::policy::choice::{CostWeights, WeightedCost};
use teal_env::Clock;
use teal_log::StoreError;
use teal_types::{DriveNo, ObjectNo};
use teal_volume::{LockRank, RankedMutex, RankedMutexGuard};

/// The objects on a drive are known from the beginning if there are at most this many.
const HAS_MAX: usize = 16 << 10;

/// The facts that are known of a drive before it is attached.
#[derive(Debug)]
pub(super) struct DriveFacts {
    pub(super) device: DriveNo,
    pub(super) name: String,
    /// The place of the drive, for people.
    pub(super) place: String,
    /// The name of its energy profile; empty: none.
    pub(super) profile: String,
    /// Is true if the drive is attached while the server is away: the server is to hear of it.
    pub(super) is_untold: bool,
}

/// A drive that is attached. What never changes can be read by the files of this folder; what does
/// change is private, and changed by methods.
#[derive(Debug)]
pub(crate) struct AttachedDrive {
    pub(super) device: DriveNo,
    pub(super) name: String,
    /// The place of the drive, for people.
    pub(super) place: String,
    pub(super) profile: String,
    pub(super) drive: Arc<Drive>,
    pub(super) reader: DriveWorker,
    pub(super) queue: BurstQueue,
    pub(super) counters: DriveCounters,
    meter: Mutex<LatencyModel>,
    /// `None`: it never sleeps.
    rest: Mutex<Option<SleepTracker>>,
    flushing: RankedMutex<()>,
    marking: RankedMutex<()>,
    /// Monotonic time at which the last burst began.
    last_burst: Mutex<Duration>,
    /// Is true if an object may have affinity to the drive.
    has_affinity: AtomicBool,
    /// The server has said that it knows the history the drive has seen.
    is_checked: AtomicBool,
    /// Is true if the drive was attached while the server could not be reached, and the server is
    /// still to hear of it.
    is_untold: AtomicBool,
    /// All objects with content on the drive, and perhaps others; `None` if they are too many.
    has: Mutex<Option<HashSet<ObjectNo>>>,
    heirs: Mutex<AffinitySuccessions>,
    short: Mutex<UnplacedFiles>,
}

/// Counters of the traffic between a drive and this client.
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
    /// Returns a drive that begins to be used `now`.
    ///
    /// # Errors
    /// When no thread can be had.
    pub(super) fn new(
        facts: DriveFacts,
        drive: Drive,
        profile: Option<&Profile>,
        now: Duration,
    ) -> io::Result<Self> {
        let has_affinity = drive.label().has_affinity;
        let rest = profile.and_then(|profile| SleepTracker::for_profile(profile, now));
        Ok(Self {
            device: facts.device,
            name: facts.name,
            place: facts.place,
            profile: facts.profile,
            drive: Arc::new(drive),
            reader: DriveWorker::new("teal-drive")?,
            queue: BurstQueue::default(),
            counters: DriveCounters::default(),
            meter: Mutex::new(LatencyModel::local(profile)),
            rest: Mutex::new(rest),
            flushing: RankedMutex::new(LockRank::DriveBurst, ()),
            marking: RankedMutex::new(LockRank::DriveMarks, ()),
            last_burst: Mutex::new(now),
            has_affinity: AtomicBool::new(has_affinity),
            is_checked: AtomicBool::new(facts.is_untold),
            is_untold: AtomicBool::new(facts.is_untold),
            has: Mutex::new(None),
            heirs: Mutex::default(),
            short: Mutex::default(),
        })
    }

    pub(super) fn is_usable(&self) -> bool {
        self.is_checked.load(Ordering::Acquire) && !self.queue.is_gone()
    }

    /// Notes whether the server knows the history the drive has seen: only then it is read.
    pub(super) fn set_checked(&self, is_checked: bool) {
        self.is_checked.store(is_checked, Ordering::Release);
    }

    /// Returns whether the server has not heard yet that the drive is attached here.
    pub(super) fn is_untold(&self) -> bool {
        self.is_untold.load(Ordering::Acquire)
    }

    /// Notes that the server has heard that the drive is attached here.
    pub(super) fn set_told(&self) {
        self.is_untold.store(false, Ordering::Release);
    }

    /// Returns whether something may be always to be on it.
    pub(super) fn has_affinity(&self) -> bool {
        self.has_affinity.load(Ordering::Acquire)
    }

    /// Notes that something is always to be on it.
    pub(super) fn set_has_affinity(&self) {
        self.has_affinity.store(true, Ordering::Release);
    }

    /// Begins a burst, or what must not be done during one.
    pub(super) fn hold_burst(&self) -> RankedMutexGuard<'_, ()> {
        self.flushing.lock()
    }

    /// As [`hold_burst`](Self::hold_burst), unless a burst is under way.
    pub(super) fn try_hold_burst(&self) -> Option<RankedMutexGuard<'_, ()>> {
        self.flushing.try_lock()
    }

    /// Holds what has affinity to the drive: one thread changes that at a time.
    pub(super) fn hold_marks(&self) -> RankedMutexGuard<'_, ()> {
        self.marking.lock()
    }

    /// Notes that a burst begins.
    pub(super) fn burst_begins(&self, now: Duration) {
        *self.last_burst.lock() = now;
        self.note_use(now);
    }

    /// Returns the monotonic time at which the last burst began.
    pub(super) fn last_burst(&self) -> Duration {
        *self.last_burst.lock()
    }

    /// Locks the meter of what reading from it costs.
    pub(super) fn meter(&self) -> MutexGuard<'_, LatencyModel> {
        self.meter.lock()
    }

    /// Locks the list of what found no room on it.
    pub(super) fn short(&self) -> MutexGuard<'_, UnplacedFiles> {
        self.short.lock()
    }

    /// Notes what has happened to what may have affinity, until the drive is told.
    pub(super) fn inform(&self, note: impl Fn(&mut AffinitySuccessions)) {
        let mut heirs = self.heirs.lock();
        if heirs.successors.len() + heirs.ended.len() < QUEUE_MAX {
            note(&mut heirs);
        }
    }

    /// Takes what has happened to what may have affinity, to tell the drive.
    pub(super) fn take_heirs(&self) -> AffinitySuccessions {
        std::mem::take(&mut *self.heirs.lock())
    }

    /// Returns the objects that may be on it; `None`: they are too many.
    pub(super) fn known_objects(&self) -> Option<HashSet<ObjectNo>> {
        self.has.lock().clone()
    }

    /// As if it had not been used for a day.
    #[cfg(test)]
    pub(super) fn sleep_long_ago(&self) {
        if let Some(rest) = &mut *self.rest.lock() {
            rest.sleep_long_ago();
        }
    }

    /// Learns what is on it, if that is not too much; under `flushing`: nothing comes meanwhile.
    pub(super) fn load_known_objects(&self) -> Result<(), StoreError> {
        let mut found = HashSet::new();
        self.drive.visit_objects(&mut |no| {
            // Counting ends when the list is too long to be kept.
            found.insert(no);
            if found.len() <= HAS_MAX {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        // Without the list, every object may be on the drive.
        *self.has.lock() = (found.len() <= HAS_MAX).then_some(found);
        Ok(())
    }

    /// Notes that some content of an object has come to the drive.
    pub(super) fn add_known_object(&self, no: ObjectNo) {
        let mut has = self.has.lock();
        if let Some(found) = &mut *has {
            found.insert(no);
            debug_assert!(found.len() <= HAS_MAX + 1);
            if found.len() > HAS_MAX {
                *has = None;
            }
        }
    }

    pub(super) fn is_asleep(&self, now: Duration) -> bool {
        self.rest
            .lock()
            .as_ref()
            .is_some_and(|rest| rest.is_asleep(now))
    }

    pub(super) fn note_use(&self, now: Duration) {
        for rest in self.rest.lock().iter_mut() {
            rest.note_use(now);
        }
    }

    /// Returns whether it is written to: a burst is under way, or its log writes for another
    /// reason, as when it is cleaned.
    pub(super) fn is_busy(&self) -> bool {
        self.flushing.is_locked() || self.drive.is_written()
    }

    /// Returns what it costs as it is now.
    pub(super) fn current_latency(&self) -> LatencyModel {
        let mut meter = self.meter.lock().clone();
        meter.is_busy = self.is_busy();
        meter
    }

    /// Notes that another source serves, at cost `served`, a read that this drive would have served
    /// were it awake. Wakes the drive if that pays; no reader waits for it.
    pub(super) fn note_passed_over(
        self: &Arc<Self>,
        (served, bytes): (WeightedCost, u64),
        weights: CostWeights,
        clock: &Arc<dyn Clock>,
    ) {
        self.counters.asleep.fetch_add(1, Ordering::Relaxed);
        let ideal = self.meter.lock().read_cost(bytes, weights);
        let now = clock.monotonic_time();
        // Ski rental: a drive is woken once the losses of its sleep have reached the price of
        // waking it.
        if self
            .rest
            .lock()
            .as_mut()
            .is_some_and(|rest| rest.count_loss((served, ideal), weights, now))
        {
            self.counters.woken.fetch_add(1, Ordering::Relaxed);
            let this = Arc::clone(self);
            let clock = Arc::clone(clock);
            // Waking takes seconds: on the drive's own thread.
            self.reader.run_with_deadline(Duration::ZERO, move || {
                if this.drive.read_uncached().is_ok() {
                    this.note_use(clock.monotonic_time());
                }
            });
        }
    }

    pub(super) fn has_nothing_of(&self, no: ObjectNo) -> bool {
        self.has
            .lock()
            .as_ref()
            .is_some_and(|found| !found.contains(&no))
    }
}
