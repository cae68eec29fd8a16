//! What threads wait for: the start, the end, time, semaphores, events.
//!
//! # Guarantees
//! 1. Whoever waits is woken when the run ends; nobody waits longer than that.
//! 2. No lock here is held while anything else is done.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A semaphore's patience, as Filebench's.
pub(super) const PATIENCE: Duration = Duration::from_secs(600);
/// The event source keeps so many seconds' events that nobody took.
const BACKLOG_SECONDS: f64 = 5.0;

/// The end of a run. Its flag is what every thread looks at between two operations.
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
        // Woken for nothing, it would only be early: whoever sleeps looks at its clock again.
        let _ = self.changed.wait_for(&mut held, until);
    }
}

/// What became of waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitOutcome {
    /// For what was wanted.
    Got,
    /// For the end.
    Stopped,
    /// Too long.
    TimedOut,
}

/// Tokens, and room for those who make them: one instance of a `semblock`.
#[derive(Debug)]
pub(super) struct Semaphore {
    /// Nothing is done under it.
    state: Mutex<SemaphoreState>,
    given: Condvar,
    made_room: Condvar,
}

#[derive(Debug)]
struct SemaphoreState {
    tokens: u64,
    /// How far ahead who posts may still go.
    room: u64,
    /// What the one thread that takes waits for: it is not woken for less.
    wanted: Option<u64>,
    /// Who waits for room.
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

    /// `semblock`: makes room, then takes tokens.
    pub(super) fn block(&self, value: u64, stop: &StopFlag) -> WaitOutcome {
        let mut held = self.state.lock();
        held.room += value;
        if held.posting > 0 {
            self.made_room.notify_all();
        }
        while held.tokens < value {
            if stop.is_set() {
                return WaitOutcome::Stopped;
            }
            held.wanted = Some(value);
            if self.given.wait_for(&mut held, PATIENCE).timed_out() && held.tokens < value {
                return WaitOutcome::TimedOut;
            }
        }
        held.wanted = None;
        held.tokens -= value;
        WaitOutcome::Got
    }

    /// `sempost`: takes room if it must, then gives tokens.
    pub(super) fn post(&self, value: u64, blocking: bool, stop: &StopFlag) -> WaitOutcome {
        let mut held = self.state.lock();
        while blocking && held.room < value {
            if stop.is_set() {
                return WaitOutcome::Stopped;
            }
            held.posting += 1;
            let late = self.made_room.wait_for(&mut held, PATIENCE).timed_out();
            held.posting -= 1;
            if late && held.room < value {
                return WaitOutcome::TimedOut;
            }
        }
        if blocking {
            held.room -= value;
        }
        held.tokens += value;
        if held.wanted.is_some_and(|wanted| held.tokens >= wanted) {
            self.given.notify_all();
        }
        WaitOutcome::Got
    }

    /// After the end was set.
    pub(super) fn wake_all(&self) {
        let _held = self.state.lock();
        self.given.notify_all();
        self.made_room.notify_all();
    }
}

/// What a `block` waits for: one instance of it.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// How often it was opened.
    opened: Mutex<u64>,
    changed: Condvar,
}

impl Gate {
    /// Waits for the next time it opens.
    pub(super) fn wait_for_opening(&self, stop: &StopFlag) -> WaitOutcome {
        let mut opened = self.opened.lock();
        let before = *opened;
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

/// The event source: one for the run.
#[derive(Debug)]
pub(super) struct EventSource {
    /// When it was looked at, in nanoseconds, and the events then; below 0 are those that have been
    /// promised.
    state: Mutex<(u64, f64)>,
}

impl EventSource {
    pub(super) fn new(now: u64) -> Self {
        Self {
            state: Mutex::new((now, 0.0)),
        }
    }

    /// The source begins now.
    pub(super) fn restart(&self, now: u64) {
        *self.state.lock() = (now, 0.0);
    }

    /// Takes `n` events and says how long to wait until they have happened. Who comes first is
    /// served first.
    pub(super) fn take_events(&self, n: u64, rate: f64, now: u64) -> Duration {
        let mut held = self.state.lock();
        let (then, events) = *held;
        let came = now.saturating_sub(then) as f64 / 1e9 * rate;
        let left = (events + came).min(rate * BACKLOG_SECONDS) - n as f64;
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
                // Who came late found it open or the end set: either is no waiting.
                assert_ne!(waited.join().unwrap(), WaitOutcome::TimedOut);
            }
        });
    }
}
