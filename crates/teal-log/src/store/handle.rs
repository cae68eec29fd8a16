//! The store: one log on one disk, and what is known of it in memory.
//!
//! # Guarantees
//! 1. *Durability*: what happened before [`Store::commit`] was called is found again once it has
//!    returned `Ok`.
//! 2. *Prefix*: after a crash the state is the one after some prefix of the committed batches.
//! 3. *Stability*: what one recovery dropped, no later recovery brings back.
//! 4. *Honesty*: a durable record that cannot be read makes opening fail; damaged content is an
//!    error, never data.
//! 5. *Silence*: without changes there is no I/O, and opening writes nothing.
//!
//! # Locks, in the order in which they may be taken
//! 1. The committer's, of [`CommitLog`].
//! 2. The gate of the open batch.
//! 3. (A client's lock for moves of directories.)
//! 4. Those of [`ObjectStore`](crate::object::objects::ObjectStore), in its order.

use crate::commit::log::{CommitLog, StoreSettings};
use crate::counters::Counts;
use crate::error::StoreError;
use crate::format::superblock::Superblock;
use crate::object::objects::ObjectStore;
use crate::recovery::open::{OpenOptions, Recovery};
use crate::recovery::refusal::StoreOpenError;
use std::sync::Arc;
use std::time::Duration;
use teal_env::{Clock, Disk};
use teal_types::ObjectNo;

/// An open log store. All methods may be called from any thread.
pub struct Store {
    pub(crate) log: CommitLog,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("label", &self.superblock().label)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the store on `disk`, recovering what a crash left.
    ///
    /// # Errors
    /// [`OpenError`]; nothing has been written.
    pub fn open(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        options: OpenOptions,
    ) -> Result<(Arc<Self>, Recovery), StoreOpenError> {
        let (log, recovery) = CommitLog::open(disk, clock, options)?;
        Ok((Arc::new(Self { log }), recovery))
    }

    /// The objects below the log.
    pub(crate) fn objects(&self) -> &ObjectStore {
        &self.log.objects
    }

    /// The identity and geometry of this store.
    pub fn superblock(&self) -> &Superblock {
        &self.objects().sb
    }

    /// The settings in force.
    pub fn settings(&self) -> StoreSettings {
        self.log.settings()
    }

    /// Changes the settings from now on.
    pub fn set_settings(&self, settings: StoreSettings) {
        self.log.set_settings(settings);
    }

    /// Returns what the store has done since it was opened.
    pub fn counter_values(&self) -> Counts {
        self.objects().reader.counters.get()
    }

    /// The disk it lies on.
    pub fn disk(&self) -> &dyn Disk {
        self.objects().reader.disk()
    }

    /// Returns whether a failure has ended all writing.
    pub fn is_poisoned(&self) -> bool {
        self.log.durability.is_poisoned()
    }

    /// Returns whether it was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.log.durability.is_read_only()
    }

    /// Has `wake` called whenever the open batch gets its first change, from then on
    /// [`tick`](Self::tick) has something to say again. It is called under the locks of that
    /// operation and must not come back to the store. Only the first call counts.
    pub fn when_changed(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.objects().open.when_first_changed(wake);
    }

    /// Returns whether anything is not durable yet.
    pub fn is_dirty(&self) -> bool {
        self.log.is_dirty()
    }

    /// Forgets everything that could be read again (for tests and memory pressure).
    pub fn drop_caches(&self) {
        self.objects().drop_caches();
    }

    /// Objects without a name that wait to be given back.
    ///
    /// # Errors
    /// [`StoreError`] when the set cannot be read.
    pub fn orphans(&self) -> Result<Vec<ObjectNo>, StoreError> {
        self.objects().orphan_numbers()
    }

    /// Makes everything that happened before durable: one write and one barrier, shared by all
    /// callers that ask at the same time.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the disk fails; from then on [`StoreError::Poisoned`] until the
    /// store is opened again.
    pub fn commit(&self) -> Result<(), StoreError> {
        self.log.commit()
    }

    /// Commits and makes a checkpoint, if anything has changed since the last one.
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub fn checkpoint(&self) -> Result<(), StoreError> {
        self.log.checkpoint()
    }

    /// Commits, checkpoints, and writes the record that tells a clean end from a torn tail. Changes
    /// are refused from then on.
    ///
    /// # Errors
    /// As [`Store::commit`]. A store that wrote nothing writes nothing now.
    pub fn close(&self) -> Result<(), StoreError> {
        self.log.close()
    }

    /// Does what is due at this moment: commits by interval, checkpoints by interval and by bytes.
    /// Returns how long nothing will be due; `None`: until [something changes](Self::when_changed).
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub fn tick(&self) -> Result<Option<Duration>, StoreError> {
        self.log.tick()
    }
}
