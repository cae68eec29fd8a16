//! The state that the threads of a replica share: changes to be sent, the reach of the server, the
//! stop signal.
//!
//! # Guarantees
//! 1. *No change is missed*: the conditions that a waiting thread looks at change under the lock,
//!    and the threads are woken after that.
//! 2. *The oldest change counts*: a flush is due by the time of the first change that no flush has
//!    taken along.
//!
//! # Locks
//! The lock of the state is a leaf.

use super::reach::{Attempt, Reach, ServerReach};
use parking_lot::{Condvar, Mutex};
use std::time::Duration;
use teal_device::UpstreamError;
use teal_volume::FsError;

/// Changes that were not sent yet, and the outcome of the last attempt.
#[derive(Debug, Default)]
struct Sending {
    /// Monotonic time of the first change that no flush has taken along.
    dirty_since: Option<Duration>,
    /// A batch has gone before large content, which is in the next one.
    is_large_next: bool,
    /// Another client of the volume is connected: what changes goes sooner.
    is_live: bool,
    /// Why the server does not take what it is sent, though it answers.
    refusal: Option<String>,
    /// Monotonic time at which the last flush ended well.
    last_flush: Option<Duration>,
}

/// Tells the threads of a replica whether they go on.
#[derive(Debug, Default, PartialEq, Eq)]
enum RunPhase {
    #[default]
    Running,
    Stopping,
}

/// Tells the thread that asks for news when to ask next.
#[derive(Debug, Default, PartialEq, Eq)]
enum ProbeTime {
    /// When its pause is over.
    #[default]
    AfterPause,
    /// At once: another thread needs the server.
    Now,
}

/// Tells whether another store gives out the numbers of this store's life.
#[derive(Debug, Default, PartialEq, Eq)]
enum LifeOwner {
    #[default]
    ThisStore,
    /// A copy of this store has made objects with numbers that are this one's to give: it needs
    /// another life, whatever the server knows.
    CopyToo,
}

#[derive(Debug, Default)]
struct State {
    sending: Sending,
    reach: ServerReach,
    phase: RunPhase,
    probe: ProbeTime,
    life: LifeOwner,
    /// Objects may need a second look.
    needs_look: bool,
}

impl State {
    /// Returns whether the thread that asks for news may go on with its pause.
    fn may_pause(&mut self) -> bool {
        self.phase == RunPhase::Running && self.probe == ProbeTime::AfterPause
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct SharedState {
    state: Mutex<State>,
    changed: Condvar,
}

impl SharedState {
    /// Returns the state of a replica that has just been opened. What an earlier life could not
    /// place is noted with the objects, so they need a look.
    pub(crate) fn new() -> Self {
        let state = State {
            needs_look: true,
            ..State::default()
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }
}

/// Changes that wait for a flush.
impl SharedState {
    /// Notes that something is dirty since `now`.
    pub(crate) fn becomes_dirty(&self, now: Duration) {
        let mut state = self.state.lock();
        if state.sending.dirty_since.is_none() {
            state.sending.dirty_since = Some(now);
            self.changed.notify_all();
        }
    }

    /// Notes that a cut has taken along what is dirty, or a part of it: the rest goes at once.
    pub(crate) fn cut_taken(&self, is_partial: bool, now: Duration) {
        let mut state = self.state.lock();
        let since = state.sending.dirty_since.unwrap_or(now);
        state.sending.dirty_since = is_partial.then_some(since);
    }

    /// Returns the time of the first change that no flush has taken along, and whether another
    /// client of the volume is connected.
    pub(crate) fn dirty_since(&self) -> (Option<Duration>, bool) {
        let state = self.state.lock();
        (state.sending.dirty_since, state.sending.is_live)
    }

    /// Decides whether large content waits for the batch after this one: it does so every second
    /// time, and never if all goes in one batch.
    pub(crate) fn is_large_put_off(&self, is_divided: bool) -> bool {
        let sending = &mut self.state.lock().sending;
        sending.is_large_next = is_divided && !sending.is_large_next;
        sending.is_large_next
    }

    /// Notes whether another client of the volume is connected.
    pub(crate) fn set_live(&self, is_live: bool) {
        self.state.lock().sending.is_live = is_live;
    }

    /// Returns whether another client of the volume is connected.
    pub(crate) fn is_live(&self) -> bool {
        self.state.lock().sending.is_live
    }

    /// Notes why the server does not take what it is sent. Returns whether that is new.
    pub(crate) fn set_refusal(&self, refusal: Option<&String>) -> bool {
        let sending = &mut self.state.lock().sending;
        let is_new = sending.refusal.as_ref() != refusal;
        if is_new {
            sending.refusal = refusal.cloned();
        }
        is_new
    }

    /// Returns why the server does not take what it is sent.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.state.lock().sending.refusal.clone()
    }

    /// Notes that a flush has ended well, and wakes the writers that wait for room in the queue.
    pub(crate) fn flush_ended(&self, now: Duration) {
        self.state.lock().sending.last_flush = Some(now);
        self.changed.notify_all();
    }

    /// Returns the monotonic time at which the last flush ended well.
    pub(crate) fn last_flush(&self) -> Option<Duration> {
        self.state.lock().sending.last_flush
    }
}

/// The server.
impl SharedState {
    /// Returns how the last request to the server ended.
    pub(crate) fn reach(&self) -> Reach {
        self.state.lock().reach.last().clone()
    }

    /// Returns whether the server can be asked, as far as is known.
    pub(crate) fn is_up(&self) -> bool {
        self.state.lock().reach.is_up()
    }

    /// Returns whether the server has said welcome and nothing has happened since.
    pub(crate) fn is_connected(&self) -> bool {
        self.state.lock().reach.is_connected()
    }

    /// Returns whether the server has said welcome and can be asked.
    pub(crate) fn is_there(&self) -> bool {
        let state = self.state.lock();
        state.reach.is_connected() && state.reach.is_up()
    }

    /// Notes that the server has said welcome, and has been told what it asked for.
    pub(crate) fn set_connected(&self) {
        self.state.lock().reach.set_connected();
    }

    /// Notes that the server must be greeted again.
    pub(crate) fn set_disconnected(&self) {
        self.state.lock().reach.set_disconnected();
    }

    /// Notes that the server does not take this client any more.
    pub(crate) fn deny(&self, why: &str) {
        self.state.lock().reach.deny(why.to_owned());
    }

    /// Notes how a request ended that took so long.
    pub(crate) fn record<T>(
        &self,
        answer: &Result<T, UpstreamError>,
        now: Duration,
        took: Duration,
    ) {
        self.state.lock().reach.record(answer, now, took);
    }

    /// Decides whether a thread that needs the server may ask it now; if not, why. Has the thread
    /// that asks for news try in its place where that is due.
    pub(crate) fn try_reach(&self, now: Duration) -> Result<(), FsError> {
        let mut state = self.state.lock();
        match state.reach.attempt(now) {
            Attempt::Ask => Ok(()),
            Attempt::GiveUp(why) => Err(match state.reach.last() {
                Reach::Denied { .. } => FsError::Denied(why),
                Reach::Up | Reach::Down { .. } => FsError::Unreachable(why),
            }),
            Attempt::LeaveToPuller(why) => {
                state.probe = ProbeTime::Now;
                self.changed.notify_all();
                Err(FsError::Unreachable(why))
            }
        }
    }
}

/// Another life, and another look.
impl SharedState {
    /// Notes that a copy of this store has gone on: it must be greeted again, for another life.
    pub(crate) fn copy_found(&self) {
        let mut state = self.state.lock();
        state.life = LifeOwner::CopyToo;
        state.reach.set_disconnected();
    }

    /// Returns whether this store needs another life because a copy of it has gone on.
    pub(crate) fn is_copied(&self) -> bool {
        self.state.lock().life == LifeOwner::CopyToo
    }

    /// Notes that this store has another life.
    pub(crate) fn new_life_begun(&self) {
        self.state.lock().life = LifeOwner::ThisStore;
    }

    /// Notes that objects may need a second look.
    pub(crate) fn set_needs_look(&self) {
        self.state.lock().needs_look = true;
    }

    /// Returns whether objects may need a second look, and takes that note away.
    pub(crate) fn take_needs_look(&self) -> bool {
        std::mem::take(&mut self.state.lock().needs_look)
    }
}

/// Waiting.
impl SharedState {
    /// Wakes every thread that waits, after a change outside of the state. The lock is taken so
    /// that no thread is between its look and its wait.
    pub(crate) fn wake(&self) {
        let state = self.state.lock();
        self.changed.notify_all();
        drop(state);
    }

    /// Waits for a change, at most so long; `false` when it is time to stop.
    pub(crate) fn wait(&self, at_most: Option<Duration>) -> bool {
        let mut state = self.state.lock();
        if state.phase == RunPhase::Running {
            match at_most {
                Some(time) => drop(self.changed.wait_for(&mut state, time)),
                None => self.changed.wait(&mut state),
            }
        }
        state.phase == RunPhase::Running
    }

    /// Waits so long for the other threads to send something; `false`, at once, when the server
    /// cannot be asked or it is time to stop.
    pub(crate) fn wait_for_flush(&self, at_most: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.reach.is_up() || state.phase == RunPhase::Stopping {
            return false;
        }
        self.changed.notify_all();
        self.changed.wait_for(&mut state, at_most);
        true
    }

    /// Notes that this thread asks the server for news from now on.
    pub(crate) fn begin_pulling(&self) {
        self.state.lock().reach.set_has_puller();
    }

    /// Sleeps so long, whatever changes, unless a thread needs the server; `false` when it is time
    /// to stop.
    pub(crate) fn pause(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        self.changed
            .wait_while_for(&mut state, State::may_pause, time);
        state.probe = ProbeTime::AfterPause;
        state.phase == RunPhase::Running
    }

    /// Has the threads end.
    pub(crate) fn stop(&self) {
        self.state.lock().phase = RunPhase::Stopping;
        self.changed.notify_all();
    }

    /// Returns whether the threads are to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.state.lock().phase == RunPhase::Stopping
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn at(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn the_oldest_change_counts_until_a_cut_has_taken_all() {
        let state = SharedState::new();
        state.becomes_dirty(at(3));
        state.becomes_dirty(at(5));
        assert_eq!(state.dirty_since().0, Some(at(3)));
        state.cut_taken(true, at(7));
        assert_eq!(state.dirty_since().0, Some(at(3)), "the rest goes at once");
        state.cut_taken(false, at(8));
        assert_eq!(state.dirty_since().0, None);
        state.cut_taken(true, at(9));
        assert_eq!(state.dirty_since().0, Some(at(9)));
    }

    #[test]
    fn large_content_waits_every_second_time() {
        let state = SharedState::new();
        let divided = [true, true, true, false, true];
        let put_off = divided.map(|is_divided| state.is_large_put_off(is_divided));
        assert_eq!(put_off, [true, false, true, false, true]);
    }

    #[test]
    fn a_refusal_is_new_once() {
        let state = SharedState::new();
        let full = "the server is full".to_owned();
        assert!(state.set_refusal(Some(&full)));
        assert!(!state.set_refusal(Some(&full)));
        assert_eq!(state.refusal(), Some(full));
        assert!(state.set_refusal(None));
    }

    #[test]
    fn a_store_that_was_copied_is_greeted_again_for_another_life() {
        let state = SharedState::new();
        state.set_connected();
        assert!(state.is_there());
        state.copy_found();
        assert!(state.is_copied() && !state.is_connected());
        state.new_life_begun();
        assert!(!state.is_copied());
    }

    #[test]
    fn a_second_look_is_due_once_it_was_asked_for_and_after_opening() {
        let state = SharedState::new();
        assert!(
            state.take_needs_look(),
            "an earlier life may have left some"
        );
        assert!(!state.take_needs_look());
        state.set_needs_look();
        assert!(state.take_needs_look());
    }

    #[test]
    fn a_thread_that_needs_a_slow_server_wakes_the_one_that_asks_for_news() {
        let state = Arc::new(SharedState::new());
        state.begin_pulling();
        let away: Result<(), _> = Err(UpstreamError::Unreachable("no route".into()));
        state.record(&away, at(10), at(5));
        let pulls = {
            let state = Arc::clone(&state);
            std::thread::Builder::new()
                .spawn(move || state.pause(at(3600)))
                .unwrap()
        };
        assert!(state.try_reach(at(20)).is_err());
        assert!(pulls.join().unwrap(), "it goes on, long before its time");
        assert!(!state.wait_for_flush(at(3600)), "nothing will be sent");
    }

    #[test]
    fn whoever_waits_ends_when_the_threads_are_stopped() {
        let state = Arc::new(SharedState::new());
        let waits = {
            let state = Arc::clone(&state);
            std::thread::Builder::new()
                .spawn(move || state.wait(None))
                .unwrap()
        };
        state.stop();
        assert!(!waits.join().unwrap());
        assert!(state.is_stopping() && !state.wait(None) && !state.pause(at(3600)));
    }
}
