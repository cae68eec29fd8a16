//! The log of batches behind the objects: the one committer, how far the log is durable, and the
//! settings.
//!
//! # Locks
//! | lock | guards | under it |
//! |---|---|---|
//! | `committer` | the chain: one committer at a time. Taken before the gate of the open batch and all locks of objects | sealing, writing and syncing: the point of it |
//! | `usage` | the tree of the usage table, beside the segment table | reads of its pages |
//! | `settings` | the settings in force | nothing |

use crate::commit::committer::Committer;
use crate::commit::durability::Durability;
use crate::format::superblock::UNWRITTEN_EXTENTS;
use crate::object::objects::ObjectStore;
use crate::tree::Tree;
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Settings that may be changed while a store is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreSettings {
    /// A batch is committed at the latest this long after its first operation.
    pub commit_interval: Duration,
    /// A batch is written when it holds this much. It is durable with the next commit, after the
    /// interval at the latest.
    pub batch_bytes: u64,
    /// A checkpoint follows at the latest this long after the first commit behind the last one.
    pub checkpoint_interval: Duration,
    /// A checkpoint follows when the log has grown by this much: bounds recovery.
    pub checkpoint_bytes: u64,
    /// Objects kept in memory that could be read again.
    pub cached_objects: usize,
    /// An idle store is cleaned ahead until this share of all segments is free, in percent.
    pub clean_below_percent: u32,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            commit_interval: Duration::from_secs(5),
            batch_bytes: 8 << 20,
            checkpoint_interval: Duration::from_secs(30),
            checkpoint_bytes: 64 << 20,
            cached_objects: 16384,
            clean_below_percent: 10,
        }
    }
}

/// See the module.
pub(crate) struct CommitLog {
    pub(crate) objects: ObjectStore,
    pub(crate) durability: Durability,
    pub(crate) usage: Mutex<Tree>,
    committer: Mutex<Committer>,
    settings: RwLock<StoreSettings>,
    /// The superblocks say that files may have unwritten extents.
    pub(super) permits_unwritten: AtomicBool,
}

impl CommitLog {
    /// Puts a log together; `usage` is the tree from which the segment table of `objects` was read.
    pub(crate) fn new(
        objects: ObjectStore,
        usage: Tree,
        committer: Committer,
        durability: Durability,
        settings: StoreSettings,
    ) -> Self {
        let permits = objects.sb.incompatible & UNWRITTEN_EXTENTS != 0;
        Self {
            permits_unwritten: AtomicBool::new(permits),
            objects,
            durability,
            usage: Mutex::new(usage),
            committer: Mutex::new(committer),
            settings: RwLock::new(settings),
        }
    }

    /// Waits to be the one committer.
    pub(crate) fn committer(&self) -> MutexGuard<'_, Committer> {
        self.committer.lock()
    }

    pub(crate) fn settings(&self) -> StoreSettings {
        *self.settings.read()
    }

    pub(crate) fn set_settings(&self, settings: StoreSettings) {
        *self.settings.write() = settings;
    }

    /// Returns whether anything is not durable yet.
    pub(crate) fn is_dirty(&self) -> bool {
        self.durability.is_behind() || self.objects.has_changes()
    }
}
