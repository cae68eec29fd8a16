//! What the volume can say of itself without asking any disk; making everything durable; the end.

use crate::FileSystem;
use std::sync::Arc;
use teal_log::{Counts, SpaceStatus, StoreSettings};
use teal_types::{BLOCK, NAME_MAX};
use teal_volume::FsError;

/// What `statfs` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceStatistics {
    /// Bytes in a block, the unit of the next three fields.
    pub block_size: u32,
    /// Blocks that files can take together.
    pub blocks: u64,
    /// Blocks that hold nothing.
    pub free: u64,
    /// Blocks that can still be written: the disk under the store may have room for fewer than are
    /// free.
    pub available: u64,
    /// Objects that could be there.
    pub files: u64,
    /// Objects that could still be made.
    pub files_free: u64,
    /// Longest name.
    pub name_max: u32,
}

/// How a volume is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeStatus {
    /// What the owner calls it.
    pub label: String,
    /// Identifies the store.
    pub uuid: [u8; 16],
    /// The volume it holds.
    pub volume: u32,
    /// How full it is.
    pub space: SpaceStatus,
    /// What the store has done since it was opened.
    pub counts: Counts,
    /// Whether anything waits to be committed.
    pub dirty: bool,
    /// Objects without a name that wait to be given back.
    pub orphans: u64,
    /// Objects the kernel refers to.
    pub held: u64,
    /// Whether a failure has ended all writing.
    pub poisoned: bool,
    /// Whether it was opened for reading only.
    pub read_only: bool,
    /// The settings in force.
    pub settings: StoreSettings,
}

/// What was still referred to when a file system ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RemainingReferences {
    /// Objects.
    pub held: u64,
    /// Among them those without a name, which the next mount gives back.
    pub orphans: u64,
}

impl FileSystem {
    /// Returns what `statfs` shows. There is no limit on objects but space: one takes a sector at
    /// least.
    pub fn statfs(&self) -> SpaceStatistics {
        let space = self.store().space();
        let files_free = space.free / teal_types::SECTOR;
        SpaceStatistics {
            block_size: BLOCK as u32,
            blocks: space.total / BLOCK,
            free: space.free_of_capacity / BLOCK,
            available: space.free / BLOCK,
            files: space.objects + files_free,
            files_free,
            name_max: NAME_MAX as u32,
        }
    }

    /// How the volume is doing.
    ///
    /// # Errors
    /// [`FsError::Io`] when the set of orphans cannot be read.
    pub fn status(&self) -> Result<VolumeStatus, FsError> {
        let sb = self.store().superblock();
        Ok(VolumeStatus {
            label: sb.label.clone(),
            uuid: sb.uuid,
            volume: sb.volume,
            space: self.store().space(),
            counts: self.store().counter_values(),
            dirty: self.store().is_dirty(),
            orphans: self.store().orphans()?.len() as u64,
            held: self.volume.references().count_totals().objects,
            poisoned: self.store().is_poisoned(),
            read_only: self.store().is_read_only(),
            settings: self.store().settings(),
        })
    }

    /// Makes everything that happened before durable: `fsync`, `fdatasync` and `fsync` of a
    /// directory, `syncfs`. All objects share one log, so none of them can be cheaper than the
    /// others.
    ///
    /// # Errors
    /// [`FsError::Io`]; then nothing more is promised until the volume is mounted again.
    pub fn sync(&self) -> Result<(), FsError> {
        self.volume.sync()
    }

    /// Ends the file system: stops the background thread, gives back what nobody refers to, closes
    /// the store. Reading goes on.
    ///
    /// # Errors
    /// [`FsError::Io`] when the store cannot be closed properly; what was not synced may be lost then.
    pub fn shutdown(self: &Arc<Self>) -> Result<RemainingReferences, FsError> {
        if let Some(replica) = &self.replica {
            replica.end_drives();
        }
        self.stop_background();
        if let Some(replica) = &self.replica {
            replica.say_goodbye();
        }
        if !self.store().is_read_only() {
            while self.volume.reclaim_next(&*self.changes) {}
            self.store().close()?;
        }
        let totals = self.volume.references().count_totals();
        Ok(RemainingReferences {
            held: totals.objects,
            orphans: totals.orphans,
        })
    }
}
