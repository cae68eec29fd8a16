//! Makes threads wait: for the start, the end, time, semaphores, events.
//!
//! # Guarantees
//! 1. A waiting thread is woken when the run ends, and waits no longer than that.
//! 2. No lock here is held while anything else is done.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time after which a wait for a semaphore fails, as in Filebench.
pub(super) const PATIENCE: Duration = Duration::from_secs(600);
/// Seconds of unused events that the source keeps.
const BACKLOG_SECONDS: f64 = 5.0;

/// Ends a run. Each thread looks at the flag between two operations.
#[derive(Debug, Default)]
pub(super) struct StopFlag {
    flag: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl StopFlag {
    pub(super) fn is_set(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self) {
        // The lock makes a thread that is about to sleep see the flag or the notification.
        let _held = self.lock.lock();
        self.flag.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Returns after this time, or when the run ends.
    pub(super) fn sleep_for(&self, time: Duration) {
        let mut held = self.lock.lock();
        let Some(until) = (!self.is_set()).then_some(time) else {
            return;
        };
        // A spurious wake-up is only early: the caller looks at its clock again.
        let _ = self.changed.wait_for(&mut held, until);
    }
}

/// Says how waiting ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitOutcome {
    /// The wanted event came.
    Got,
    /// The run has ended.
    Stopped,
    /// The wait took too long.
    TimedOut,
}

/// Holds tokens, and room for the threads that post them: one instance of a `semblock`.
#[derive(Debug)]
pub(super) struct Semaphore {
    /// Guards the counts, and is held for a few instructions only.
    state: Mutex<SemaphoreState>,
    given: Condvar,
    made_room: Condvar,
}

#[derive(Debug)]
struct SemaphoreState {
    tokens: u64,
    /// Tokens that may still be posted ahead.
    room: u64,
    /// Tokens that the one taking thread waits for: fewer do not wake it.
    wanted: Option<u64>,
    /// Number of threads that wait for room.
    posting: u64,
}

impl Semaphore {
    pub(super) fn new(highwater: u64) -> Self {
        let held = SemaphoreState {
            tokens: 0,
            room: highwater,
            wanted: None,
            posting: 0,
        };
        Self {
            state: Mutex::new(held),
            given: Condvar::new(),
            made_room: Condvar::new(),
        }
    }

    /// Makes room for `semblock`, then takes tokens.
    pub(super) fn block(&self, value: u64, stop: &StopFlag) -> WaitOutcome {
        let mut held = self.state.lock();
        // The room is made before the wait: the poster may be waiting for it.
        held.room += value;
        if held.posting > 0 {
            self.made_room.notify_all();
        }
        while held.tokens < value {
            if stop.is_set() {
                return WaitOutcome::Stopped;
            }
            held.wanted = Some(value);
            // A token may have come in the last moment of the wait.
            if self.given.wait_for(&mut held, PATIENCE).timed_out() && held.tokens < value {
                return WaitOutcome::TimedOut;
            }
        }
        debug_assert!(held.tokens >= value, "the tokens that are taken are there");
        held.wanted = None;
        held.tokens -= value;
        WaitOutcome::Got
    }

    /// Takes room for `sempost` if it must, then gives tokens.
    pub(super) fn post(&self, value: u64, blocking: bool, stop: &StopFlag) -> WaitOutcome {
        let mut held = self.state.lock();
        while blocking && held.room < value {
            if stop.is_set() {
                return WaitOutcome::Stopped;
            }
            held.posting += 1;
            let late = self.made_room.wait_for(&mut held, PATIENCE).timed_out();
            held.posting -= 1;
            // Room may have been made in the last moment of the wait.
            if late && held.room < value {
                return WaitOutcome::TimedOut;
            }
        }
        if blocking {
            held.room -= value;
        }
        held.tokens += value;
        // A notification for too few tokens would wake the taker for nothing.
        if held.wanted.is_some_and(|wanted| held.tokens >= wanted) {
            self.given.notify_all();
        }
        WaitOutcome::Got
    }

    /// Wakes all waiters after the end was set.
    pub(super) fn wake_all(&self) {
        // The lock orders this after a waiter's look at the flag.
        let _held = self.state.lock();
        self.given.notify_all();
        self.made_room.notify_all();
    }
}

/// Holds back the threads at a `block`: one instance of it.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// Number of times that it was opened.
    opened: Mutex<u64>,
    changed: Condvar,
}

impl Gate {
    /// Waits for the next time it opens.
    pub(super) fn wait_for_opening(&self, stop: &StopFlag) -> WaitOutcome {
        let mut opened = self.opened.lock();
        let before = *opened;
        // The count tells an opening from a spurious wake-up.
        while *opened == before {
            if stop.is_set() {
                return WaitOutcome::Stopped;
            }
            self.changed.wait(&mut opened);
        }
        WaitOutcome::Got
    }

    pub(super) fn open(&self) {
        *self.opened.lock() += 1;
        self.changed.notify_all();
    }
}

/// Makes events at a rate: one source for the run.
#[derive(Debug)]
pub(super) struct EventSource {
    /// Time of the last look in nanoseconds, and the events then. A number below 0 counts events
    /// that are promised to waiting threads.
    state: Mutex<(u64, f64)>,
}

impl EventSource {
    pub(super) fn new(now: u64) -> Self {
        Self {
            state: Mutex::new((now, 0.0)),
        }
    }

    /// Starts the source now.
    pub(super) fn restart(&self, now: u64) {
        *self.state.lock() = (now, 0.0);
    }

    /// Takes `n` events; returns the time until they have happened. Threads are served in the order
    /// in which they come.
    pub(super) fn take_events(&self, n: u64, rate: f64, now: u64) -> Duration {
        debug_assert!(rate > 0.0, "a source without a rate makes no events");
        let mut held = self.state.lock();
        let (then, events) = *held;
        let came = now.saturating_sub(then) as f64 / 1e9 * rate;
        // A backlog of some seconds is kept, an older one is lost.
        let left = (events + came).min(rate * BACKLOG_SECONDS) - n as f64;
        // Threads race for the lock, so a later one may come with an earlier time.
        *held = (now.max(then), left);
        if left >= 0.0 {
            Duration::ZERO
        } else {
            Duration::from_secs_f64((-left / rate).min(1e9))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_evenly_and_a_backlog_of_five_seconds_is_kept() {
        let events = EventSource::new(0);
        let second = 1_000_000_000;
        assert_eq!(
            events.take_events(1, 100.0, 0),
            Duration::from_millis(10),
            "the first takes a period"
        );
        assert_eq!(
            events.take_events(1, 100.0, 0),
            Duration::from_millis(20),
            "who comes second waits behind"
        );
        assert_eq!(
            events.take_events(98, 100.0, second),
            Duration::ZERO,
            "a hundred in a second"
        );
        assert_eq!(
            events.take_events(500, 100.0, 100 * second),
            Duration::ZERO,
            "five seconds' worth"
        );
        assert_eq!(
            events.take_events(1, 100.0, 100 * second),
            Duration::from_millis(10),
            "and no more"
        );
    }

    #[test]
    fn whoever_posts_is_stopped_when_it_is_too_far_ahead() {
        let (semaphore, stop) = (Semaphore::new(2), StopFlag::default());
        assert_eq!(semaphore.post(1, true, &stop), WaitOutcome::Got);
        assert_eq!(semaphore.post(1, true, &stop), WaitOutcome::Got);
        assert_eq!(
            semaphore.post(7, false, &stop),
            WaitOutcome::Got,
            "without blocking, as many as it likes"
        );
        assert_eq!(
            semaphore.block(9, &stop),
            WaitOutcome::Got,
            "makes room for nine and takes nine"
        );
        assert_eq!(semaphore.post(9, true, &stop), WaitOutcome::Got);
        stop.set();
        assert_eq!(semaphore.post(1, true, &stop), WaitOutcome::Stopped);
        assert_eq!(semaphore.block(10, &stop), WaitOutcome::Stopped);
    }

    #[test]
    fn the_end_wakes_whoever_waits() {
        let (semaphore, gate, stop) = (Semaphore::new(0), Gate::default(), StopFlag::default());
        std::thread::scope(|scope| {
            let waiting = [
                std::thread::Builder::new()
                    .spawn_scoped(scope, || semaphore.block(1, &stop))
                    .unwrap(),
                std::thread::Builder::new()
                    .spawn_scoped(scope, || gate.wait_for_opening(&stop))
                    .unwrap(),
            ];
            stop.set();
            semaphore.wake_all();
            gate.open();
            for waited in waiting {
                // A late thread found it open or the end set: either is no waiting.
                assert_ne!(waited.join().unwrap(), WaitOutcome::TimedOut);
            }
        });
    }
}
