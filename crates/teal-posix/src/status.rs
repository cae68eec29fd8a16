//! The status of a volume, without asking any disk; making everything durable; the shutdown.

use crate::FileSystem;
use std::sync::Arc;
use teal_log::{SpaceStatus, StoreCounts, StoreSettings};
use teal_types::{BLOCK, NAME_MAX, VolumeId};
use teal_volume::FsError;

/// The figures of `statfs`.
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

/// The status of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeStatus {
    /// The owner's name for the volume.
    pub label: String,
    /// Identifies the store.
    pub uuid: [u8; 16],
    /// The volume it holds.
    pub volume: VolumeId,
    /// The space in use and free.
    pub space: SpaceStatus,
    /// The counters of the store since it was opened.
    pub counts: StoreCounts,
    /// Is true if changes wait to be committed.
    pub dirty: bool,
    /// Objects without a name that wait to be given back.
    pub orphans: u64,
    /// Objects the kernel refers to.
    pub held: u64,
    /// Is true if a failure has ended all writing.
    pub poisoned: bool,
    /// Is true if the store was opened for reading only.
    pub read_only: bool,
    /// The settings in force.
    pub settings: StoreSettings,
}

/// References that were left when a file system ended.
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
        // An object takes a sector at least.
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

    /// Returns the status of the volume.
    ///
    /// # Errors
    /// [`FsError::Io`] when the set of orphans cannot be read.
    pub fn status(&self) -> Result<VolumeStatus, FsError> {
        let sb = self.store().superblock();
        Ok(VolumeStatus {
            label: sb.label.clone(),
            uuid: sb.uuid,
            volume: VolumeId::new(sb.volume),
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

    /// Ends the file system: stops the background thread, gives back objects without names, closes
    /// the store. Reading goes on.
    ///
    /// # Errors
    /// [`FsError::Io`] when the store cannot be closed properly; what was not synced may be lost
    /// then.
    pub fn shutdown(self: &Arc<Self>) -> Result<RemainingReferences, FsError> {
        if let Some(replica) = &self.replica {
            // Drives first: they still need the background threads.
            replica.end_drives();
        }
        self.stop_background();
        if let Some(replica) = &self.replica {
            // The server may let go of this machine.
            replica.say_goodbye();
        }
        if !self.store().is_read_only() {
            // Nothing is held any more, so all orphans can be given back.
            while self.volume.reclaim_next(&*self.changes) {}
            self.write_access_times();
            self.store().close()?;
        }
        let totals = self.volume.references().count_totals();
        Ok(RemainingReferences {
            held: totals.objects,
            orphans: totals.orphans,
        })
    }
}
