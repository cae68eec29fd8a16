//! The interface between a store and its disk, with all that a disk does not promise.

use std::io::{self, IoSlice};
use teal_types::Sector;

/// The properties of a disk, known when it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskShape {
    /// Size in sectors of 512 bytes.
    pub sectors: u64,
    /// Bytes of the smallest write the device takes.
    pub logical: u32,
    /// Bytes a device may tear as one when a write fails in the middle (at least `logical`).
    pub physical: u32,
    /// True if repositioning costs time: heads and platters.
    pub rotational: bool,
    /// True if space must be [allocated](Disk::allocate) from a host file system before it can be
    /// relied on.
    pub sparse: bool,
}

/// The space of the file system below a sparse disk, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostRoom {
    /// The bytes that the host can still allocate.
    pub free: u64,
    /// The bytes that it has allocated to the disk already.
    pub allocated: u64,
}

/// A disk of sectors. The contract is the fault model.
///
/// 1. A write is *pending* until the next [`sync`](Disk::sync) that starts after it returned has
///    returned `Ok`.
/// 2. A crash keeps any subset of the pending physical sectors, in any order; each physical sector
///    is either old, new or, if it was being written, unreadable.
/// 3. A failed `sync` says nothing about what is durable, and a later successful one does not
///    repair that.
/// 4. Reads see the newest write, pending or not, until a crash.
/// 5. All offsets and lengths are whole sectors.
pub trait Disk: Send + Sync {
    /// Returns size and kind.
    fn shape(&self) -> DiskShape;

    /// Fills `buf` from `at`.
    ///
    /// # Errors
    /// The device's error; the content of `buf` is then undefined. Reading past the end is an
    /// error.
    fn read_at(&self, at: Sector, buf: &mut [u8]) -> io::Result<()>;

    /// Writes `parts` one after another from `at`, as one request where the device allows.
    ///
    /// # Errors
    /// The device's error; any part may or may not have been written.
    fn write_at(&self, at: Sector, parts: &[IoSlice<'_>]) -> io::Result<()>;

    /// Makes everything written before durable.
    ///
    /// # Errors
    /// The device's error; nothing written since the last good sync may be relied on.
    fn sync(&self) -> io::Result<()>;

    /// Makes sure that a later write to these sectors cannot fail for lack of host space.
    ///
    /// # Errors
    /// `StorageFull` when the host has no room; nothing changed then.
    fn allocate(&self, at: Sector, sectors: u64) -> io::Result<()>;

    /// Returns the space that the host has for a [sparse](DiskShape::sparse) disk; `None` if
    /// nothing bounds it, or that is not known. It reads nothing of the disk itself.
    fn host_room(&self) -> Option<HostRoom> {
        None
    }

    /// Checks that the written content can be found again by a later opening: that the disk's file
    /// was not deleted meanwhile, or cut short.
    ///
    /// # Errors
    /// Says what has become of the file.
    fn check_present(&self) -> io::Result<()> {
        Ok(())
    }

    /// Tells the device that these sectors hold nothing of value. A hint: their content is
    /// undefined afterwards.
    ///
    /// # Errors
    /// The device's error; harmless.
    fn discard(&self, at: Sector, sectors: u64) -> io::Result<()>;
}
