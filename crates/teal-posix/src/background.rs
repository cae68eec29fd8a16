//! What nobody waits for: commits and checkpoints that are due, cleaning, giving back large
//! orphans.
//!
//! # Guarantees
//! 1. One thread for this (and one for those who wait for durability); it sleeps until something is
//!    due or the [`CommitSignal`](teal_volume::CommitSignal) is raised.
//! 2. Idle means no I/O and no wake-up: when nothing is due, the first change of the next batch
//!    rings. See `pace` for when cleaning ends.

use crate::FileSystem;
use crate::cleaning_pace::{CleaningDecision, CleaningInputs, RoundHistory};
use std::sync::{Arc, Weak};
use std::time::Duration;
use teal_log::StoreError;
use teal_volume::Volume;

/// A checkpoint comes when this many bytes of changed pages are held in memory.
const UNFOLDED_MAX: u64 = 32 << 20;

impl FileSystem {
    /// Starts the background threads, once. Objects that a crash left without names are given back
    /// first.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn start(self: &Arc<Self>) -> std::io::Result<()> {
        let mut background = self.background.lock();
        if !background.threads.is_empty() || self.store().is_read_only() {
            return Ok(());
        }
        if let Err(e) = self.volume.queue_left_orphans() {
            log::error!("objects left without names cannot be listed: {e}");
        }
        let volume = Arc::downgrade(&self.volume);
        self.store().when_changed(move || {
            if let Some(volume) = volume.upgrade() {
                volume.commit_signal().raise();
            }
        });
        let (file_system, volume) = (Arc::downgrade(self), Arc::clone(&self.volume));
        let thread = std::thread::Builder::new()
            .name("teal-commit".into())
            .spawn(move || run(&file_system, &volume))?;
        background.threads.push(thread);
        background.threads.push(self.start_syncing()?);
        // Not waited for in the end: they may be waiting for the server, and a store that is closed
        // takes nothing from them.
        if let Some(replica) = &self.replica {
            replica.start()?;
        }
        Ok(())
    }

    /// Does what is due now, in one bounded piece each, and says how long nothing will be; `None`:
    /// until something changes.
    pub fn step(&self) -> Option<Duration> {
        match self.try_step() {
            Ok(wait) => wait,
            Err(StoreError::Poisoned | StoreError::ReadOnly) => None,
            Err(e) => {
                log::error!("in the background: {e}");
                Some(self.store().settings().commit_interval)
            }
        }
    }

    fn try_step(&self) -> Result<Option<Duration>, StoreError> {
        let look = self.cleaning_inputs();
        self.volume.reclaim_next(&*self.changes);
        let mut wait = self.store().tick()?;
        if self.store().unfolded_bytes() > UNFOLDED_MAX {
            self.store().checkpoint()?;
        }
        let rounds = self.background.lock().rounds;
        let mut cleaned = false;
        match rounds.decide(&look) {
            CleaningDecision::Clean {
                segments,
                fullest_percent,
            } => {
                self.store().clean(segments, fullest_percent)?;
                self.background.lock().rounds =
                    RoundHistory::after_round(&look, &self.cleaning_inputs());
                cleaned = true;
            }
            CleaningDecision::Later(time) => wait = Some(wait.map_or(time, |due| due.min(time))),
            CleaningDecision::Rest => {}
        }
        Ok(if self.volume.has_waiting_orphans() || cleaned {
            Some(Duration::ZERO)
        } else {
            wait
        })
    }

    fn cleaning_inputs(&self) -> CleaningInputs {
        let now = self.volume.monotonic();
        let more = self.volume.commit_signal().take_written();
        let mut background = self.background.lock();
        background.written += more;
        if more > 0 || self.store().is_dirty() {
            background.since = now;
        }
        let (written, quiet) = (background.written, now.saturating_sub(background.since));
        drop(background);
        CleaningInputs {
            space: self.store().space(),
            counts: self.store().counter_values(),
            written,
            quiet,
            percent: self.store().settings().clean_below_percent,
            powered: self.options.powered,
        }
    }

    /// Counts bytes that were written into the open batch, so that the thread sees when it is
    /// large, or room short.
    pub(crate) fn count_written(&self, bytes: u64) {
        let batch_bytes = self.store().settings().batch_bytes;
        self.volume
            .commit_signal()
            .count_written(bytes, batch_bytes);
    }

    /// Looks again at what is due, after the settings of the store were changed.
    pub fn settings_changed(&self) {
        self.volume.commit_signal().raise();
    }

    pub(crate) fn stop_background(&self) {
        self.volume.commit_signal().stop();
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

impl Drop for FileSystem {
    fn drop(&mut self) {
        self.volume.commit_signal().stop();
        self.syncs.stop();
        self.replica.iter().for_each(|replica| replica.stop());
    }
}

fn run(file_system: &Weak<FileSystem>, volume: &Volume) {
    let mut wait = Some(Duration::ZERO);
    while volume.commit_signal().wait(wait) {
        let Some(file_system) = file_system.upgrade() else {
            return;
        };
        wait = file_system.step();
    }
}
