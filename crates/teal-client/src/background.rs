//! What nobody waits for: commits and checkpoints that are due, cleaning, giving back large orphans.
//!
//! # Guarantees
//! 1. One thread for this (and one for those who wait for durability); it sleeps until something is due or the [`Bell`] rings.
//! 2. Idle means no I/O and no wake-up: when nothing is due, the first change of the next batch rings. See `pace` for when cleaning ends.

use crate::Client;
use crate::pace::{Look, Pace, Rounds};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use teal_log::StoreError;

/// A checkpoint comes when this many bytes of changed pages are held in memory.
const UNFOLDED_MAX: u64 = 32 << 20;
/// The thread looks at what is due so often while a batch grows to its usual size.
const LOOKS: u64 = 4;

#[derive(Debug, Default)]
struct Rung {
    rung: bool,
    stop: bool,
}

/// Wakes the background thread.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    state: Mutex<Rung>,
    changed: Condvar,
    /// Bytes written since the thread last looked.
    written: AtomicU64,
}

impl Bell {
    /// Something is due now.
    pub(crate) fn ring(&self) {
        self.state.lock().rung = true;
        self.changed.notify_one();
    }

    fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_one();
    }

    /// Sleeps until the bell rings or the time is over, if there is one; `false` when it is time to stop.
    fn wait(&self, at_most: Option<Duration>) -> bool {
        let mut state = self.state.lock();
        if !state.rung && !state.stop {
            match at_most {
                Some(time) => drop(self.changed.wait_for(&mut state, time)),
                None => self.changed.wait(&mut state),
            }
        }
        state.rung = false;
        !state.stop
    }
}

/// The thread, and what it must remember.
#[derive(Debug, Default)]
pub(crate) struct Background {
    threads: Vec<JoinHandle<()>>,
    rounds: Rounds,
    /// Bytes written by others, and when the last of them were.
    written: u64,
    since: Duration,
}

impl Client {
    /// Starts the background threads, once. Objects that a crash left without names are given back first.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn start(self: &Arc<Self>) -> std::io::Result<()> {
        let mut background = self.background.lock();
        if !background.threads.is_empty() || self.store.is_read_only() {
            return Ok(());
        }
        if let Err(e) = self.exhume() {
            log::error!("objects left without names cannot be listed: {e}");
        }
        let bell = Arc::clone(&self.bell);
        self.store.when_changed(move || bell.ring());
        let (client, bell) = (Arc::downgrade(self), Arc::clone(&self.bell));
        let thread = std::thread::Builder::new()
            .name("teal-commit".into())
            .spawn(move || run(&client, &bell))?;
        background.threads.push(thread);
        background.threads.push(self.start_syncing()?);
        // Not waited for in the end: they may be waiting for the server, and a store that is closed takes nothing from them.
        self.start_upstream()?;
        Ok(())
    }

    /// Whether there are background threads.
    pub(crate) fn runs(&self) -> bool {
        !self.background.lock().threads.is_empty()
    }

    /// Does what is due now, in one bounded piece each, and says how long nothing will be; `None`: until something changes.
    pub fn step(&self) -> Option<Duration> {
        match self.try_step() {
            Ok(wait) => wait,
            Err(StoreError::Poisoned | StoreError::ReadOnly) => None,
            Err(e) => {
                log::error!("in the background: {e}");
                Some(self.store.settings().commit_interval)
            }
        }
    }

    fn try_step(&self) -> Result<Option<Duration>, StoreError> {
        let look = self.look();
        self.bury_next();
        let mut wait = self.store.tick()?;
        if self.store.unfolded_bytes() > UNFOLDED_MAX {
            self.store.checkpoint()?;
        }
        let rounds = self.background.lock().rounds;
        let mut cleaned = false;
        match rounds.pace(&look) {
            Pace::Clean {
                segments,
                fullest_percent,
            } => {
                self.store.clean(segments, fullest_percent)?;
                self.background.lock().rounds = Rounds::after(&look, &self.look());
                cleaned = true;
            }
            Pace::Later(time) => wait = Some(wait.map_or(time, |due| due.min(time))),
            Pace::Rest => {}
        }
        Ok(if self.has_doomed() || cleaned {
            Some(Duration::ZERO)
        } else {
            wait
        })
    }

    fn look(&self) -> Look {
        let now = self.clock.monotonic();
        let more = self.bell.written.swap(0, Ordering::Relaxed);
        let mut background = self.background.lock();
        background.written += more;
        if more > 0 || self.store.is_dirty() {
            background.since = now;
        }
        let (written, quiet) = (background.written, now.saturating_sub(background.since));
        drop(background);
        Look {
            space: self.store.space(),
            counts: self.store.counts(),
            written,
            quiet,
            percent: self.store.settings().clean_below_percent,
            powered: self.options.powered,
        }
    }

    /// Notes that a batch has grown; now and then the thread looks whether it is large, or room short.
    pub(crate) fn wrote(&self, bytes: u64) {
        let before = self.bell.written.fetch_add(bytes, Ordering::Relaxed);
        let limit = self.store.settings().batch_bytes / LOOKS;
        if before < limit && before + bytes >= limit {
            self.bell.ring();
        }
    }

    /// Looks again at what is due, after the settings of the store were changed.
    pub fn settings_changed(&self) {
        self.bell.ring();
    }

    pub(crate) fn stop_background(&self) {
        self.bell.stop();
        self.syncs.stop();
        self.replica.iter().for_each(|replica| replica.stop());
        let threads = std::mem::take(&mut self.background.lock().threads);
        for thread in threads {
            if thread.join().is_err() {
                log::error!("a background thread panicked");
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.bell.stop();
        self.syncs.stop();
        self.replica.iter().for_each(|replica| replica.stop());
    }
}

fn run(client: &Weak<Client>, bell: &Bell) {
    let mut wait = Some(Duration::ZERO);
    while bell.wait(wait) {
        let Some(client) = client.upgrade() else {
            return;
        };
        wait = client.step();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_rung_before_the_wait_is_heard() {
        let bell = Bell::default();
        bell.ring();
        assert!(bell.wait(None));
        bell.stop();
        assert!(!bell.wait(None));
    }
}
